// Sixteen 32-bit integers: what functions.h leaves out. Comparisons are signed.
#pragma once

#include "kernels/x86/level/functions.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

#if defined(__AVX512BF16__)

inline I16 operator&(I16 a, I16 b) {
    return {_mm512_and_si512(a.v, b.v)};
}
inline I16 operator|(I16 a, I16 b) {
    return {_mm512_or_si512(a.v, b.v)};
}
template <int kBits>
inline I16 shift_right_zeros(I16 a) {
    return {_mm512_srli_epi32(a.v, kBits)};
}
inline M16 less(I16 a, I16 b) {
    return _mm512_cmplt_epi32_mask(a.v, b.v);
}
inline I16 select(M16 m, I16 yes, I16 no) {
    return {_mm512_mask_mov_epi32(no.v, m, yes.v)};
}
inline I16 min(I16 a, I16 b) {
    return {_mm512_min_epi32(a.v, b.v)};
}
inline I16 max(I16 a, I16 b) {
    return {_mm512_max_epi32(a.v, b.v)};
}
inline I16 load_i(const void* p) {
    return {_mm512_loadu_si512(p)};
}
inline void store_i(void* p, I16 x) {
    _mm512_storeu_si512(p, x.v);
}
inline I16 load_u8(const std::uint8_t* p) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline void store_u8(std::uint8_t* p, I16 x) {  // values 0..255
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}
// The largest lane, in every lane.
inline I16 largest(I16 a) {
    __m512i x = _mm512_max_epi32(a.v, _mm512_shuffle_i32x4(a.v, a.v, 0x4e));
    x = _mm512_max_epi32(x, _mm512_shuffle_i32x4(x, x, 0xb1));
    x = _mm512_max_epi32(x, _mm512_shuffle_epi32(x, _MM_PERM_BADC));
    return {_mm512_max_epi32(x, _mm512_shuffle_epi32(x, _MM_PERM_CDAB))};
}
inline std::int32_t first(I16 a) {
    return _mm_cvtsi128_si32(_mm512_castsi512_si128(a.v));
}

#else

inline I16 operator&(I16 x, I16 y) {
    return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
inline I16 operator|(I16 x, I16 y) {
    return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
template <int kBits>
inline I16 shift_right_zeros(I16 x) {
    return {_mm256_srli_epi32(x.a, kBits), _mm256_srli_epi32(x.b, kBits)};
}
inline M16 less(I16 x, I16 y) {
    return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(y.a, x.a)),
            _mm256_castsi256_ps(_mm256_cmpgt_epi32(y.b, x.b))};
}
inline I16 select(M16 m, I16 yes, I16 no) {
    return {_mm256_blendv_epi8(no.a, yes.a, _mm256_castps_si256(m.a)),
            _mm256_blendv_epi8(no.b, yes.b, _mm256_castps_si256(m.b))};
}
inline I16 min(I16 x, I16 y) {
    return {_mm256_min_epi32(x.a, y.a), _mm256_min_epi32(x.b, y.b)};
}
inline I16 max(I16 x, I16 y) {
    return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)};
}
inline I16 load_i(const void* p) {
    const auto* q = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void store_i(void* p, I16 x) {
    auto* q = static_cast<__m256i*>(p);
    _mm256_storeu_si256(q, x.a);
    _mm256_storeu_si256(q + 1, x.b);
}
inline I16 load_u8(const std::uint8_t* p) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))};
}
inline void store_u8(std::uint8_t* p, I16 x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(x.a, x.b), 0xd8);
    const __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
inline I16 largest(I16 a) {
    __m256i x = _mm256_max_epi32(a.a, a.b);
    x = _mm256_max_epi32(x, _mm256_permute2x128_si256(x, x, 1));
    x = _mm256_max_epi32(x, _mm256_shuffle_epi32(x, 0x4e));
    x = _mm256_max_epi32(x, _mm256_shuffle_epi32(x, 0xb1));
    return {x, x};
}
inline std::int32_t first(I16 a) {
    return _mm_cvtsi128_si32(_mm256_castsi256_si128(a.a));
}

#endif

inline float first(F16 a) {
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(first(bits_of(a)))));
}

// Numbers rounded to bf16, in the low halves; as store_bf16.
inline I16 bf16_bits(F16 x) {
    const I16 u = bits_of(x), high = shift_right_zeros<16>(u);
    const I16 rounded = shift_right_zeros<16>(u + all_i(0x7fff) + (high & all_i(1)));
    return select(unordered(x), high | all_i(0x40), rounded);
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
