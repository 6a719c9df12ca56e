#include "policy/verify_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "policy/verify_cost.h"

namespace fathom {
namespace {

VerifyCurve curve_of(std::vector<CurvePoint> points, CurveRules rules = {}) {
    return *VerifyCurve::make(points, rules);
}

TEST(VerifyCurve, IsAStaircaseThenALineThenItsContinuation) {
    const VerifyCurve curve =
        curve_of({{1, 10}, {8, 9}, {16, 12}, {32, 20}, {64, 36}}, {.captured_max = 16});
    const auto ms = [&](std::int64_t rows) { return curve.step(rows)->ms; };
    EXPECT_EQ(ms(0), 10);
    EXPECT_EQ(ms(1), 10);
    EXPECT_EQ(ms(2), 10);  // the envelope: 8 rows are not cheaper than one
    EXPECT_EQ(curve.step(9)->run, 16);
    EXPECT_EQ(ms(16), 12);
    EXPECT_EQ(ms(24), 16);
    EXPECT_EQ(curve.step(24)->run, 24);
    EXPECT_EQ(ms(64), 36);
    EXPECT_EQ(ms(128), 68);
    EXPECT_EQ(curve_of({{4, 2}}).step(9)->ms, 2);
    EXPECT_FALSE(curve_of({{4, 2}}, CurveRules::deployed()).step(5));
    EXPECT_FALSE(VerifyCurve::make(std::vector<CurvePoint>{{4, -1}}).ok());
    EXPECT_FALSE(VerifyCurve::make(std::vector<CurvePoint>{{4, 1}, {4, 1}}).ok());
}

TEST(VerifyCost, FollowsMeasuredStepsByMedians) {
    VerifyCost cost(curve_of({{10, 5}, {20, 6}, {40, 8}}));
    for (int i = 0; i < 9; ++i)
        cost.observe(7, 10, 6, 1);
    EXPECT_EQ(cost.slope_ms(), 0);  // nine steps of a size say nothing yet
    EXPECT_EQ(cost.sampler_ms(7), 1);
    EXPECT_EQ(cost.sampler_ms(3), 1);  // of all
    cost.observe(7, 10, 1e6, 1);       // a stall is one step of ten
    EXPECT_NEAR(cost.slope_ms(), 0.1, 1e-12);
    for (int i = 0; i < 10; ++i)
        cost.observe(3, 20, 12, 2);
    EXPECT_NEAR(cost.slope_ms(), 0.2, 1e-12);  // (0.1 + 0.3) / 2
    EXPECT_EQ(cost.sampler_ms(7), 1);
    EXPECT_EQ(cost.sampler_ms(4), 2);
    EXPECT_EQ(cost.forward_ms({20, 6}), 6 + 20 * cost.slope_ms());
    for (int i = 0; i < 10; ++i)
        cost.observe(3, 40, 1, 2);  // faster than the curve: less than 0 for one size
    EXPECT_NEAR(cost.slope_ms(), 0.1, 1e-12);
    cost.observe(3, 13, 1, 9);             // not a size
    cost.observe(-1, 10, 1, 9);            // not a number of requests
    cost.observe(3, 10, std::nan(""), 9);  // not a time
    EXPECT_EQ(cost.sampler_ms(3), 2);
}

TEST(VerifyCost, ForgetsStepsBeyondItsWindow) {
    VerifyCost cost(curve_of({{10, 5}}));
    for (int i = 0; i < 5000; ++i)
        cost.observe(1, 10, 15, 0);
    EXPECT_EQ(cost.slope_ms(), 1);
    for (int i = 0; i < 2600; ++i)
        cost.observe(1, 10, 5, 0);
    EXPECT_EQ(cost.slope_ms(), 0);
}

TEST(VerifyCost, GoesOnFromItsBytes) {
    RandomStream random(20261129);
    VerifyCost cost(curve_of({{10, 5}, {20, 6}}));
    const auto feed = [&](VerifyCost& to, RandomStream from, int steps) {
        for (int i = 0; i < steps; ++i)
            to.observe(static_cast<std::int64_t>(from.next_below(4)),
                       10 + 10 * static_cast<std::int64_t>(from.next_below(2)),
                       6 + from.next_uniform(), from.next_uniform());
    };
    feed(cost, random, 5100);
    const std::vector<std::uint8_t> bytes = cost.save();
    Result<VerifyCost> other = VerifyCost::load(bytes);
    ASSERT_TRUE(other.ok()) << other.status().message();
    feed(cost, RandomStream(3), 2000);
    feed(*other, RandomStream(3), 2000);
    EXPECT_EQ(cost.slope_ms(), other->slope_ms());
    for (std::int64_t requests = 0; requests < 5; ++requests)
        EXPECT_EQ(cost.sampler_ms(requests), other->sampler_ms(requests));
    EXPECT_EQ(cost.save(), other->save());
    for (std::size_t length = 0; length < 300; length += 7)
        EXPECT_FALSE(VerifyCost::load(std::span(bytes).first(length)).ok());
}

struct Fixture {
    std::vector<float> survivals;
    VerifyBatch batch;
    // The second half of the requests may have its own.
    Fixture(std::int64_t requests, float survival, float second = -1) {
        survivals.assign(static_cast<std::size_t>(5 * requests), survival);
        if (second >= 0) std::fill(survivals.begin() + 5 * (requests / 2), survivals.end(), second);
        batch = {.requests = requests, .drafts = 5, .survivals = survivals};
    }
};

// Nearly free rows up to 64, dear ones beyond.
VerifyCost knee() {
    std::vector<CurvePoint> points;
    for (std::int64_t rows = 1; rows <= 600; ++rows)
        points.push_back(
            {rows, 20 + 0.001 * static_cast<double>(rows) +
                       0.1 * static_cast<double>(std::max<std::int64_t>(rows - 64, 0))});
    return VerifyCost(curve_of(points));
}

TEST(VerifyScheduler, TakesThePlainPathWhereTheOtherDoesNotPay) {
    VerifyScheduler scheduler({.path_ms = 0.3, .draft_ms = 1});
    const VerifyCost cost = knee();
    const Fixture few(8, 0.7f), mixed(40, 0.9f, 0.05f);
    const VerifyDecision plain = scheduler.decide(few.batch, cost);
    EXPECT_EQ(plain.reason, VerifyReason::plain);
    EXPECT_EQ(plain.choice.drafts, 40);
    EXPECT_EQ(plain.rows, 48);
    // Seven decisions of another opinion change nothing, the eighth does.
    for (int i = 0; i < 7; ++i)
        EXPECT_EQ(scheduler.decide(mixed.batch, cost).reason, VerifyReason::plain);
    EXPECT_EQ(scheduler.decide(few.batch, cost).reason, VerifyReason::plain);
    for (int i = 0; i < 7; ++i)
        EXPECT_EQ(scheduler.decide(mixed.batch, cost).reason, VerifyReason::plain);
    EXPECT_EQ(scheduler.decide(mixed.batch, cost).reason, VerifyReason::scheduled);
    for (int i = 0; i < 7; ++i)
        EXPECT_EQ(scheduler.decide(few.batch, cost).reason, VerifyReason::scheduled);
    EXPECT_EQ(scheduler.decide(few.batch, cost).reason, VerifyReason::plain);
}

// Rows that a captured size runs anyway are filled, whatever their survivals are, and drafts below
// the floor do not choose a larger size.
TEST(VerifyScheduler, FillsTheSizeThatRuns) {
    const VerifyCost cost(curve_of({{8, 10}, {16, 10.001}, {48, 30}}));
    VerifyScheduler scheduler({.patience = 0});
    const Fixture sure(4, 0.9f, 0.0f), hopeless(8, 1e-7f);
    const VerifyDecision some = scheduler.decide(sure.batch, cost);
    EXPECT_EQ(some.choice.drafts, 12);
    EXPECT_EQ(some.rows, 16);
    EXPECT_EQ(scheduler.decide(hopeless.batch, cost).choice.drafts, 0);
    EXPECT_GT(VerifyScheduler({.patience = 0, .survival_floor = 0})
                  .decide(Fixture(4, 1e-5f).batch, cost)
                  .choice.drafts,
              0);
}

TEST(VerifyScheduler, StopsHopelessDraftsAndProbes) {
    VerifyScheduler scheduler({.path_ms = 0.3, .draft_ms = 2});
    const VerifyCost cost = knee();
    const Fixture hopeless(64, 0.001f), good(64, 0.9f);
    for (int i = 0; i < 8; ++i)
        (void)scheduler.decide(hopeless.batch, cost);
    EXPECT_EQ(scheduler.mode(), VerifyMode::no_drafts);
    int probes = 0;
    for (int i = 0; i < 640; ++i) {
        const VerifyDecision decision = scheduler.decide(hopeless.batch, cost);
        EXPECT_EQ(decision.choice.drafts > 0, decision.reason == VerifyReason::probe);
        probes += decision.reason == VerifyReason::probe ? 1 : 0;
    }
    EXPECT_EQ(probes, 10);
    // After the next probe its survivals arrive, and they are good.
    while (scheduler.decide(hopeless.batch, cost).reason != VerifyReason::probe) {
    }
    EXPECT_EQ(scheduler.decide(good.batch, cost).reason, VerifyReason::no_drafts);
    EXPECT_EQ(scheduler.decide(good.batch, cost).reason, VerifyReason::no_drafts);
    EXPECT_NE(scheduler.decide(good.batch, cost).reason, VerifyReason::no_drafts);
}

TEST(VerifyScheduler, WithoutPatienceItAlwaysSchedules) {
    VerifyScheduler scheduler({.path_ms = 5, .draft_ms = 19, .patience = 0});
    for (int i = 0; i < 50; ++i)
        EXPECT_EQ(scheduler.decide(Fixture(8, 0.1f).batch, knee()).reason, VerifyReason::scheduled);
}

TEST(VerifyScheduler, SaysWhyItCannotPlan) {
    VerifyScheduler scheduler;
    EXPECT_EQ(scheduler.decide({}, knee()).reason, VerifyReason::no_requests);
    const VerifyDecision all = scheduler.decide(Fixture(8, 0.1f).batch, VerifyCost());
    EXPECT_EQ(all.reason, VerifyReason::no_curve);
    EXPECT_EQ(all.choice.drafts, 40);
    EXPECT_EQ(all.record(5, 3, Fixture(8, 0.1f).batch).fields[1], 48);
}

TEST(VerifyScheduler, GoesOnFromItsBytes) {
    VerifyScheduler scheduler({.path_ms = 0.3, .draft_ms = 1});
    for (int i = 0; i < 5; ++i)
        (void)scheduler.decide(Fixture(8, 0.7f).batch, knee());
    VerifyScheduler other({.path_ms = 0.3, .draft_ms = 1});
    ASSERT_TRUE(other.load(scheduler.save()).ok());
    for (int i = 0; i < 5; ++i) {
        const Fixture few(8, 0.7f);
        EXPECT_EQ(scheduler.decide(few.batch, knee()).record(i, 0, few.batch),
                  other.decide(few.batch, knee()).record(i, 0, few.batch));
    }
    EXPECT_EQ(other.mode(), VerifyMode::plain);
    EXPECT_FALSE(other.load({}).ok());
}

TEST(VerifyScheduler, AGroupOfOneBusyRankDecidesAsThatRankAlone) {
    const VerifyCost cost = knee();
    const VerifyRules rules{.path_ms = 0.3, .draft_ms = 1};
    VerifyScheduler alone(rules), together(rules);
    for (int i = 0; i < 400; ++i) {
        // Good, hopeless, mixed drafts.
        const Fixture fixture(40, i / 100 % 2 == 1 ? 1e-9f : 0.8f, i < 300 ? -1 : 0.1f);
        const VerifyBatch batches[] = {{.requests = 0, .drafts = 5, .survivals = {}},
                                       fixture.batch};
        VerifyDecision decisions[2];
        const VerifyDecision expected = alone.decide(fixture.batch, cost);
        together.decide_group(batches, cost, 0, decisions);
        EXPECT_EQ(decisions[0].reason, VerifyReason::no_requests);
        EXPECT_EQ(decisions[0].rows, 0);
        ASSERT_EQ(decisions[1].reason, expected.reason) << i;
        ASSERT_EQ(decisions[1].choice.drafts, expected.choice.drafts) << i;
        ASSERT_EQ(decisions[1].rows, expected.rows) << i;
        ASSERT_NEAR(decisions[1].choice.ms, expected.choice.ms, 1e-9) << i;
    }
    EXPECT_EQ(alone.mode(), together.mode());
}

}  // namespace
}  // namespace fathom
