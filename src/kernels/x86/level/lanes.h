// Rows in steps of sixteen, and the reductions of N3 and N4 over sixteen lanes.
#pragma once

#include "kernels/x86/level/vec.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

inline constexpr std::int64_t kReductionBlock = 512;  // N4

inline float sqrt(float x) {
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
}
inline float rsqrt(float x) {
    return 1.0f / sqrt(x);
}

// ------------------------------------------------------------------------------- ends of rows

// Calls step(k, count) with elements k .. k+count-1; count is 16 but at the end of the row.
template <class Step>
inline void in_sixteens(std::int64_t n, const Step& step) {
    std::int64_t k = 0;
    for (; k + kLanes <= n; k += kLanes)
        step(k, kLanes);
    if (k < n) step(k, n - k);
}

// The first `count` elements, the missing ones as +0.
inline F16 load_part(const std::uint16_t* p, std::int64_t count) {
    if (count == kLanes) return load_bf16(p);
    alignas(32) std::uint16_t part[kLanes] = {};
    for (std::int64_t j = 0; j < count; ++j)
        part[j] = p[j];
    return load_bf16(part);
}
inline F16 load_part(const float* p, std::int64_t count) {
    if (count == kLanes) return load(p);
    alignas(64) float part[kLanes] = {};
    for (std::int64_t j = 0; j < count; ++j)
        part[j] = p[j];
    return load(part);
}
// Rounds the first `count` lanes, results of arithmetic, to bf16.
inline void store_result(std::uint16_t* p, F16 x, std::int64_t count) {
    if (count == kLanes) return store_bf16_result(p, x);
    std::uint16_t part[kLanes];
    store_bf16_result(part, x);
    for (std::int64_t j = 0; j < count; ++j)
        p[j] = part[j];
}

// ---------------------------------------------------------------------------------- reductions

// N4 over n elements: step(k, lanes, count) adds elements k .. k+count-1 to their lanes.
template <class Step>
inline float reduce_row(std::int64_t n, const Step& step) {
    float total = 0;
    for (std::int64_t begin = 0; begin < n; begin += kReductionBlock) {
        const std::int64_t end = begin + kReductionBlock < n ? begin + kReductionBlock : n;
        F16 lanes = zero();
        std::int64_t k = begin;
        for (; k + kLanes <= end; k += kLanes)
            lanes = step(k, lanes, kLanes);
        if (k < end) lanes = step(k, lanes, end - k);
        total += tree(lanes);
    }
    return total;
}

inline float sum_of_squares_bf16(const std::uint16_t* x, std::int64_t n) {
    return reduce_row(n, [x](std::int64_t k, F16 lanes, std::int64_t count) {
        const F16 v = load_part(x + k, count);
        return fma(v, v, lanes);
    });
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
