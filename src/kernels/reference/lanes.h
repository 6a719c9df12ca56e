// The orders of addition of ops.h, as loops that the compiler turns into vector code: sixteen
// neighbouring results (outputs, list rows, heads or columns) advance together, each in its own
// chain, and several inputs are in flight to hide the latency of the multiply-add. Which results
// advance together never matters to a result's bits.
#pragma once

#include <cmath>
#include <cstdint>

namespace fathom::reference {

inline constexpr std::int64_t kLanes = 16;
inline constexpr std::int64_t kReductionBlock = 512;  // N4

// acc[r][j] = fma(x[r][2p], w[2p][j], fma(x[r][2p+1], w[2p+1][j], acc[r][j])) for p = 0..pairs-1;
// w[k] is 16 numbers at w + k·w_stride.
template <int R>
inline void pair_chain(const float* const (&x)[R], const float* __restrict w, std::int64_t w_stride,
                       std::int64_t pairs, float (&acc)[R][kLanes]) {
    float b[R][kLanes];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j)
            b[r][j] = acc[r][j];
    }
    for (std::int64_t p = 0; p < pairs; ++p) {
        const float* w0 = w + 2 * p * w_stride;
        const float* w1 = w0 + w_stride;
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const float x0 = x[r][2 * p];
            const float x1 = x[r][2 * p + 1];
#pragma GCC unroll 16
            for (int j = 0; j < kLanes; ++j) {
                b[r][j] = std::fma(x0, w0[j], std::fma(x1, w1[j], b[r][j]));
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j)
            acc[r][j] = b[r][j];
    }
}

// Calls f.operator()<R>(begin) over [0, n) in steps of R = 4, then for the rest of 1 to 3.
template <class F>
inline void in_fours(std::int64_t n, const F& f) {
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        f.template operator()<4>(i);
    if (n - i == 3) f.template operator()<3>(i);
    if (n - i == 2) f.template operator()<2>(i);
    if (n - i == 1) f.template operator()<1>(i);
}

// Lane j += lane j+8, then +4, +2, +1.
inline float tree(float (&lane)[kLanes]) {
    for (int j = 0; j < 8; ++j)
        lane[j] += lane[j + 8];
    for (int j = 0; j < 4; ++j)
        lane[j] += lane[j + 4];
    for (int j = 0; j < 2; ++j)
        lane[j] += lane[j + 2];
    return lane[0] + lane[1];
}

// Runs step(k, lane) over k in [begin, end) with lane = k mod 16 and gives the tree's sum; begin is
// a multiple of 16. An element that is missing to a multiple of 16 counts as zero: it leaves its
// lane unchanged but for turning −0 into +0.
template <class Step>
inline float reduce_lanes(std::int64_t begin, std::int64_t end, const Step& step) {
    float lane[kLanes] = {};
    std::int64_t k = begin;
    for (; k + kLanes <= end; k += kLanes) {
        for (int j = 0; j < kLanes; ++j)
            lane[j] = step(k + j, lane[j]);
    }
    if (k < end) {
        for (int j = 0; j < kLanes; ++j) {
            lane[j] = k + j < end ? step(k + j, lane[j]) : lane[j] + 0.0f;
        }
    }
    return tree(lane);
}

// N4: blocks of 512, block results added in order.
template <class Step>
inline float reduce_row(std::int64_t n, const Step& step) {
    float total = 0;
    for (std::int64_t begin = 0; begin < n; begin += kReductionBlock) {
        const std::int64_t end = begin + kReductionBlock < n ? begin + kReductionBlock : n;
        total += reduce_lanes(begin, end, step);
    }
    return total;
}

inline float sum_of_squares(const float* x, std::int64_t n) {
    return reduce_row(n, [x](std::int64_t k, float lane) { return std::fma(x[k], x[k], lane); });
}

}  // namespace fathom::reference
