// Row operators of one level. Plain structs and pointers only: level/ includes this.
#pragma once

#include <cstdint>

namespace fathom::x86 {

struct RowKernels {
    // One row of rms_norm (ops.h); bf16 bits in and out, in place allowed.
    void (*rms_norm)(const std::uint16_t* x, const std::uint16_t* w, std::int64_t n, float eps,
                     std::uint16_t* y);
};

namespace avx2 {
const RowKernels& row_kernels();
}
namespace avx512 {
const RowKernels& row_kernels();
}

}  // namespace fathom::x86
