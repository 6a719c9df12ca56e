// The steps behind math.h (N5), inline, so that loops over them vectorise. Only files compiled with
// FMA instructions include this (CMakeLists.txt); everyone else calls math.h and gets the same
// bits. Each function is a fixed sequence of fp32 (sine and cosine: double) operations without
// libm; a vector back end repeats the sequence lane by lane. No step yields a denormal from normal
// arguments unless the result itself is one, so the bits do not depend on FTZ and DAZ.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace fathom::functions {

inline constexpr float kLn2High = 0x1.62cp-1f;  // 11 bits: its product with an exponent is exact
inline constexpr float kLn2Low = 0x1.217f7ep-12f;
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kExpMin = -87.33f;
inline constexpr float kExpMax = 88.72f;

// 2^n for n in [-126, 127].
inline float power_of_two(std::int32_t n) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

// exp(x) = 2^n · exp(r), n = round(x / ln 2), |r| <= ln(2)/2; exp(r) = 1 + (r + r²·q(r)), q fitted
// to (exp(r) − 1 − r)/r² at the Chebyshev points.
inline float exp(float x) {
    const float inside = x >= kExpMin && x <= kExpMax ? x : 0.0f;
    const float round_shift = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
    const float n = std::fma(inside, kLog2E, round_shift) - round_shift;
    float r = std::fma(n, -kLn2High, inside);
    r = std::fma(n, -kLn2Low, r);
    float q = 0x1.6d110ap-10f;
    q = std::fma(q, r, 0x1.120b6ep-7f);
    q = std::fma(q, r, 0x1.55551ap-5f);
    q = std::fma(q, r, 0x1.5554dcp-3f);
    q = std::fma(q, r, 0.5f);
    const float y = 1.0f + std::fma(r * r, q, r);
    const auto exponent = static_cast<std::int32_t>(n);
    const std::int32_t half = exponent / 2;  // n may be 128: two exact factors
    const float scaled = y * power_of_two(half) * power_of_two(exponent - half);
    if (x > kExpMax) return std::numeric_limits<float>::infinity();
    if (x < kExpMin) return 0.0f;
    return x == x ? scaled : x;
}

// log(1 + x) = k·ln 2 + log(1 + f) + c/u with u = fl(1 + x) = 2^k·(1 + f), c the rounding error of
// u; log(1 + f) = f − f²/2 + f³·p(f), p fitted over [√½ − 1, √2 − 1].
inline float log1p(float x) {
    if (!(x < std::numeric_limits<float>::infinity())) return x;  // +inf and NaN
    if (x < std::numeric_limits<float>::min()) return 0.0f;       // denormals count as zero
    const float u = 1.0f + x;
    const float c = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(u);
    const std::int32_t k = static_cast<std::int32_t>(bits - 0x3f3504f3u) >> 23;
    const float f = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(k) << 23)) - 1.0f;
    float p = 0x1.1d8ea6p-4f;
    p = std::fma(p, f, -0x1.d635bcp-4f);
    p = std::fma(p, f, 0x1.dea282p-4f);
    p = std::fma(p, f, -0x1.fcf4c6p-4f);
    p = std::fma(p, f, 0x1.23d21ap-3f);
    p = std::fma(p, f, -0x1.555b4ap-3f);
    p = std::fma(p, f, 0x1.999d5ap-3f);
    p = std::fma(p, f, -0x1.fffffcp-3f);
    p = std::fma(p, f, 0x1.555554p-2f);
    const float f2 = f * f;
    const float exponent = static_cast<float>(k);
    const float rest = std::fma(-0.5f, f2, f2 * f * p) + std::fma(exponent, kLn2Low, c / u);
    return std::fma(exponent, kLn2High, f + rest);
}

// The exponential is taken of −|x|, so that it never overflows nor its reciprocal underflows.
inline float sigmoid(float x) {
    const float e = exp(x < 0.0f ? x : -x);
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// The form of the reference, with one division. exp(−x) may be infinite: the quotient is then −0,
// as it is for results below the normal range.
inline float silu(float x) {
    return x / (1.0f + exp(-x));
}

inline float softplus(float x) {
    return x > 20.0f ? x : log1p(exp(x));
}

// Taylor polynomials on |r| <= π/4 in double; their error is below 2^-54, far below the final
// rounding to fp32.
inline void sincos(float angle, float* sine, float* cosine) {
    const double x = angle;
    if (!(x >= -0x1p30 && x <= 0x1p30)) {  // no angle of the model comes near it
        *sine = *cosine = std::numeric_limits<float>::quiet_NaN();
        return;
    }
    const double round_shift = 0x1.8p52;
    const double n = std::fma(x, 0x1.45f306dc9c883p-1, round_shift) - round_shift;
    double r = std::fma(n, -0x1.921fb54442d18p+0, x);
    r = std::fma(n, -0x1.1a62633145c07p-54, r);
    r = std::fma(n, 0x1.f1976b8p-110, r);
    const double t = r * r;
    double s = -1.0 / 1307674368000.0;
    s = std::fma(s, t, 1.0 / 6227020800.0);
    s = std::fma(s, t, -1.0 / 39916800.0);
    s = std::fma(s, t, 1.0 / 362880.0);
    s = std::fma(s, t, -1.0 / 5040.0);
    s = std::fma(s, t, 1.0 / 120.0);
    s = std::fma(s, t, -1.0 / 6.0);
    s = std::fma(r * t, s, r);
    double c = 1.0 / 20922789888000.0;
    c = std::fma(c, t, -1.0 / 87178291200.0);
    c = std::fma(c, t, 1.0 / 479001600.0);
    c = std::fma(c, t, -1.0 / 3628800.0);
    c = std::fma(c, t, 1.0 / 40320.0);
    c = std::fma(c, t, -1.0 / 720.0);
    c = std::fma(c, t, 1.0 / 24.0);
    c = std::fma(c, t, -0.5);
    c = std::fma(c, t, 1.0);
    const auto quadrant = static_cast<std::int64_t>(n) & 3;
    const double s_of[4] = {s, c, -s, -c};
    *sine = static_cast<float>(s_of[quadrant]);
    *cosine = static_cast<float>(s_of[(quadrant + 1) & 3]);
}

// Both operations are correctly rounded.
inline float rsqrt(float x) {
    return 1.0f / std::sqrt(x);
}

}  // namespace fathom::functions
