// The functions of math.h against the C library in double, over dense sweeps of fp32 arguments.
#include "kernels/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "base/compute_pool.h"

namespace fathom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Error in units of the last place of the exact value.
double ulp_error(float got, double exact) {
    if (got == exact) return 0;
    int exponent = 0;
    std::frexp(exact, &exponent);
    return std::fabs(static_cast<double>(got) - exact) /
           std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// Worst error over every `step`-th fp32 number in [low, high] (same sign, by bit pattern).
double worst(float low, float high, std::uint32_t step, const std::function<float(float)>& got,
             const std::function<double(double)>& exact) {
    std::uint32_t a = std::bit_cast<std::uint32_t>(low), b = std::bit_cast<std::uint32_t>(high);
    if (a > b) std::swap(a, b);
    double result = 0;
    for (std::uint64_t u = a; u <= b; u += step) {
        const float x = std::bit_cast<float>(static_cast<std::uint32_t>(u));
        result = std::max(result, ulp_error(got(x), exact(x)));
    }
    return result;
}

TEST(Math, ExpWithinOneUlp) {
    const auto exact = [](double x) { return std::exp(x); };
    EXPECT_LE(worst(1e-30f, 88.72f, 997, math_exp, exact), 1.0);
    EXPECT_LE(worst(-1e-30f, -87.33f, 997, math_exp, exact), 1.0);
    EXPECT_LE(worst(0.25f, 1.0f, 7, math_exp, exact), 1.0);
    EXPECT_LE(worst(-0.25f, -1.0f, 7, math_exp, exact), 1.0);
}

TEST(Math, ExpSaturatesAtItsStatedLimits) {
    EXPECT_EQ(math_exp(0.0f), 1.0f);
    EXPECT_EQ(math_exp(-0.0f), 1.0f);
    EXPECT_EQ(math_exp(std::nextafter(-87.33f, -100.0f)), 0.0f);
    EXPECT_GE(math_exp(-87.33f), std::numeric_limits<float>::min());
    EXPECT_EQ(math_exp(-kInfinity), 0.0f);
    EXPECT_EQ(math_exp(-1e30f), 0.0f);
    EXPECT_LT(math_exp(88.72f), kInfinity);
    EXPECT_EQ(math_exp(std::nextafter(88.72f, 100.0f)), kInfinity);
    EXPECT_EQ(math_exp(kInfinity), kInfinity);
    EXPECT_TRUE(std::isnan(math_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Math, Log1pWithinTwoUlp) {
    const auto exact = [](double x) { return std::log1p(x); };
    EXPECT_LE(worst(std::numeric_limits<float>::min(), 3e38f, 997, math_log1p, exact), 2.0);
    EXPECT_LE(worst(0.01f, 8.0f, 13, math_log1p, exact), 2.0);
    EXPECT_EQ(math_log1p(0.0f), 0.0f);
    EXPECT_EQ(math_log1p(1e-40f), 0.0f);
    EXPECT_EQ(math_log1p(kInfinity), kInfinity);
    EXPECT_TRUE(std::isnan(math_log1p(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Math, SigmoidAndItsRelatives) {
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    const auto silu = [&](double x) { return x * sigmoid(x); };
    const auto softplus = [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); };
    EXPECT_LE(worst(1e-6f, 100.0f, 997, math_sigmoid, sigmoid), 2.5);
    EXPECT_LE(worst(-1e-6f, -87.0f, 997, math_sigmoid, sigmoid), 2.5);
    EXPECT_LE(worst(1e-6f, 1e4f, 997, math_silu, silu), 3.5);
    EXPECT_LE(worst(-1e-6f, -80.0f, 997, math_silu, silu), 3.5);
    EXPECT_LE(worst(1e-6f, 100.0f, 997, math_softplus, softplus), 3.0);
    EXPECT_LE(worst(-1e-6f, -80.0f, 997, math_softplus, softplus), 3.0);
    EXPECT_EQ(math_sigmoid(-1e30f), 0.0f);
    EXPECT_EQ(math_sigmoid(1e30f), 1.0f);
    EXPECT_EQ(math_sigmoid(0.0f), 0.5f);
    EXPECT_EQ(math_softplus(std::nextafter(20.0f, 21.0f)), std::nextafter(20.0f, 21.0f));
}

TEST(Math, SineAndCosineAreCorrectlyRoundedButForRareBits) {
    std::int64_t count = 0, wrong = 0;
    double worst_error = 0;
    for (std::uint64_t u = std::bit_cast<std::uint32_t>(1e-6f);
         u <= std::bit_cast<std::uint32_t>(0x1p23f); u += 383) {
        const float x = std::bit_cast<float>(static_cast<std::uint32_t>(u));
        float s = 0, c = 0;
        math_sincos(x, &s, &c);
        const double sine = std::sin(static_cast<double>(x)),
                     cosine = std::cos(static_cast<double>(x));
        count += 2;
        wrong += s != static_cast<float>(sine);
        wrong += c != static_cast<float>(cosine);
        worst_error = std::max({worst_error, ulp_error(s, sine), ulp_error(c, cosine)});
        float back_s = 0, back_c = 0;
        math_sincos(-x, &back_s, &back_c);
        EXPECT_EQ(back_s, -s);
        EXPECT_EQ(back_c, c);
    }
    EXPECT_LE(worst_error, 0.51);
    EXPECT_LE(wrong, count / 100000) << "of " << count;
}

TEST(Math, BitsDoNotDependOnFlushingDenormals) {
    for (std::uint64_t u = 0; u < 0x1'0000'0000u; u += 65521) {
        const float x = std::bit_cast<float>(static_cast<std::uint32_t>(u));
        if (!(std::fabs(x) >= std::numeric_limits<float>::min())) continue;
        const auto all = [x] {
            float s = 0, c = 0;
            math_sincos(x, &s, &c);
            return std::array<float, 6>{
                math_exp(x), math_log1p(std::fabs(x)), math_sigmoid(x), math_softplus(x), s, c};
        };
        const auto plain = all();
        const auto flushed = [&] {
            const FlushDenormals flush;
            return all();
        }();
        for (std::size_t i = 0; i < plain.size(); ++i) {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(plain[i]),
                      std::bit_cast<std::uint32_t>(flushed[i]))
                << "function " << i << " of " << x;
        }
    }
}

}  // namespace
}  // namespace fathom
