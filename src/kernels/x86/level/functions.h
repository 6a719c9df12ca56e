// The functions of kernels/functions.h (N5) on sixteen lanes: the same steps in the same order, so
// a lane has the bits that the scalar function gives. Branches become selections.
#pragma once

#include "kernels/x86/level/vec.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

// ------------------------------------------------------------------- comparisons, bits as integers

#if defined(__AVX512BF16__)

using M16 = __mmask16;  // one truth value a lane

inline M16 less(F16 a, F16 b) {  // false where they compare unordered
    return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ);
}
inline M16 unordered(F16 a) {
    return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
}
inline F16 select(M16 m, F16 yes, F16 no) {
    return {_mm512_mask_mov_ps(no.v, m, yes.v)};
}
inline F16 negate(F16 a) {
    return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))};
}

struct I16 {
    __m512i v;
};
inline I16 all_i(std::int32_t x) {
    return {_mm512_set1_epi32(x)};
}
inline I16 operator+(I16 a, I16 b) {
    return {_mm512_add_epi32(a.v, b.v)};
}
inline I16 operator-(I16 a, I16 b) {
    return {_mm512_sub_epi32(a.v, b.v)};
}
template <int kBits>
inline I16 shift_left(I16 a) {
    return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>
inline I16 shift_right(I16 a) {  // keeps the sign
    return {_mm512_srai_epi32(a.v, kBits)};
}
inline I16 bits_of(F16 a) {
    return {_mm512_castps_si512(a.v)};
}
inline F16 from_bits(I16 a) {
    return {_mm512_castsi512_ps(a.v)};
}
inline I16 integer_of(F16 a) {  // of an integral value within 2^31
    return {_mm512_cvttps_epi32(a.v)};
}
inline F16 number_of(I16 a) {
    return {_mm512_cvtepi32_ps(a.v)};
}

#else

struct M16 {
    __m256 a, b;
};

inline M16 less(F16 x, F16 y) {
    return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
inline M16 unordered(F16 x) {
    return {_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)};
}
inline F16 select(M16 m, F16 yes, F16 no) {
    return {_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b)};
}
inline F16 negate(F16 x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
}

struct I16 {
    __m256i a, b;
};
inline I16 all_i(std::int32_t x) {
    return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
inline I16 operator+(I16 x, I16 y) {
    return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
inline I16 operator-(I16 x, I16 y) {
    return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
template <int kBits>
inline I16 shift_left(I16 x) {
    return {_mm256_slli_epi32(x.a, kBits), _mm256_slli_epi32(x.b, kBits)};
}
template <int kBits>
inline I16 shift_right(I16 x) {
    return {_mm256_srai_epi32(x.a, kBits), _mm256_srai_epi32(x.b, kBits)};
}
inline I16 bits_of(F16 x) {
    return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}
inline F16 from_bits(I16 x) {
    return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
inline I16 integer_of(F16 x) {
    return {_mm256_cvttps_epi32(x.a), _mm256_cvttps_epi32(x.b)};
}
inline F16 number_of(I16 x) {
    return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}

#endif

// ------------------------------------------------------------------------------------- functions

namespace functions {

inline constexpr float kLn2High = 0x1.62cp-1f;
inline constexpr float kLn2Low = 0x1.217f7ep-12f;
inline constexpr float kInfinity = __builtin_inff();

// 2^n for n in [-126, 127].
inline F16 power_of_two(I16 n) {
    return from_bits(shift_left<23>(n + all_i(127)));
}

inline F16 exp(F16 x) {
    const F16 low = all(-87.33f), high = all(88.72f);
    const M16 above = less(high, x), below = less(x, low), nan = unordered(x);
    const F16 inside = select(nan, zero(), select(above, zero(), select(below, zero(), x)));
    const F16 round_shift = all(0x1.8p23f);
    const F16 n = fma(inside, all(0x1.715476p+0f), round_shift) - round_shift;
    F16 r = fma(n, all(-kLn2High), inside);
    r = fma(n, all(-kLn2Low), r);
    F16 q = all(0x1.6d110ap-10f);
    q = fma(q, r, all(0x1.120b6ep-7f));
    q = fma(q, r, all(0x1.55551ap-5f));
    q = fma(q, r, all(0x1.5554dcp-3f));
    q = fma(q, r, all(0.5f));
    const F16 y = all(1.0f) + fma(r * r, q, r);
    // n may be 128: two factors, the first product exact. How n is halved does not show.
    const I16 exponent = integer_of(n);
    const I16 half = shift_right<1>(exponent);
    const F16 scaled = y * power_of_two(half) * power_of_two(exponent - half);
    return select(nan, x, select(above, all(kInfinity), select(below, zero(), scaled)));
}

inline F16 log1p(F16 x) {
    const F16 one = all(1.0f);
    const F16 u = one + x;
    const F16 c = select(less(x, one), x - (u - one), one - (u - x));
    const I16 k = shift_right<23>(bits_of(u) - all_i(0x3f3504f3));
    const F16 f = from_bits(bits_of(u) - shift_left<23>(k)) - one;
    F16 p = all(0x1.1d8ea6p-4f);
    p = fma(p, f, all(-0x1.d635bcp-4f));
    p = fma(p, f, all(0x1.dea282p-4f));
    p = fma(p, f, all(-0x1.fcf4c6p-4f));
    p = fma(p, f, all(0x1.23d21ap-3f));
    p = fma(p, f, all(-0x1.555b4ap-3f));
    p = fma(p, f, all(0x1.999d5ap-3f));
    p = fma(p, f, all(-0x1.fffffcp-3f));
    p = fma(p, f, all(0x1.555554p-2f));
    const F16 f2 = f * f;
    const F16 exponent = number_of(k);
    const F16 rest = fma(all(-0.5f), f2, f2 * f * p) + fma(exponent, all(kLn2Low), c / u);
    const F16 y = fma(exponent, all(kLn2High), f + rest);
    const M16 finite = less(x, all(kInfinity));  // not +inf, not NaN
    const F16 least = all(0x1p-126f);            // denormals and negative numbers count as zero
    return select(finite, select(less(x, least), zero(), y), x);
}

inline F16 sigmoid(F16 x) {
    const M16 negative = less(x, zero());
    const F16 e = exp(select(negative, x, negate(x)));
    return select(negative, e, all(1.0f)) / (all(1.0f) + e);
}

inline F16 silu(F16 x) {
    return x / (all(1.0f) + exp(negate(x)));
}

inline F16 softplus(F16 x) {
    return select(less(all(20.0f), x), x, log1p(exp(x)));
}

}  // namespace functions

}  // namespace fathom::x86::FATHOM_X86_LEVEL
