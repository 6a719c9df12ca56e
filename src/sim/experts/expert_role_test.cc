#include "sim/experts/expert_role.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fathom {
namespace {

constexpr SimTime kSecond = 1'000'000'000;

ExpertConfig small_config() {
    ExpertConfig config;
    config.is_process = true;
    config.experts = 32;
    config.experts_per_token = 4;
    config.layers = 6;
    config.drift_time_s = 60;
    config.first_s = 20;
    config.sample_s = 1;
    config.decode = {.spare_slots = 2, .period_s = 20, .drift_sigma = 0.5, .dispersion = 1};
    return config;
}

// A role of one group that makes `tokens` a rank and step, 20 steps a second, for `seconds`.
ExpertFigures serve(ExpertConfig config, std::int64_t ranks, double tokens, int seconds,
                    int lost_at_s = -1) {
    EXPECT_TRUE(config.check(ranks, ranks).ok());
    ExpertRole role(config, config.decode, {.ranks = ranks, .cards = ranks, .moe_us_per_token = 50},
                    1, 1);
    ExpertTraffic traffic;
    traffic.step_us = 50'000;
    for (int s = 1; s <= seconds; ++s) {
        const SimTime now_ns = s * kSecond;
        if (tokens > 0) {
            traffic.rank_steps += 20.0 * static_cast<double>(ranks);
            traffic.rank_tokens += 20.0 * static_cast<double>(ranks) * tokens;
        }
        role.sample(now_ns, traffic, true);
        SimTime at_ns = now_ns;
        while (role.is_switching()) {
            at_ns += role.turn_ns();
            if (s == lost_at_s && at_ns > now_ns + 30'000'000) role.lose(at_ns);
            role.turn(at_ns);
        }
        EXPECT_TRUE(std::isfinite(role.moe_balance()));
        EXPECT_GE(role.moe_balance(), 1 - 1e-12);
    }
    return role.figures();
}

TEST(ExpertRole, IsAFunctionOfItsConfiguration) {
    const ExpertFigures one = serve(small_config(), 4, 500, 200);
    const ExpertFigures again = serve(small_config(), 4, 500, 200);
    EXPECT_EQ(one.decisions, again.decisions);
    EXPECT_EQ(one.realised.max_sum, again.realised.max_sum);
    EXPECT_GT(one.switches.completed, 1);
    EXPECT_EQ(one.switches.begun, one.switches.completed);
    EXPECT_EQ(one.switches.fetched, one.slots_passed);
    EXPECT_GT(one.switches.longest_s, 0);
    ExpertConfig other = small_config();
    other.decode.drift_sigma = 0.4;
    EXPECT_NE(serve(other, 4, 500, 200).decisions, one.decisions);
}

TEST(ExpertRole, TheBalancerLowersTheImbalanceOfPopularityThatDrifts) {
    ExpertConfig config = small_config();
    const double with = serve(config, 4, 500, 400).realised.ratio();
    config.is_balanced = false;
    const ExpertFigures without = serve(config, 4, 500, 400);
    EXPECT_EQ(without.plans, 0);
    EXPECT_LT(with, without.realised.ratio() - 0.05);
}

TEST(ExpertRole, ALongerPeriodIsNoBetterWhenPopularityDrifts) {
    ExpertConfig config = small_config();
    const double often = serve(config, 4, 500, 600).realised.ratio();
    config.decode.period_s = 200;
    EXPECT_LT(often, serve(config, 4, 500, 600).realised.ratio());
}

TEST(ExpertRole, NothingPassesTheGateAgainWithoutDrift) {
    ExpertConfig config = small_config();
    config.decode.drift_sigma = 0;
    const ExpertFigures figures = serve(config, 4, 500, 400);
    EXPECT_EQ(figures.plans, 20);
    EXPECT_EQ(figures.gated, 19);
    EXPECT_EQ(figures.layers_passed, config.layers);
    EXPECT_EQ(figures.switches.completed, 1);
}

TEST(ExpertRole, MovesThatDoNotPayInOnePeriodPayWithinALongerHorizon) {
    ExpertConfig config = small_config();
    config.decode.drift_sigma = 0;
    config.interference = 1;
    const ExpertFigures period = serve(config, 4, 50, 100);
    EXPECT_GT(period.slots_held, 0);
    config.horizon_s = 1e4;
    const ExpertFigures longer = serve(config, 4, 50, 100);
    EXPECT_LT(period.layers_passed, longer.layers_passed);
    EXPECT_LT(longer.realised.ratio(), period.realised.ratio());
}

TEST(ExpertRole, TopicsThatComeAndGoAreFollowed) {
    ExpertConfig config = small_config();
    config.decode.drift_sigma = 0;
    config.topics = 4;
    config.topic_drift = 1;
    const ExpertFigures figures = serve(config, 4, 500, 400);
    EXPECT_GT(figures.switches.completed, 1);
    config.is_balanced = false;
    EXPECT_LT(figures.realised.ratio(), serve(config, 4, 500, 400).realised.ratio());
}

TEST(ExpertRole, AGroupThatFailsDropsTheSwitchAndTheNextPlanComes) {
    ExpertConfig config = small_config();
    config.link_part = 0.02;  // so that a chunk takes longer than the time of the failure
    const ExpertFigures figures = serve(config, 4, 500, 100, 40);
    EXPECT_EQ(figures.switches.aborted, 1);
    EXPECT_GT(figures.switches.completed, 1);
    EXPECT_EQ(figures.plans, 5);
}

TEST(ExpertRole, ZeroTrafficChangesNothing) {
    const ExpertFigures figures = serve(small_config(), 4, 0, 100);
    EXPECT_EQ(figures.realised.ratio(), 1);
    EXPECT_EQ(figures.gated, figures.plans);
    EXPECT_EQ(figures.switches.begun, 0);
    // Less than a token a step.
    EXPECT_TRUE(std::isfinite(serve(small_config(), 4, 0.01, 100).realised.ratio()));
}

TEST(ExpertRole, OneRankIsAlwaysEven) {
    const ExpertFigures figures = serve(small_config(), 1, 500, 100);
    EXPECT_DOUBLE_EQ(figures.realised.ratio(), 1);
    EXPECT_EQ(figures.switches.begun, 0);
}

TEST(ExpertRole, OneExpertIsOnEveryRank) {
    ExpertConfig config = small_config();
    config.experts = config.experts_per_token = 1;
    EXPECT_LT(serve(config, 4, 500, 100).realised.ratio(), 1.2);
}

TEST(ExpertConfig, SaysWhatDoesNotFit) {
    ExpertConfig config = small_config();
    config.experts_per_token = 33;
    EXPECT_NE(config.check(4, 4).message().find("experts.per_token: 33"), std::string::npos);
    config = small_config();
    config.decode.spare_slots = 5000;
    EXPECT_NE(config.check(4, 4).message().find("experts of decode"), std::string::npos);
    config = small_config();
    EXPECT_NE(config.check(4, 1024).message().find("decode.ranks is 1024"), std::string::npos);
    config.is_process = false;
    EXPECT_TRUE(config.check(4, 1024).ok());
}

}  // namespace
}  // namespace fathom
