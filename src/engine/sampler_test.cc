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

SampledToken sampled(const std::vector<float>& logits, const SamplingParams& p,
                     const TokenHistory& history, std::int64_t position,
                     const std::vector<TokenId>& stops = {}, std::uint32_t block = 0) {
    SamplerWorkspace workspace;
    return sample_token({.logits = logits,
                         .params = p,
                         .history = history,
                         .stop_tokens = stops,
                         .position = position,
                         .block = block},
                        workspace);
}

TokenId draw(const std::vector<float>& logits, const SamplingParams& p, std::int64_t position,
             std::uint32_t block = 0) {
    return sampled(logits, p, TokenHistory(p, {}), position, {}, block).token;
}

// The rules of sampler.h with a full sort and nothing clever.
struct Slow {
    std::vector<float> logits;  // edited
    std::vector<TokenId> order;
    std::vector<double> masses;  // by id
    std::vector<bool> kept;      // by id
    double kept_mass = 0;
    TokenId token = 0;

    float distance(TokenId id) const {
        return logits[static_cast<std::size_t>(id)] - logits[static_cast<std::size_t>(order[0])];
    }
};

double exact_mass(float z) {
    return std::nearbyint(std::ldexp(static_cast<double>(math_exp(z)), 35)) * 0x1p-35;
}

std::vector<float> slow_edit(std::vector<float> logits, const SamplingParams& p,
                             const std::vector<TokenId>& prompt, const std::vector<TokenId>& output,
                             const std::vector<TokenId>& stops) {
    for (const LogitBias& entry : p.logit_bias)
        logits[static_cast<std::size_t>(entry.id)] += entry.bias;
    const auto r = static_cast<float>(p.repetition_penalty);
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const auto id = static_cast<TokenId>(i);
        const auto times = std::count(output.begin(), output.end(), id);
        if (times + std::count(prompt.begin(), prompt.end(), id) > 0)
            logits[i] = logits[i] > 0 ? logits[i] / r : logits[i] * r;
        logits[i] -= static_cast<float>(p.frequency_penalty) * static_cast<float>(times);
        if (times > 0) logits[i] -= static_cast<float>(p.presence_penalty);
        const auto& allowed = p.allowed_tokens;
        if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), id) == allowed.end())
            logits[i] = -kInf;
        if (static_cast<std::int64_t>(output.size()) < p.min_tokens &&
            std::find(stops.begin(), stops.end(), id) != stops.end())
            logits[i] = -kInf;
    }
    return logits;
}

Slow slow_sample(const std::vector<float>& logits, const SamplingParams& p, std::int64_t position) {
    Slow slow;
    slow.logits = logits;
    slow.order.resize(logits.size());
    std::iota(slow.order.begin(), slow.order.end(), 0);
    std::stable_sort(slow.order.begin(), slow.order.end(), [&](TokenId a, TokenId b) {
        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    double total = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        slow.masses.push_back(exact_mass(slow.distance(static_cast<TokenId>(i)) *
                                         (1.0f / static_cast<float>(p.temperature))));
        total += slow.masses.back();
    }
    slow.kept.resize(logits.size());
    double before = 0;
    for (std::size_t rank = 0; rank < slow.order.size(); ++rank) {
        const auto id = static_cast<std::size_t>(slow.order[rank]);
        const bool in_k = p.top_k == 0 || static_cast<std::int64_t>(rank) < p.top_k;
        const bool in_p = p.top_p >= 1.0 || before <= p.top_p * total;
        slow.kept[id] = in_k && in_p && slow.masses[id] >= p.min_p;
        if (slow.kept[id]) slow.kept_mass += slow.masses[id];
        before += slow.masses[id];
    }
    const double u =
        random_uniform({.seed = p.seed, .index = static_cast<std::uint64_t>(position)});
    double sum = 0;
    for (std::size_t id = 0; id < logits.size(); ++id) {
        if (slow.kept[id]) sum += slow.masses[id];
        if (sum <= u * slow.kept_mass) continue;
        slow.token = static_cast<TokenId>(id);
        break;
    }
    return slow;
}

float slow_log(double mass) {
    return math_log1p(static_cast<float>(mass - 1.0));
}

rc::Gen<std::vector<float>> logits_with_ties() {
    return rc::gen::nonEmpty(rc::gen::container<std::vector<float>>(
        rc::gen::map(rc::gen::inRange(-64, 65), [](int x) { return static_cast<float>(x) / 8; })));
}

TEST(Sampler, PicksTheLargestLogitAtTemperatureZeroTiesToTheLowerId) {
    const std::vector<float> logits = {-1, 3, 0, 3, 2};
    EXPECT_EQ(draw(logits, params(0), 5), 1);
    EXPECT_EQ(draw(logits, params(-0.0), 5), 1);
    const std::vector<float> zeros = {-0.0f, 0.0f, -1};
    EXPECT_EQ(draw(zeros, params(0), 5), 0);
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
                EXPECT_EQ(draw(c.logits, params(temperature), position), c.token)
                    << "temperature " << temperature;
        }
    }
}

TEST(Sampler, TopKOneAndTinyTopPAndMinPOneEqualGreedy) {
    EXPECT_TRUE(rc::check([] {
        const auto logits = *logits_with_ties();
        const auto position = *rc::gen::inRange<std::int64_t>(0, 1000);
        const TokenId greedy = draw(logits, params(0), position);
        RC_ASSERT(draw(logits, params(1.3, 1), position) == greedy);
        RC_ASSERT(draw(logits, params(0.7, 0, 1e-12), position) == greedy);
        const TokenId drawn = draw(logits, params(1, 0, 1, 1.0), position);
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
        RC_ASSERT(draw(logits, p, position) == slow_sample(logits, p, position).token);
    }));
}

TEST(Sampler, EqualsAFullSortOnALargeVocabulary) {
    RandomStream random(11);
    std::vector<float> logits(20000);
    for (float& x : logits)
        x = static_cast<float>(random.next_normal());
    for (std::int64_t position = 0; position < 8; ++position) {
        for (const SamplingParams& p :
             {params(1), params(1, 50), params(1, 3000), params(0.6, 0, 0.95), params(1, 100, 0.5),
              params(0.3, 0, 0.9), params(2, 0, 0.9999, 1e-4), params(2, 0, 1, 0.05)})
            EXPECT_EQ(draw(logits, p, position), slow_sample(logits, p, position).token);
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
        ++counts[static_cast<std::size_t>(draw(logits, params(2.0, 0, 1, 0, 99), i))];
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
        ++seen[0][static_cast<std::size_t>(draw(logits, params(1, 0, 0.6), i))];
        ++seen[1][static_cast<std::size_t>(draw(logits, params(1, 3), i))];
        ++seen[2][static_cast<std::size_t>(draw(logits, params(1, 0, 1, 0.4), i))];
    }
    EXPECT_TRUE(seen[0][1] > 0 && seen[0][2] > 0 && seen[0][0] == 0 && seen[0][3] == 0);
    EXPECT_TRUE(seen[1][1] > 0 && seen[1][2] > 0 && seen[1][0] > 0 && seen[1][3] == 0);
    EXPECT_TRUE(seen[2][1] > 0 && seen[2][2] > 0 && seen[2][0] == 0 && seen[2][3] == 0);
}

TEST(Sampler, DrawDependsOnSeedPositionAndBlock) {
    const std::vector<float> logits(1000, 0.0f);
    const TokenId base = draw(logits, params(1, 0, 1, 0, 5), 77);
    EXPECT_EQ(draw(logits, params(1, 0, 1, 0, 5), 77), base);
    EXPECT_NE(draw(logits, params(1, 0, 1, 0, 6), 77), base);
    EXPECT_NE(draw(logits, params(1, 0, 1, 0, 5), 78), base);
    EXPECT_NE(draw(logits, params(1, 0, 1, 0, 5), 77, 1), base);
}

struct Editing {
    SamplingParams params;
    std::vector<TokenId> prompt, output, stops;
};

rc::Gen<std::vector<TokenId>> ids_below(std::int64_t vocab, std::size_t count_max) {
    return rc::gen::resize(static_cast<int>(count_max),
                           rc::gen::container<std::vector<TokenId>>(
                               rc::gen::inRange<TokenId>(0, static_cast<TokenId>(vocab))));
}

Editing draw_editing(std::int64_t vocab) {
    Editing e;
    e.params.temperature = *rc::gen::element(0.5, 1.0, 1.7);
    e.params.top_k = *rc::gen::element<std::int64_t>(0, 0, 3);
    e.params.top_p = *rc::gen::element(1.0, 1.0, 0.8);
    e.params.frequency_penalty = *rc::gen::element(0.0, 0.3, -1.5);
    e.params.presence_penalty = *rc::gen::element(0.0, 0.7, -2.0);
    e.params.repetition_penalty = *rc::gen::element(1.0, 1.3, 0.6);
    for (const TokenId id : *ids_below(vocab, 4))
        e.params.logit_bias.push_back({id, static_cast<float>(*rc::gen::inRange(-100, 101)) / 10});
    if (*rc::gen::element(true, false, false)) {
        e.params.allowed_tokens = *ids_below(vocab, 5);
    }
    e.params.min_tokens = *rc::gen::inRange(0, 4);
    e.params.seed = *rc::gen::arbitrary<std::uint64_t>();
    e.prompt = *ids_below(vocab, 6);
    e.output = *ids_below(vocab, 6);
    e.stops = *ids_below(vocab, 2);
    return e;
}

TokenHistory history_of(const Editing& e) {
    TokenHistory history(e.params, e.prompt);
    for (const TokenId token : e.output)
        history.append(token);
    return history;
}

TEST(Sampler, EditsLogitsInTheStatedOrder) {
    EXPECT_TRUE(rc::check([] {
        const auto logits = *logits_with_ties();
        const Editing e = draw_editing(static_cast<std::int64_t>(logits.size()));
        const auto position = *rc::gen::inRange<std::int64_t>(0, 1000);
        const std::vector<float> edited = slow_edit(logits, e.params, e.prompt, e.output, e.stops);
        RC_PRE(*std::max_element(edited.begin(), edited.end()) > -kInf);
        RC_ASSERT(sampled(logits, e.params, history_of(e), position, e.stops).token ==
                  slow_sample(edited, e.params, position).token);
    }));
}

TEST(Sampler, LogprobsAreOfTheRawOrOfTheProcessedDistribution) {
    EXPECT_TRUE(rc::check([] {
        const auto logits = *logits_with_ties();
        Editing e = draw_editing(static_cast<std::int64_t>(logits.size()));
        e.params.logprobs = *rc::gen::inRange<std::int64_t>(0, kTopLogprobsMax + 1);
        e.params.logprobs_processed = *rc::gen::arbitrary<bool>();
        const std::vector<float> edited = slow_edit(logits, e.params, e.prompt, e.output, e.stops);
        RC_PRE(*std::max_element(edited.begin(), edited.end()) > -kInf);
        const SampledToken got = sampled(logits, e.params, history_of(e), 7, e.stops);
        RC_ASSERT(got.logprobs.has_value());

        const bool processed = e.params.logprobs_processed;
        const Slow slow =
            slow_sample(processed ? edited : logits, processed ? e.params : SamplingParams(), 7);
        const float inverse = processed ? 1.0f / static_cast<float>(e.params.temperature) : 1.0f;
        const auto expected = [&](TokenId id) {
            if (!slow.kept[static_cast<std::size_t>(id)]) return kLogprobFloor;
            return std::max(slow.distance(id) * inverse - slow_log(slow.kept_mass), kLogprobFloor);
        };
        RC_ASSERT(got.logprobs->logprob == expected(got.token));
        const auto count = std::min(logits.size(), static_cast<std::size_t>(e.params.logprobs));
        RC_ASSERT(got.logprobs->top.size() == count);
        for (std::size_t i = 0; i < count; ++i) {
            RC_ASSERT(got.logprobs->top[i].id == slow.order[i]);
            RC_ASSERT(got.logprobs->top[i].logprob == expected(slow.order[i]));
        }
    }));
}

TEST(Sampler, LogprobsAreNaturalLogarithms) {
    SamplingParams p = params(0);
    p.logprobs = 3;
    const SampledToken got =
        sampled({std::log(0.2f), std::log(0.5f), std::log(0.3f)}, p, TokenHistory(p, {}), 0);
    ASSERT_TRUE(got.logprobs.has_value());
    EXPECT_EQ(got.token, 1);
    EXPECT_NEAR(got.logprobs->logprob, std::log(0.5), 1e-6);
    EXPECT_NEAR(got.logprobs->top[1].logprob, std::log(0.3), 1e-6);
    EXPECT_NEAR(got.logprobs->top[2].logprob, std::log(0.2), 1e-6);
    p.logprobs_processed = true;  // greedy: the token alone
    const SampledToken alone = sampled({0, 1, 0.5f}, p, TokenHistory(p, {}), 0);
    EXPECT_EQ(alone.logprobs->logprob, 0);
    EXPECT_EQ(alone.logprobs->top[1].id, 2);
    EXPECT_EQ(alone.logprobs->top[1].logprob, kLogprobFloor);
}

TEST(Sampler, LogprobsDoNotChangeTheToken) {
    RandomStream random(3);
    std::vector<float> logits(5000);
    for (float& x : logits)
        x = static_cast<float>(3 * random.next_normal());
    for (std::int64_t position = 0; position < 50; ++position) {
        SamplingParams p = params(1, 0, position % 2 == 0 ? 1.0 : 0.9);
        const TokenId plain = draw(logits, p, position);
        p.logprobs = 20;
        EXPECT_EQ(draw(logits, p, position), plain);
        p.logprobs_processed = true;
        EXPECT_EQ(draw(logits, p, position), plain);
    }
}

TEST(Sampler, AllowedTokensHoldWhenNothingElseIsLeft) {
    SamplingParams p = params(0);
    p.allowed_tokens = {3, 2};
    p.min_tokens = 1;
    const std::vector<float> logits = {9, 8, 7, 1};
    EXPECT_EQ(sampled(logits, p, TokenHistory(p, {}), 0).token, 2);
    EXPECT_EQ(sampled(logits, p, TokenHistory(p, {}), 0, {2}).token, 3);
    EXPECT_EQ(sampled(logits, p, TokenHistory(p, {}), 0, {2, 3}).token, 2);
    p.temperature = 1;
    EXPECT_EQ(sampled({-kInf, 1, -kInf, -kInf}, p, TokenHistory(p, {}), 0).token, 2);
}

TEST(Sampler, HistoryCountsOutputsAndPenalisesAPromptForRepetitionOnly) {
    SamplingParams p;
    p.frequency_penalty = 1;
    const std::vector<TokenId> prompt = {4, 4, 5};
    TokenHistory outputs(p, prompt);
    EXPECT_TRUE(outputs.seen().empty());
    outputs.append(7);
    outputs.append(7);
    ASSERT_EQ(outputs.seen().size(), 1u);
    EXPECT_EQ(outputs.seen()[0].outputs, 2);
    p.repetition_penalty = 1.1;
    TokenHistory both(p, prompt);
    both.append(5);
    ASSERT_EQ(both.seen().size(), 2u);
    EXPECT_EQ(both.seen()[0].outputs, 0);
    EXPECT_EQ(both.seen()[1].outputs, 1);
    EXPECT_EQ(both.output_tokens(), 1);
}

TEST(Sampler, ChoicesDrawWithSeedsOfTheirOwn) {
    EXPECT_EQ(choice_seed(42, 0), 42u);
    EXPECT_EQ(choice_seed(~std::uint64_t{0}, 0), ~std::uint64_t{0});
    EXPECT_EQ(choice_seed(42, 1), choice_seed(42, 1));
    EXPECT_NE(choice_seed(42, 1), choice_seed(42, 2));
    EXPECT_NE(choice_seed(42, 1), choice_seed(43, 1));
    for (std::int64_t choice = 1; choice < 100; ++choice)
        EXPECT_LT(choice_seed(7, choice), std::uint64_t{1} << 63);
}

TEST(Sampler, RefusesValuesOutOfRange) {
    struct Case {
        SamplingParams params;
        const char* message;
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto with = [](const auto& change) {
        SamplingParams p;
        change(p);
        return p;
    };
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
        {with([&](auto& p) { p.frequency_penalty = -2.5; }),
         "frequency_penalty is -2.5; it must be within [-2, 2]"},
        {with([&](auto& p) { p.presence_penalty = nan; }),
         "presence_penalty is nan; it must be within [-2, 2]"},
        {with([&](auto& p) { p.repetition_penalty = 0; }),
         "repetition_penalty is 0; it must be within [0.01, 10]"},
        {with([&](auto& p) { p.repetition_penalty = 11; }),
         "repetition_penalty is 11; it must be within [0.01, 10]"},
        {with([&](auto& p) { p.logit_bias.resize(1025); }),
         "logit_bias has 1025 entries; at most 1024 are allowed"},
        {with([&](auto& p) {
             p.logit_bias = {{4, 100.5f}};
         }),
         "logit_bias of token 4 is 100.5; it must be within [-100, 100]"},
        {with([&](auto& p) {
             p.logit_bias = {{100, 1}};
         }),
         "logit_bias names token 100; ids of this model are 0 to 99"},
        {with([&](auto& p) {
             p.logit_bias = {{-1, 1}};
         }),
         "logit_bias names token -1; ids of this model are 0 to 99"},
        {with([&](auto& p) { p.allowed_tokens.resize(4097); }),
         "allowed_token_ids has 4097 entries; at most 4096 are allowed"},
        {with([&](auto& p) {
             p.allowed_tokens = {1, 100};
         }),
         "allowed_token_ids[1] is token 100; ids of this model are 0 to 99"},
        {with([&](auto& p) { p.min_tokens = -1; }),
         "min_tokens is -1; it must be 0 (off) or positive"},
        {with([&](auto& p) { p.logprobs = 21; }), "top_logprobs is 21; it must be within [0, 20]"},
    };
    for (const Case& c : cases) {
        const Status status = validate_sampling(c.params, 100);
        EXPECT_EQ(status.code(), StatusCode::invalid_argument);
        EXPECT_EQ(status.message(), c.message);
    }
    EXPECT_TRUE(validate_sampling(params(0)).ok());
    EXPECT_TRUE(validate_sampling(params(2, 1 << 30, 1e-9, 1)).ok());
}

}  // namespace
}  // namespace fathom
