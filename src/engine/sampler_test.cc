#include "engine/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "kernels/math.h"

namespace fathom {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams params(double temperature, std::int64_t top_k = 0, double top_p = 1.0,
                      double min_p = 0.0, std::uint64_t seed = 1) {
    return {
        .temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p, .seed = seed};
}

// The same rule with a full sort and nothing clever.
TokenId slow_sample(const std::vector<float>& logits, const SamplingParams& p,
                    std::int64_t position) {
    std::vector<TokenId> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    const double largest = static_cast<double>(logits[static_cast<std::size_t>(order[0])]);
    const auto weight = [&](TokenId t) {
        const double x = static_cast<double>(logits[static_cast<std::size_t>(t)]);
        return static_cast<double>(math_exp(static_cast<float>((x - largest) / p.temperature)));
    };
    double total = 0;
    std::size_t positive = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        total += weight(static_cast<TokenId>(i));
        positive += weight(static_cast<TokenId>(i)) > 0 ? 1 : 0;
    }
    double before = 0;
    std::vector<TokenId> kept;
    for (std::size_t rank = 0; rank < order.size(); ++rank) {
        const double w = weight(order[rank]);
        const bool in_k = p.top_k == 0 || static_cast<std::int64_t>(rank) < p.top_k;
        const bool in_p = p.top_p >= 1.0 || before <= p.top_p * total;
        if (in_k && in_p && w >= p.min_p && w > 0) kept.push_back(order[rank]);
        before += w;
    }
    double mass = 0;
    for (const TokenId t : kept)
        mass += weight(t);
    if (kept.size() == positive) mass = total;
    const double u =
        random_uniform({.seed = p.seed, .index = static_cast<std::uint64_t>(position), .block = 0});
    double sum = 0;
    for (const TokenId t : kept) {
        sum += weight(t);
        if (sum > u * mass) return t;
    }
    return kept.back();
}

rc::Gen<std::vector<float>> logits_with_ties() {
    return rc::gen::nonEmpty(rc::gen::container<std::vector<float>>(
        rc::gen::map(rc::gen::inRange(-64, 65), [](int x) { return static_cast<float>(x) / 8; })));
}

TEST(Sampler, PicksTheLargestLogitAtTemperatureZeroTiesToTheLowerId) {
    const std::vector<float> logits = {-1, 3, 0, 3, 2};
    EXPECT_EQ(sample_token(logits, params(0), 5), 1);
    EXPECT_EQ(sample_token(logits, params(-0.0), 5), 1);
    const std::vector<float> zeros = {-0.0f, 0.0f, -1};
    EXPECT_EQ(sample_token(zeros, params(0), 5), 0);
}

TEST(Sampler, DamagedLogitsGiveADefinedToken) {
    struct Case {
        std::vector<float> logits;
        TokenId token;
    };
    const std::vector<Case> cases = {
        {{-kInf, -kInf, -kInf}, 0},
        {{kNan, kNan}, 0},
        {{kNan, -kInf, kNan}, 0},
        {{kNan, 1, kNan}, 1},
        {{-kInf, -kInf, -2}, 2},
        {{5, kInf, kInf, kNan}, 1},
        {{7}, 0},
        {{3e38f, -3e38f, kNan}, 0},
    };
    for (const Case& c : cases) {
        for (const double temperature : {0.0, 1e-310, 0.5, 2.0}) {
            for (std::int64_t position = 0; position < 20; ++position)
                EXPECT_EQ(sample_token(c.logits, params(temperature), position), c.token)
                    << "temperature " << temperature;
        }
    }
}

TEST(Sampler, TopKOneAndTinyTopPAndMinPOneEqualGreedy) {
    EXPECT_TRUE(rc::check([] {
        const auto logits = *logits_with_ties();
        const auto position = *rc::gen::inRange<std::int64_t>(0, 1000);
        const TokenId greedy = sample_token(logits, params(0), position);
        RC_ASSERT(sample_token(logits, params(1.3, 1), position) == greedy);
        RC_ASSERT(sample_token(logits, params(0.7, 0, 1e-12), position) == greedy);
        const TokenId drawn = sample_token(logits, params(1, 0, 1, 1.0), position);
        RC_ASSERT(logits[static_cast<std::size_t>(drawn)] ==
                  logits[static_cast<std::size_t>(greedy)]);
    }));
}

TEST(Sampler, EqualsAFullSort) {
    EXPECT_TRUE(rc::check([] {
        const auto logits = *logits_with_ties();
        SamplingParams p;
        p.temperature = *rc::gen::element(0.05, 0.5, 1.0, 2.0);
        p.top_k = *rc::gen::inRange<std::int64_t>(0, 12);
        p.top_p = *rc::gen::element(1.0, 0.99, 0.9, 0.5, 0.1, 1e-9);
        p.min_p = *rc::gen::element(0.0, 0.001, 0.1, 0.9, 1.0);
        p.seed = *rc::gen::arbitrary<std::uint64_t>();
        const auto position = *rc::gen::inRange<std::int64_t>(0, 1 << 20);
        RC_ASSERT(sample_token(logits, p, position) == slow_sample(logits, p, position));
    }));
}

TEST(Sampler, EqualsAFullSortOnALargeVocabulary) {
    RandomStream random(11);
    std::vector<float> logits(20000);
    for (float& x : logits)
        x = static_cast<float>(random.next_normal());
    for (std::int64_t position = 0; position < 8; ++position) {
        for (const SamplingParams& p :
             {params(1), params(1, 3000), params(0.6, 0, 0.95), params(2, 0, 0.9999, 1e-4)})
            EXPECT_EQ(sample_token(logits, p, position), slow_sample(logits, p, position));
    }
}

TEST(Sampler, FollowsTheDistribution) {
    const std::vector<double> probabilities = {0.3, 0.2, 0.15, 0.15, 0.1, 0.05, 0.03, 0.02};
    std::vector<float> logits;
    for (const double p : probabilities)
        logits.push_back(static_cast<float>(2.0 * std::log(p)));  // tempered back by T = 2
    constexpr int kDraws = 40000;
    std::vector<int> counts(probabilities.size());
    for (int i = 0; i < kDraws; ++i)
        ++counts[static_cast<std::size_t>(sample_token(logits, params(2.0, 0, 1, 0, 99), i))];
    double chi_square = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const double expected = kDraws * probabilities[i];
        chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    EXPECT_LT(chi_square, 24.3);  // 99.9 % of 7 degrees of freedom
}

TEST(Sampler, CutOffTokensAreNeverDrawn) {
    // Masses .5 .25 .125 .125: top-p 0.6 keeps two, top-k 3 three, min-p 0.4 two.
    const std::vector<float> logits = {std::log(0.125f), std::log(0.5f), std::log(0.25f),
                                       std::log(0.125f)};
    std::vector<std::vector<int>> seen(3, std::vector<int>(4));
    for (std::int64_t i = 0; i < 500; ++i) {
        ++seen[0][static_cast<std::size_t>(sample_token(logits, params(1, 0, 0.6), i))];
        ++seen[1][static_cast<std::size_t>(sample_token(logits, params(1, 3), i))];
        ++seen[2][static_cast<std::size_t>(sample_token(logits, params(1, 0, 1, 0.4), i))];
    }
    EXPECT_TRUE(seen[0][1] > 0 && seen[0][2] > 0 && seen[0][0] == 0 && seen[0][3] == 0);
    EXPECT_TRUE(seen[1][1] > 0 && seen[1][2] > 0 && seen[1][0] > 0 && seen[1][3] == 0);
    EXPECT_TRUE(seen[2][1] > 0 && seen[2][2] > 0 && seen[2][0] == 0 && seen[2][3] == 0);
}

TEST(Sampler, DrawDependsOnSeedPositionAndBlock) {
    const std::vector<float> logits(1000, 0.0f);
    const TokenId base = sample_token(logits, params(1, 0, 1, 0, 5), 77);
    EXPECT_EQ(sample_token(logits, params(1, 0, 1, 0, 5), 77), base);
    EXPECT_NE(sample_token(logits, params(1, 0, 1, 0, 6), 77), base);
    EXPECT_NE(sample_token(logits, params(1, 0, 1, 0, 5), 78), base);
    EXPECT_NE(sample_token(logits, params(1, 0, 1, 0, 5), 77, 1), base);
}

TEST(Sampler, RefusesValuesOutOfRange) {
    struct Case {
        SamplingParams params;
        const char* message;
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<Case> cases = {
        {params(-0.1), "temperature is -0.1; it must be within [0, 2]"},
        {params(2.5), "temperature is 2.5; it must be within [0, 2]"},
        {params(nan), "temperature is nan; it must be within [0, 2]"},
        {params(1, -1), "top_k is -1; it must be 0 (off) or positive"},
        {params(1, 0, 0.0), "top_p is 0; it must be within (0, 1]"},
        {params(1, 0, 1.5), "top_p is 1.5; it must be within (0, 1]"},
        {params(1, 0, nan), "top_p is nan; it must be within (0, 1]"},
        {params(1, 0, 1, -0.5), "min_p is -0.5; it must be within [0, 1]"},
        {params(1, 0, 1, 1.1), "min_p is 1.1; it must be within [0, 1]"},
    };
    for (const Case& c : cases) {
        const Status status = validate_sampling(c.params);
        EXPECT_EQ(status.code(), StatusCode::invalid_argument);
        EXPECT_EQ(status.message(), c.message);
    }
    EXPECT_TRUE(validate_sampling(params(0)).ok());
    EXPECT_TRUE(validate_sampling(params(2, 1 << 30, 1e-9, 1)).ok());
}

}  // namespace
}  // namespace fathom
