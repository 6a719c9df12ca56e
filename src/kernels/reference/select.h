// A total order on scores: higher first, ties to the lower index, −0 = +0, NaN below everything.
// It works on bits, so MXCSR does not matter.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace fathom::reference {

// Larger for a higher score; 0 for NaN.
inline std::uint32_t score_rank(float score) {
    std::uint32_t u = std::bit_cast<std::uint32_t>(score);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0;
    if (u == 0x80000000u) u = 0;
    return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

// Keeps the k best of `ranks` and writes their indices, ascending; returns min(k, ranks.size()).
std::int64_t take_best(std::span<const std::uint32_t> ranks, std::int64_t k,
                       std::span<std::int32_t> out);

}  // namespace fathom::reference
