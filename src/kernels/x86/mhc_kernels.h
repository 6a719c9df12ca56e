// The operators of mHC of one level (ops.h). Plain structs and pointers only: level/ includes this.
#pragma once

#include <cstdint>

namespace fathom::x86 {

inline constexpr std::int64_t kMhcRowsMax = 32;    // of one call of `products`
inline constexpr std::int64_t kMhcStreamsMax = 8;  // of every function

struct MhcKernels {
    // N3 products of `rows` bf16 rows z[r] with `mixes` fp32 rows of fn, all `width` long:
    // out[r·out_stride + m]. `lanes` is scratch memory of rows·mixes·16 floats.
    void (*products)(const std::uint16_t* const* z, std::int64_t rows, const float* fn,
                     std::int64_t width, std::int64_t mixes, float* lanes, float* out,
                     std::int64_t out_stride);
    // The row statistic and everything after the products: m holds (2+h)·h products of row z.
    void (*finish)(const std::uint16_t* z, std::int64_t width, std::int64_t streams,
                   const float* base, const float* scale, std::int64_t sinkhorn_iters, float eps,
                   float norm_eps, const float* m, float* pre, float* post, float* comb);
    // Stream i lies at x + i·stride.
    void (*collapse)(const std::uint16_t* x, std::int64_t stride, std::int64_t streams,
                     const float* pre, std::int64_t dim, std::uint16_t* y);
    void (*expand)(std::uint16_t* x, std::int64_t stride, std::int64_t streams,
                   const std::uint16_t* y, const float* post, const float* comb, std::int64_t dim);
};

namespace avx2 {
const MhcKernels& mhc_kernels();
}
namespace avx512 {
const MhcKernels& mhc_kernels();
}

}  // namespace fathom::x86
