#include "base/formats.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "base/compute_pool.h"

namespace fathom {
namespace {

std::uint32_t bits(float x) {
    return std::bit_cast<std::uint32_t>(x);
}

float any_float() {
    return std::bit_cast<float>(*rc::gen::arbitrary<std::uint32_t>());
}

// Mostly inside the formats' ranges, where the rounding happens.
float small_float() {
    const auto u = *rc::gen::arbitrary<std::uint32_t>();
    const std::uint32_t exponent = 127 - 13 + (u >> 8) % 24;
    return std::bit_cast<float>((u & 0x807fffffu) | exponent << 23);
}

TEST(Formats, EveryE4m3CodeComesBack) {
    for (int code = 0; code < 256; ++code) {
        const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
        if ((code & 0x7f) == 0x7f)
            EXPECT_TRUE(std::isnan(value)) << code;
        else
            EXPECT_EQ(e4m3_from_float(value), code);
    }
    EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
    EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
}

TEST(Formats, EveryE2m1CodeComesBack) {
    for (int code = 0; code < 16; ++code)
        EXPECT_EQ(e2m1_from_float(e2m1_to_float(static_cast<std::uint8_t>(code))), code);
    EXPECT_EQ(bits(e2m1_to_float(0xf8)), bits(-0.0f)) << "only the low four bits count";
}

TEST(Formats, RoundsTiesToEvenCode) {
    struct Case {
        float x;
        int e2m1;
    };
    for (const Case& c :
         {Case{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4}, {2.5f, 4}, {3.5f, 6}, {5.0f, 6}}) {
        EXPECT_EQ(e2m1_from_float(c.x), c.e2m1) << c.x;
        EXPECT_EQ(e2m1_from_float(-c.x), c.e2m1 | 8) << -c.x;
    }
    for (int code = 0; code < 0x7e; ++code) {
        const float below = e4m3_to_float(static_cast<std::uint8_t>(code));
        const float above = e4m3_to_float(static_cast<std::uint8_t>(code + 1));
        const float tie = below + (above - below) / 2;
        EXPECT_EQ(e4m3_from_float(tie), (code + 1) & ~1) << tie;
        EXPECT_EQ(e4m3_from_float(std::nextafter(tie, 0.0f)), code) << tie;
        EXPECT_EQ(e4m3_from_float(std::nextafter(tie, 1e9f)), code + 1) << tie;
    }
}

TEST(Formats, SaturatesAndMarksNan) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    for (const float x : {448.0f, 464.0f, 480.0f, 1e30f, kInf}) {
        EXPECT_EQ(e4m3_from_float(x), 0x7e);
        EXPECT_EQ(e4m3_from_float(-x), 0xfe);
        EXPECT_EQ(e2m1_from_float(x), 7);
        EXPECT_EQ(e2m1_from_float(-x), 15);
    }
    EXPECT_EQ(e4m3_from_float(kNan), 0x7f);
    EXPECT_EQ(e4m3_from_float(-kNan), 0x7f);
    EXPECT_EQ(bf16_from_float(kInf).bits, 0x7f80);
    EXPECT_EQ(bf16_from_float(std::numeric_limits<float>::max()).bits, 0x7f80);
    EXPECT_TRUE(std::isnan(round_to_bf16(kNan)));
    EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7f800001u))));
}

TEST(Formats, Ue8m0RoundsUp) {
    EXPECT_EQ(ue8m0_from_float(1.0f), 127);
    EXPECT_EQ(ue8m0_from_float(std::nextafter(1.0f, 2.0f)), 128);
    EXPECT_EQ(ue8m0_from_float(std::nextafter(1.0f, 0.0f)), 127);
    EXPECT_EQ(ue8m0_from_float(0x1p-126f), 1);
    EXPECT_EQ(bits(ue8m0_to_float(0)), 0x00400000u);
    EXPECT_TRUE(std::isnan(ue8m0_to_float(255)));
    for (int byte = 1; byte < 255; ++byte)
        EXPECT_EQ(ue8m0_from_float(ue8m0_to_float(static_cast<std::uint8_t>(byte))), byte);
}

TEST(Formats, EncodersChooseTheNearestValue) {
    EXPECT_TRUE(rc::check([] {
        const float x = *rc::gen::arbitrary<bool>() ? small_float() : any_float();
        RC_PRE(!std::isnan(x));
        const auto distance = [&](float value, float max) {
            return std::abs(double{std::clamp(x, -max, max)} - double{value});
        };
        const double e4m3 = distance(e4m3_to_float(e4m3_from_float(x)), 448.0f);
        for (int code = 0; code < 256; ++code)
            if ((code & 0x7f) != 0x7f)
                RC_ASSERT(e4m3 <= distance(e4m3_to_float(static_cast<std::uint8_t>(code)), 448.0f));
        const double e2m1 = distance(e2m1_to_float(e2m1_from_float(x)), 6.0f);
        for (int code = 0; code < 16; ++code)
            RC_ASSERT(e2m1 <= distance(e2m1_to_float(static_cast<std::uint8_t>(code)), 6.0f));
        RC_ASSERT(std::signbit(e4m3_to_float(e4m3_from_float(x))) == std::signbit(x));
        RC_ASSERT(std::signbit(e2m1_to_float(e2m1_from_float(x))) == std::signbit(x));
    }));
}

TEST(Formats, Bf16RoundsToTheNearestEven) {
    EXPECT_TRUE(rc::check([] {
        const float x = any_float();
        RC_PRE(std::isfinite(x));
        const std::uint32_t u = bits(x);
        // The two neighbours as exact doubles; infinity counts as the next power of two.
        const auto value = [](std::uint32_t upper) {
            const double magnitude = (upper & 0x7fffu) == 0x7f80u
                                         ? 0x1p128
                                         : double{std::bit_cast<float>((upper & 0x7fffu) << 16)};
            return (upper & 0x8000u) != 0 ? -magnitude : magnitude;
        };
        const std::uint32_t low = u >> 16, high = low + 1;
        const double to_low = std::abs(double{x} - value(low));
        const double to_high = std::abs(double{x} - value(high));
        const std::uint32_t wanted =
            to_low < to_high || (to_low == to_high && low % 2 == 0) ? low : high;
        RC_ASSERT(bf16_from_float(x).bits == wanted);
        RC_ASSERT(bf16_from_float(round_to_bf16(x)).bits == wanted);
    }));
}

// ----------------------------------------------------------------------------------------- groups

// The three quantisers behind one shape.
struct Quantiser {
    const char* name;
    int group, codes_per_byte;
    void (*quantise)(std::span<const float>, std::span<std::uint8_t>, std::span<std::uint8_t>);
    void (*dequantise)(std::span<const std::uint8_t>, std::span<const std::uint8_t>,
                       std::span<float>);
};
const Quantiser kQuantisers[] = {
    {"q8", kQ8Group, 1, quantise_q8, dequantise_q8},
    {"main_kv", kMainKvGroup, 2, quantise_main_kv, dequantise_main_kv},
    {"index", kIndexGroup, 2, quantise_index, dequantise_index},
};

struct Quantised {
    std::vector<std::uint8_t> codes, scales;
    std::vector<float> values;
    friend bool operator==(const Quantised& a, const Quantised& b) {
        return a.codes == b.codes && a.scales == b.scales &&
               std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(),
                          [](float x, float y) { return bits(x) == bits(y); });
    }
};

Quantised round_trip(const Quantiser& q, const std::vector<float>& x) {
    Quantised out;
    out.codes.resize(x.size() / static_cast<std::size_t>(q.codes_per_byte));
    out.scales.resize(x.size() / static_cast<std::size_t>(q.group));
    out.values.resize(x.size());
    q.quantise(x, out.codes, out.scales);
    q.dequantise(out.codes, out.scales, out.values);
    return out;
}

std::vector<float> filled(const Quantiser& q, std::initializer_list<float> first) {
    std::vector<float> x(first);
    x.resize(static_cast<std::size_t>(q.group));
    return x;
}

TEST(GroupQuantisers, GiveTheSpecificationsExamples) {
    struct Scale {
        float amax;
        int exponent;
    };
    for (const Scale& c : {Scale{448, 0},
                           {449, 1},
                           {224, -1},
                           {300, 0},
                           {1e-4f, -22},
                           {3, -7},
                           {0, -22},
                           {1e-30f, -22}})
        EXPECT_EQ(round_trip(kQuantisers[0], filled(kQuantisers[0], {c.amax})).scales[0],
                  127 + c.exponent)
            << c.amax;
    const Quantised q8 = round_trip(kQuantisers[0], filled(kQuantisers[0], {3, 0.01f, -0.3f}));
    EXPECT_EQ(q8.values[1], 1.25f / 128);
    EXPECT_EQ(q8.values[2], -40.0f / 128);

    const Quantised kv = round_trip(kQuantisers[1], filled(kQuantisers[1], {7, 1, -3.5f}));
    EXPECT_EQ(e4m3_to_float(kv.scales[0]), 1.125f);
    EXPECT_EQ(kv.values[0], 6 * 1.125f);
    EXPECT_EQ(kv.values[1], 1.125f);
    EXPECT_EQ(kv.values[2], -3 * 1.125f);
    EXPECT_EQ(kv.codes[0], 0x27) << "element 0 in the low nibble";

    const Quantised index = round_trip(kQuantisers[2], filled(kQuantisers[2], {7, 1, -3.5f}));
    EXPECT_EQ(index.scales[0], 128);
    EXPECT_EQ(index.values[0], 8.0f);
    EXPECT_EQ(index.values[1], 1.0f);
    EXPECT_EQ(index.values[2], -4.0f);

    EXPECT_EQ(e4m3_to_float(round_trip(kQuantisers[1], filled(kQuantisers[1], {})).scales[0]),
              0x1p-9f);
    EXPECT_EQ(round_trip(kQuantisers[2], filled(kQuantisers[2], {})).scales[0], 1);
}

TEST(GroupQuantisers, RoundTripIsIdempotentAndExactInBf16WhateverMxcsrSays) {
    for (const Quantiser& q : kQuantisers) {
        SCOPED_TRACE(q.name);
        EXPECT_TRUE(rc::check([&] {
            // Groups of one magnitude, denormals included, with some spread below it.
            const int top = *rc::gen::inRange(0, 254);
            std::vector<float> x;
            for (int i = 0; i < 2 * q.group; ++i) {
                const auto u = *rc::gen::arbitrary<std::uint32_t>();
                const int exponent = std::max(0, top - static_cast<int>((u >> 8) % 12));
                x.push_back(std::bit_cast<float>((u & 0x807f0000u) |
                                                 static_cast<std::uint32_t>(exponent) << 23));
            }
            const Quantised plain = round_trip(q, x);
            for (const float value : plain.values)
                RC_ASSERT(bits(value) == bits(round_to_bf16(value)));
            RC_ASSERT(round_trip(q, plain.values).values == plain.values);
            const FlushDenormals flush;
            RC_ASSERT(round_trip(q, x) == plain);
        }));
    }
}

TEST(GroupQuantisers, DequantiseEveryCodeAndScaleExactly) {
    for (const bool flushed : {false, true}) {
        for (const Quantiser* q : {&kQuantisers[0], &kQuantisers[2]}) {
            for (int scale = 0; scale < 255; ++scale) {
                for (int code = 0;
                     code < (q->group == kQ8Group && q->codes_per_byte == 1 ? 256 : 16); ++code) {
                    const auto byte = static_cast<std::uint8_t>(code);
                    const float element =
                        q->codes_per_byte == 1 ? e4m3_to_float(byte) : e2m1_to_float(byte);
                    const float wanted =
                        static_cast<float>(std::ldexp(double{element}, scale - 127));
                    const std::vector<std::uint8_t> codes(
                        static_cast<std::size_t>(q->group / q->codes_per_byte), byte);
                    const std::vector<std::uint8_t> scales = {static_cast<std::uint8_t>(scale)};
                    std::vector<float> values(static_cast<std::size_t>(q->group));
                    {
                        std::optional<FlushDenormals> flush;
                        if (flushed) flush.emplace();
                        q->dequantise(codes, scales, values);
                    }
                    if ((bits(wanted) & 0x7fffffffu) > 0x7f800000u)
                        ASSERT_GT(bits(values[0]) & 0x7fffffffu, 0x7f800000u);
                    else
                        ASSERT_EQ(bits(values[0]), bits(wanted)) << scale << " " << code;
                }
            }
        }
    }
}

TEST(GroupQuantisers, CarryNanThroughAndSaturateInfinity) {
    for (const Quantiser& q : kQuantisers) {
        SCOPED_TRACE(q.name);
        const float nan = std::numeric_limits<float>::quiet_NaN();
        const Quantised broken = round_trip(q, filled(q, {1, nan, 2}));
        for (const float value : broken.values)
            EXPECT_TRUE(std::isnan(value));
    }
    const float inf = std::numeric_limits<float>::infinity();
    const Quantised kv = round_trip(kQuantisers[1], filled(kQuantisers[1], {-inf}));
    EXPECT_EQ(kv.values[0], -6.0f * 448.0f);
}

}  // namespace
}  // namespace fathom
