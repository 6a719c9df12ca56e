// Stored rows of one level (ops.h, base/formats.h). Plain structs and pointers only: level/
// includes this. Rows are bf16 bits, n elements long; n is a multiple of 32 but for bf16 rows.
//
// The functions that return bool handle what models meet. Where a row holds something else (numbers
// that are not finite, scales near the ends of fp32's range) they return false, with the output
// unspecified, and the caller takes base/formats.h.
#pragma once

#include <cstdint>

namespace fathom::x86 {

enum class RowFormat : int { fp8, main_fp4, index_fp4, bf16 };

struct CacheKernels {
    bool (*quantise)(RowFormat format, const std::uint16_t* x, std::int64_t n, std::uint8_t* values,
                     std::uint8_t* scales);
    // What quantise and decode give together. y is not x.
    bool (*round_trip)(RowFormat format, const std::uint16_t* x, std::int64_t n, std::uint16_t* y);
    bool (*decode)(RowFormat format, const std::uint8_t* values, const std::uint8_t* scales,
                   std::int64_t n, std::uint16_t* y);
    // One row of compress_pair.
    void (*compress_pair)(const float* u0, const float* g0, const float* u1, const float* g1,
                          std::int64_t n, std::uint16_t* y);
};

namespace avx2 {
const CacheKernels& cache_kernels();
}
namespace avx512 {
const CacheKernels& cache_kernels();
}

}  // namespace fathom::x86
