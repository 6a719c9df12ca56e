// Sine and cosine of fp32 angles with the bits of kernels/functions.h: the same steps in double,
// several angles at once.
#pragma once

#include "kernels/x86/level/vec.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

#if defined(__AVX512BF16__)

struct D8 {
    __m512d v;
};
inline constexpr std::int64_t kAngles = 8;
inline D8 all_d(double x) {
    return {_mm512_set1_pd(x)};
}
inline D8 fma(D8 a, D8 b, D8 c) {
    return {_mm512_fmadd_pd(a.v, b.v, c.v)};
}
inline D8 operator*(D8 a, D8 b) {
    return {_mm512_mul_pd(a.v, b.v)};
}
inline D8 operator-(D8 a, D8 b) {
    return {_mm512_sub_pd(a.v, b.v)};
}
inline D8 angles(float position, const float* freqs) {
    return {_mm512_cvtps_pd(_mm256_mul_ps(_mm256_set1_ps(position), _mm256_loadu_ps(freqs)))};
}
// Bit `kBit` of the integer in the low mantissa bits of n chooses `yes`.
template <int kBit>
inline D8 choose(D8 n, D8 yes, D8 no) {
    const __mmask8 m =
        _mm512_test_epi64_mask(_mm512_castpd_si512(n.v), _mm512_set1_epi64(1 << kBit));
    return {_mm512_mask_mov_pd(no.v, m, yes.v)};
}
inline D8 negate_d(D8 a) {
    return {_mm512_castsi512_pd(_mm512_xor_si512(
        _mm512_castpd_si512(a.v), _mm512_set1_epi64(static_cast<long long>(1ull << 63))))};
}
inline D8 integer_plus_one(D8 n) {
    return {_mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(n.v), _mm512_set1_epi64(1)))};
}
// As fp32; NaN where the angle is beyond ±2^30.
inline void store_checked(float* p, D8 x, D8 angle) {
    const __mmask8 good =
        _mm512_cmp_pd_mask(_mm512_abs_pd(angle.v), _mm512_set1_pd(0x1p30), _CMP_LE_OQ);
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    _mm256_storeu_ps(p, _mm256_mask_mov_ps(nan, good, _mm512_cvtpd_ps(x.v)));
}

#else

struct D8 {
    __m256d v;
};
inline constexpr std::int64_t kAngles = 4;
inline D8 all_d(double x) {
    return {_mm256_set1_pd(x)};
}
inline D8 fma(D8 a, D8 b, D8 c) {
    return {_mm256_fmadd_pd(a.v, b.v, c.v)};
}
inline D8 operator*(D8 a, D8 b) {
    return {_mm256_mul_pd(a.v, b.v)};
}
inline D8 operator-(D8 a, D8 b) {
    return {_mm256_sub_pd(a.v, b.v)};
}
inline D8 angles(float position, const float* freqs) {
    return {_mm256_cvtps_pd(_mm_mul_ps(_mm_set1_ps(position), _mm_loadu_ps(freqs)))};
}
template <int kBit>
inline D8 choose(D8 n, D8 yes, D8 no) {
    const __m256i sign = _mm256_slli_epi64(_mm256_castpd_si256(n.v), 63 - kBit);
    return {_mm256_blendv_pd(no.v, yes.v, _mm256_castsi256_pd(sign))};
}
inline D8 negate_d(D8 a) {
    return {_mm256_xor_pd(a.v, _mm256_set1_pd(-0.0))};
}
inline D8 integer_plus_one(D8 n) {
    return {_mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(n.v), _mm256_set1_epi64x(1)))};
}
inline void store_checked(float* p, D8 x, D8 angle) {
    const __m256d size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), angle.v);
    const __m256d good = _mm256_cmp_pd(size, _mm256_set1_pd(0x1p30), _CMP_LE_OQ);
    const __m256d nan = _mm256_set1_pd(__builtin_nan(""));
    _mm_storeu_ps(p, _mm256_cvtpd_ps(_mm256_blendv_pd(nan, x.v, good)));
}

#endif

// Of kAngles angles position · freqs[k]; the sine negated where `inverse`.
inline void sincos(float position, const float* freqs, bool inverse, float* sine, float* cosine) {
    const D8 x = angles(position, freqs);
    const D8 round_shift = all_d(0x1.8p52);
    const D8 shifted = fma(x, all_d(0x1.45f306dc9c883p-1), round_shift);
    const D8 n = shifted - round_shift;
    D8 r = fma(n, all_d(-0x1.921fb54442d18p+0), x);
    r = fma(n, all_d(-0x1.1a62633145c07p-54), r);
    r = fma(n, all_d(0x1.f1976b8p-110), r);
    const D8 t = r * r;
    D8 s = all_d(-1.0 / 1307674368000.0);
    s = fma(s, t, all_d(1.0 / 6227020800.0));
    s = fma(s, t, all_d(-1.0 / 39916800.0));
    s = fma(s, t, all_d(1.0 / 362880.0));
    s = fma(s, t, all_d(-1.0 / 5040.0));
    s = fma(s, t, all_d(1.0 / 120.0));
    s = fma(s, t, all_d(-1.0 / 6.0));
    s = fma(r * t, s, r);
    D8 c = all_d(1.0 / 20922789888000.0);
    c = fma(c, t, all_d(-1.0 / 87178291200.0));
    c = fma(c, t, all_d(1.0 / 479001600.0));
    c = fma(c, t, all_d(-1.0 / 3628800.0));
    c = fma(c, t, all_d(1.0 / 40320.0));
    c = fma(c, t, all_d(-1.0 / 720.0));
    c = fma(c, t, all_d(1.0 / 24.0));
    c = fma(c, t, all_d(-0.5));
    c = fma(c, t, all_d(1.0));
    // Quadrants 0..3 have the sines s, c, -s, -c; the cosine is the sine one quadrant on.
    const D8 next = integer_plus_one(shifted);
    const D8 a = choose<0>(shifted, c, s), b = choose<0>(shifted, s, c);
    const D8 sine_of = choose<1>(shifted, negate_d(a), a);
    store_checked(sine, inverse ? negate_d(sine_of) : sine_of, x);
    store_checked(cosine, choose<1>(next, negate_d(b), b), x);
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
