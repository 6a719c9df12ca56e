// Selection of one level (ops.h). Plain structs and pointers only: level/ includes this.
//
// Scores are compared as ranks: signed integers in the order of the scores, -0 = +0, NaN lowest.
#pragma once

#include <cstdint>

namespace fathom::x86 {

inline constexpr std::int64_t kSelectSpare = 64;  // elements of memory beyond those used

struct SelectKernels {
    // The k best of n, 0 < k < n, ties to the lower index, ascending. `memory` holds 2·n + spare
    // integers. `out` holds k.
    void (*top)(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* memory,
                std::int32_t* out);
    void (*top_ranks)(const std::int32_t* ranks, std::int64_t n, std::int64_t k,
                      std::int32_t* memory, std::int32_t* out);
    // The highest rank of each block; the last may be short.
    void (*block_ranks)(const float* scores, std::int64_t n, std::int64_t block_size,
                        std::int32_t* ranks);
};

namespace avx2 {
const SelectKernels& select_kernels();
}
namespace avx512 {
const SelectKernels& select_kernels();
}

}  // namespace fathom::x86
