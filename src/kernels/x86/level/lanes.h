// The reductions of N3 and N4 over sixteen lanes.
#pragma once

#include "kernels/x86/level/vec.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

inline constexpr std::int64_t kReductionBlock = 512;  // N4

// Elements [k, n) of a row, fewer than 16, as lanes; the missing ones are +0.
inline F16 load_bf16_tail(const std::uint16_t* p, std::int64_t count) {
    alignas(32) std::uint16_t part[kLanes] = {};
    for (std::int64_t j = 0; j < count; ++j)
        part[j] = p[j];
    return load_bf16(part);
}

// N4 over n elements: step(k, lanes, count) adds elements k .. k+count-1 to their lanes; count is
// 16 but at the end of the row.
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
        const F16 v = count == kLanes ? load_bf16(x + k) : load_bf16_tail(x + k, count);
        return fma(v, v, lanes);
    });
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
