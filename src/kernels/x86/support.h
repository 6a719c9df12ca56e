// Rows of views, and spreading rows over the pool.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/compute_pool.h"
#include "kernels/ops.h"

namespace fathom::x86 {

inline const std::uint16_t* bf16_row(const ConstRows& x, std::int64_t i) {
    return static_cast<const std::uint16_t*>(x.data) + i * x.stride;
}
inline std::uint16_t* bf16_row(const Rows& x, std::int64_t i) {
    return static_cast<std::uint16_t*>(x.data) + i * x.stride;
}
inline const std::uint16_t* bits(const Bf16* w) {
    return &w->bits;
}

// Calls body(begin, end) on pieces that cover [0, n), on the pool when the work is worth a
// hand-over, else on the caller. item_us is a rough time of one item, in microseconds.
template <class Body>
void for_rows(ComputePool& pool, std::int64_t n, double item_us, const Body& body) {
    constexpr double kWorthUs = 4;  // about what a hand-over costs, a few times over
    constexpr std::int64_t kPiecesPerThread = 4;
    if (n <= 0) return;
    const double total_us = item_us * static_cast<double>(n);
    if (pool.threads() == 1 || n == 1 || total_us < kWorthUs) {
        const FlushDenormals flush;
        body(std::int64_t{0}, n);
        return;
    }
    const auto worth = static_cast<std::int64_t>(total_us / kWorthUs);
    const std::int64_t pieces =
        std::clamp<std::int64_t>(worth, 1, std::min(n, kPiecesPerThread * pool.threads()));
    pool.run_ranges(n, (n + pieces - 1) / pieces, body);
}

}  // namespace fathom::x86
