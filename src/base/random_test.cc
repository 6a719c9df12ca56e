#include "base/random.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <vector>

namespace fathom {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers for philox4x32-10, published with the Random123 library (kat_vectors).
TEST(Random, GivesThePublishedPhiloxVectors) {
    struct Case {
        Words counter;
        std::uint32_t key[2];
        Words wanted;
    };
    const Case cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (const Case& c : cases) {
        const RandomKey key = {
            .seed = static_cast<std::uint64_t>(c.key[1]) << 32 | c.key[0],
            .purpose = static_cast<RandomPurpose>(c.counter[3]),
            .index = static_cast<std::uint64_t>(c.counter[1]) << 32 | c.counter[0],
            .block = c.counter[2],
        };
        EXPECT_EQ(random_bits(key), c.wanted);
    }
}

TEST(Random, EveryFieldOfTheKeyChangesAboutHalfTheBits) {
    EXPECT_TRUE(rc::check([] {
        const RandomKey key = {.seed = *rc::gen::arbitrary<std::uint64_t>(),
                               .purpose = RandomPurpose::sample_token,
                               .index = *rc::gen::arbitrary<std::uint64_t>(),
                               .block = *rc::gen::arbitrary<std::uint32_t>()};
        const Words base = random_bits(key);
        RC_ASSERT(random_bits(key) == base);
        RandomKey others[4] = {key, key, key, key};
        others[0].seed ^= std::uint64_t{1} << *rc::gen::inRange(0, 64);
        others[1].purpose = RandomPurpose::accept_draft;
        others[2].index ^= std::uint64_t{1} << *rc::gen::inRange(0, 64);
        others[3].block ^= std::uint32_t{1} << *rc::gen::inRange(0, 32);
        for (const RandomKey& other : others) {
            const Words words = random_bits(other);
            int changed = 0;
            for (std::size_t i = 0; i < 4; ++i)
                changed += std::popcount(words[i] ^ base[i]);
            RC_ASSERT(changed > 20);  // of 128; fewer has probability 1e-15
            RC_ASSERT(changed < 108);
        }
    }));
}

TEST(Random, StreamIsTheSequenceOfIndices) {
    RandomStream stream(42);
    for (std::uint64_t i = 0; i < 100; ++i) {
        const RandomKey key = {.seed = 42, .purpose = RandomPurpose::test_data, .index = i};
        const Words words = random_bits(key);
        EXPECT_EQ(stream.next_u64(), static_cast<std::uint64_t>(words[1]) << 32 | words[0]);
    }
    RandomStream uniform(42);
    EXPECT_EQ(uniform.next_uniform(),
              random_uniform({.seed = 42, .purpose = RandomPurpose::test_data}));
}

TEST(Random, UniformCoversTheUnitIntervalEvenly) {
    RandomStream stream(7);
    constexpr int kDraws = 100'000, kBins = 20;
    std::vector<int> bins(kBins);
    double sum = 0;
    for (int i = 0; i < kDraws; ++i) {
        const double u = stream.next_uniform();
        ASSERT_GE(u, 0.0);
        ASSERT_LT(u, 1.0);
        ++bins[static_cast<std::size_t>(u * kBins)];
        sum += u;
    }
    double chi2 = 0;
    constexpr double kExpected = double{kDraws} / kBins;
    for (const int count : bins)
        chi2 += std::pow(count - kExpected, 2) / kExpected;
    EXPECT_LT(chi2, 50);  // 19 degrees of freedom
    EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
}

TEST(Random, BelowStaysBelow) {
    RandomStream stream(8);
    for (const std::uint64_t bound : {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{1000},
                                      (std::uint64_t{1} << 63) + 1, ~std::uint64_t{0}})
        for (int i = 0; i < 100; ++i)
            EXPECT_LT(stream.next_below(bound), bound);
}

TEST(Random, NormalHasTheMomentsOfANormal) {
    RandomStream stream(9);
    constexpr int kDraws = 200'000;
    double sum = 0, sum2 = 0, sum4 = 0;
    for (int i = 0; i < kDraws; ++i) {
        const double x = stream.next_normal();
        ASSERT_TRUE(std::isfinite(x));
        sum += x;
        sum2 += x * x;
        sum4 += x * x * x * x;
    }
    EXPECT_NEAR(sum / kDraws, 0.0, 0.01);
    EXPECT_NEAR(sum2 / kDraws, 1.0, 0.015);
    EXPECT_NEAR(sum4 / kDraws, 3.0, 0.15);
}

// A pinned value: generated data must be the same on every machine.
TEST(Random, NormalIsReproducible) {
    RandomStream stream(1);
    double sum = 0;
    for (int i = 0; i < 1000; ++i)
        sum += stream.next_normal();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(sum), 0xc00bc7338d88ca5cu);
}

}  // namespace
}  // namespace fathom
