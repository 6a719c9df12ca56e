// Row operators of one level (ops.h). Plain structs and pointers only: level/ includes this. Rows
// are bf16 bits; `y` may be `x` where it says in place.
#pragma once

#include <cstdint>

namespace fathom::x86 {

struct RowKernels {
    // In place allowed.
    void (*rms_norm)(const std::uint16_t* x, const std::uint16_t* w, std::int64_t n, float eps,
                     std::uint16_t* y);
    // n is a multiple of 32. In place allowed.
    void (*q8_round_trip)(const std::uint16_t* x, std::int64_t n, std::uint16_t* y);
    // Cosines and sines of position · freqs[k], the sines negated where `inverse`. All three arrays
    // have room for a multiple of 16.
    void (*angles)(float position, const float* freqs, std::int64_t pairs, bool inverse,
                   float* cosine, float* sine);
    // Rotates `pairs` pairs at x and at every head_dim elements from there.
    void (*rotate)(std::uint16_t* x, std::int64_t heads, std::int64_t head_dim, std::int64_t pairs,
                   const float* cosine, const float* sine);
    // The dot products and the gate of one stream of engram_gate; x is updated.
    float (*engram_gate)(std::uint16_t* x, const std::uint16_t* key, const std::uint16_t* value,
                         const std::uint16_t* q_weight, const std::uint16_t* k_weight,
                         std::int64_t n, float eps);
};

namespace avx2 {
const RowKernels& row_kernels();
}
namespace avx512 {
const RowKernels& row_kernels();
}

}  // namespace fathom::x86
