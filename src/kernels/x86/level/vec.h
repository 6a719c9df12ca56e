// Sixteen floats, whatever the registers' width: the lanes of rules N3 and N4 and of every
// element-wise loop.
//
// Every file of this folder is compiled once for each level, into namespace
// fathom::x86::FATHOM_X86_LEVEL. It may include only <immintrin.h>, <cstdint>, <cstddef>, headers
// of this folder, and headers of x86/ that hold plain structs: an inline function or template of
// any other header that the compiler does not inline would be emitted with this level's
// instructions, and the linker could hand that copy to a program that runs on a lesser CPU.
//
// MXCSR is as N6 wants it while kernels run: round to nearest, denormals flushed.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace fathom::x86::FATHOM_X86_LEVEL {

inline constexpr std::int64_t kLanes = 16;

#if defined(__AVX512BF16__)

struct F16 {
    __m512 v;
};

inline F16 zero() {
    return {_mm512_setzero_ps()};
}
inline F16 all(float x) {
    return {_mm512_set1_ps(x)};
}
inline F16 load(const float* p) {
    return {_mm512_loadu_ps(p)};
}
inline void store(float* p, F16 x) {
    _mm512_storeu_ps(p, x.v);
}
inline F16 operator+(F16 a, F16 b) {
    return {_mm512_add_ps(a.v, b.v)};
}
inline F16 operator-(F16 a, F16 b) {
    return {_mm512_sub_ps(a.v, b.v)};
}
inline F16 operator*(F16 a, F16 b) {
    return {_mm512_mul_ps(a.v, b.v)};
}
inline F16 operator/(F16 a, F16 b) {
    return {_mm512_div_ps(a.v, b.v)};
}
inline F16 fma(F16 a, F16 b, F16 c) {
    return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline F16 sqrt(F16 a) {
    return {_mm512_sqrt_ps(a.v)};
}
// The larger; b where they compare unordered.
inline F16 max(F16 a, F16 b) {
    return {_mm512_max_ps(a.v, b.v)};
}
inline F16 min(F16 a, F16 b) {
    return {_mm512_min_ps(a.v, b.v)};
}

// Numbers from bf16, exact.
inline F16 load_bf16(const std::uint16_t* p) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16))};
}
// Round to nearest even, NaN to a quiet NaN: the bits of bf16_from_float (base/formats.h).
inline void store_bf16(std::uint16_t* p, F16 x) {
    const __m512i u = _mm512_castps_si512(x.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet)));
}

// The same where no lane is a denormal, as no result of arithmetic is under FTZ.
inline void store_bf16_result(std::uint16_t* p, F16 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x.v));
}

// Lane j += lane j+8, then +4, +2, +1.
inline float tree(F16 x) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

#else

struct F16 {
    __m256 a, b;  // lanes 0..7 and 8..15
};

inline F16 zero() {
    return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline F16 all(float x) {
    return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
inline F16 load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void store(float* p, F16 x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
inline F16 operator+(F16 x, F16 y) {
    return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
inline F16 operator-(F16 x, F16 y) {
    return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
inline F16 operator*(F16 x, F16 y) {
    return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
inline F16 operator/(F16 x, F16 y) {
    return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
inline F16 fma(F16 x, F16 y, F16 z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline F16 sqrt(F16 x) {
    return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)};
}
inline F16 max(F16 x, F16 y) {
    return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
inline F16 min(F16 x, F16 y) {
    return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}

inline __m256 widen_bf16(__m128i x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
inline F16 load_bf16(const std::uint16_t* p) {
    const auto* q = reinterpret_cast<const __m128i*>(p);
    return {widen_bf16(_mm_loadu_si128(q)), widen_bf16(_mm_loadu_si128(q + 1))};
}
inline __m256i rounded_bf16(__m256 x) {  // in the low half of each lane
    const __m256i u = _mm256_castps_si256(x);
    const __m256i high = _mm256_srli_epi32(u, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
}
inline void store_bf16(std::uint16_t* p, F16 x) {
    const __m256i packed = _mm256_packus_epi32(rounded_bf16(x.a), rounded_bf16(x.b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
inline void store_bf16_result(std::uint16_t* p, F16 x) {
    store_bf16(p, x);
}

inline float tree(F16 x) {
    const __m256 eight = _mm256_add_ps(x.a, x.b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

#endif

}  // namespace fathom::x86::FATHOM_X86_LEVEL
