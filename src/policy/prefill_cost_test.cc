#include "policy/prefill_cost.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "policy/prefill_division.h"
#include "policy/prefill_step.h"
#include "policy/test_prefill_fleet.h"

namespace fathom {
namespace {

using testing::some_prefill_cost;

PrefillCost any_cost() {
    PrefillCost cost = some_prefill_cost();
    for (double* k : {&cost.k0_us, &cost.k1_us, &cost.k2_us, &cost.k3_us, &cost.k4_us, &cost.k5_us})
        *k *= *rc::gen::element(0.0, 1e-9, 0.1, 1.0, 20.0);
    cost.moe_balance = *rc::gen::element(1.0, 1.3);
    cost.scale = *rc::gen::element(0.7, 1.0, 1.5);
    return cost;
}

PrefillRest any_rest() {
    return {.context = 128 * *rc::gen::inRange<std::int64_t>(0, 8192),
            .tokens = *rc::gen::oneOf(rc::gen::inRange<std::int64_t>(1, 2000),
                                      rc::gen::inRange<std::int64_t>(1, kContextTokensMax)),
            .first = *rc::gen::arbitrary<bool>()};
}

double cost_of(const PrefillCost& cost, const PrefillRest& rest, std::int64_t tokens) {
    return cost.slice_us({.context = rest.context,
                          .tokens = tokens,
                          .first = rest.first,
                          .last = tokens == rest.tokens});
}

TEST(PrefillClass, EdgesBelongToTheLongerClass) {
    EXPECT_EQ(prefill_class(0), 0U);
    EXPECT_EQ(prefill_class(16'383), 0U);
    EXPECT_EQ(prefill_class(16'384), 1U);
    EXPECT_EQ(prefill_class(65'536), 2U);
    EXPECT_EQ(prefill_class(262'143), 2U);
    EXPECT_EQ(prefill_class(262'144), 3U);
    EXPECT_EQ(prefill_class(kContextTokensMax), 3U);
}

TEST(PrefillWork, CountsHitsInBlocksAndAlwaysRunsAToken) {
    const auto expect = [](std::int64_t total, std::int64_t hit, bool window, std::int64_t context,
                           std::int64_t tokens) {
        const PrefillWork work = prefill_work(total, hit, window);
        EXPECT_EQ(work.context, context) << total << " " << hit;
        EXPECT_EQ(work.tokens, tokens) << total << " " << hit;
    };
    expect(0, 0, true, 0, 1);
    expect(1, 128, true, 0, 1);
    expect(1000, 0, true, 0, 1000);
    expect(1000, 0, false, 0, 1000);  // nothing to replay
    expect(1000, 300, true, 256, 744);
    expect(1024, 1024, true, 896, 128);
    expect(1025, 1024, true, 1024, 1);
    expect(1025, 1024, false, 768, 257);  // 129 + 128 rows, then whole blocks; 140 rows at least
    expect(1000, 300, false, 128, 872);
    expect(1000, -5, true, 0, 1000);
}

TEST(PrefillWork, CoversThePromptFromABlockOn) {
    EXPECT_TRUE(rc::check([] {
        const auto total = *rc::gen::inRange<std::int64_t>(1, 5000);
        const auto hit = *rc::gen::inRange<std::int64_t>(0, 6000);
        const PrefillWork found = prefill_work(total, hit, true);
        const PrefillWork lost = prefill_work(total, hit, false);
        for (const PrefillWork& work : {found, lost}) {
            RC_ASSERT(work.context % 128 == 0 && work.tokens >= 1);
            RC_ASSERT(work.context + work.tokens == total);
        }
        RC_ASSERT(lost.tokens >= found.tokens);
        RC_ASSERT(found.context == 0 || lost.tokens >= std::min(total, kDecoderTailTokens));
    }));
}

TEST(FitSlice, IsTheMostThatTheBudgetPays) {
    EXPECT_TRUE(rc::check([] {
        const PrefillCost cost = any_cost();
        const PrefillRest rest = any_rest();
        const double budget = *rc::gen::element(0.0, 50.0, 3e3, 150e3, 400e3, 1e9);
        const auto cap = *rc::gen::element<std::int64_t>(0, 100, 5000, kStepRowsMax);
        const std::int64_t n = fit_slice(cost, budget, rest, cap, false);
        RC_ASSERT(n >= 0 && n <= std::min(rest.tokens, cap));
        RC_ASSERT(n == rest.tokens || n % 128 == 0);
        if (n > 0) {
            const double allowed = n == rest.tokens ? 1.1 : 1.0;
            RC_ASSERT(cost_of(cost, rest, n) <= budget * allowed * (1 + 1e-9) + 1e-6);
        }
        if (n == rest.tokens) return;
        // A block more does not fit, or would leave a crumb.
        const std::int64_t more = std::min(n + 128, rest.tokens);
        const bool is_crumb = rest.tokens - more < 256;
        RC_ASSERT(more > cap || is_crumb || cost_of(cost, rest, more) > budget * (1 - 1e-9));
    }));
}

TEST(FitSlice, GrowsWithTheBudget) {
    EXPECT_TRUE(rc::check([] {
        const PrefillCost cost = any_cost();
        const PrefillRest rest = any_rest();
        const double budget = *rc::gen::inRange(0, 500'000);
        const std::int64_t less = fit_slice(cost, budget, rest, kStepRowsMax, false);
        const std::int64_t more = fit_slice(cost, 1.3 * budget, rest, kStepRowsMax, false);
        RC_ASSERT(less <= more);
    }));
}

TEST(FitSlice, AnEmptyRankAlwaysGetsOn) {
    EXPECT_TRUE(rc::check([] {
        const PrefillRest rest = any_rest();
        const double budget = *rc::gen::element(-1e9, 0.0, 1.0);
        RC_ASSERT(fit_slice(any_cost(), budget, rest, kStepRowsMax, true) > 0);
    }));
    EXPECT_EQ(fit_slice(some_prefill_cost(), 0, {.tokens = 50}, kStepRowsMax, true), 50);
    EXPECT_EQ(fit_slice(some_prefill_cost(), 0, {.tokens = 5000}, kStepRowsMax, true), 128);
    EXPECT_EQ(fit_slice(some_prefill_cost(), 0, {.tokens = 5000}, 100, true), 100);
}

TEST(FitSlice, IsExactWhereTheSquareHardlyCounts) {
    PrefillCost cost;
    cost.k1_us = 10;
    for (const double k2 : {0.0, 1e-300, 1e-18, 1e-12}) {
        cost.k2_us = k2;
        const PrefillRest rest{.context = 0, .tokens = 100'000, .first = false};
        EXPECT_EQ(fit_slice(cost, 128'000 * 1.00001, rest, kStepRowsMax, false), 12'800) << k2;
    }
    EXPECT_EQ(fit_slice(PrefillCost{}, 1, {.tokens = 300}, kStepRowsMax, false), 300);  // costs 0
}

TEST(FitSlice, ACrumbComesAlongOrStays) {
    PrefillCost cost;
    cost.k1_us = 1;
    const auto fit = [&](double budget, std::int64_t tokens) {
        return fit_slice(cost, budget, {.tokens = tokens}, kStepRowsMax, false);
    };
    EXPECT_EQ(fit(1000, 1000), 1000);
    EXPECT_EQ(fit(1000, 1090), 1090);  // within 10 %
    EXPECT_EQ(fit(1000, 1130), 768);   // 234 would be left; a block more stays
    EXPECT_EQ(fit(1000, 1200), 896);
    cost.k4_us = 50;
    EXPECT_EQ(fit(1000, 990), 990);   // 40 over, by the decoder tail
    EXPECT_EQ(fit(1000, 1060), 768);  // 110 over
}

TEST(PrefillCost, GrowsWithTokensAndContext) {
    EXPECT_TRUE(rc::check([] {
        const PrefillCost cost = any_cost();
        const PrefillRest rest = any_rest();
        const double base = cost.request_us(rest.context, rest.tokens, rest.first);
        RC_ASSERT(std::isfinite(base) && base >= 0);
        RC_ASSERT(cost.request_us(rest.context, rest.tokens + 1, rest.first) >= base);
        RC_ASSERT(cost.request_us(rest.context + 128, rest.tokens, rest.first) >= base);
    }));
}

TEST(PrefillCost, RefusesWhatIsNoCost) {
    PrefillCost cost = some_prefill_cost();
    EXPECT_TRUE(cost.check().ok());
    cost.k2_us = -1e-9;
    EXPECT_FALSE(cost.check().ok());
    cost.k2_us = std::nan("");
    EXPECT_FALSE(cost.check().ok());
    cost = some_prefill_cost();
    cost.moe_balance = 0.9;
    EXPECT_FALSE(cost.check().ok());
}

TEST(PrefillFit, FindsTheCoefficientsOfItsSamples) {
    PrefillCost truth = some_prefill_cost();
    truth.moe_share = 0;
    truth.sync_us = 0;
    std::vector<PrefillSample> samples;
    for (const std::int64_t context : {0, 1024, 16'384, 262'144}) {
        for (const std::int64_t tokens : {1, 512, 4096, 32'768}) {
            for (const int slices : {1, 4}) {
                PrefillSample sample;
                for (int i = 0; i < slices; ++i)
                    sample.slices.push_back({.context = context,
                                             .tokens = tokens,
                                             .first = i % 2 == 0,
                                             .last = (tokens & 512) != 0});
                sample.time_us = truth.fixed_us();
                for (const PrefillSlice& slice : sample.slices)
                    sample.time_us += truth.slice_us(slice);
                samples.push_back(sample);
            }
        }
    }
    samples.push_back(samples.back());
    samples.back().time_us *= 3;
    samples.back().spread = 0.2;  // left out
    const Result<PrefillFit> fit = fit_prefill_cost(samples);
    ASSERT_TRUE(fit.ok());
    EXPECT_TRUE(fit->gates.passed());
    EXPECT_EQ(fit->gates.dropped, 1U);
    EXPECT_NEAR(fit->cost.k1_us, truth.k1_us, 0.01 * truth.k1_us);
    EXPECT_NEAR(fit->cost.k2_us, truth.k2_us, 0.01 * truth.k2_us);
    EXPECT_NEAR(fit->cost.k4_us, truth.k4_us, 0.02 * truth.k4_us);
    EXPECT_FALSE(fit_prefill_cost({}).ok());
    samples[0].time_us = 0;
    EXPECT_FALSE(fit_prefill_cost(samples).ok());
}

TEST(PrefillCorrection, FollowsTheEngineAndReportsDrift) {
    PrefillCorrection correction;
    for (int i = 0; i < 200; ++i)
        correction.observe(1, 100, 1000, {.swap_stall = true}, i);
    EXPECT_EQ(correction.scale(1), 1.0);
    for (int i = 0; i < 200; ++i)
        correction.observe(1, 100, 125, {}, i * 1'000'000LL);
    EXPECT_NEAR(correction.scale(1), 1.25, 0.02);
    EXPECT_EQ(correction.scale(0), 1.0);
    EXPECT_FALSE(correction.drifted(200'000'000));
    EXPECT_TRUE(correction.drifted(500'000'000));
    correction.observe(1, 0, 0, {}, 0);  // says nothing
    StateWriter out("TEST", 1);
    correction.save(out);
    const auto bytes = out.take();
    StateReader in(bytes, "TEST", 1);
    PrefillCorrection loaded;
    loaded.load(in);
    EXPECT_TRUE(in.finish().ok());
    EXPECT_EQ(loaded.scale(1), correction.scale(1));
    EXPECT_TRUE(loaded.drifted(500'000'000));
}

double rate_at(const std::vector<double>& work, double budget, double fixed) {
    double done = 0, longest = 0;
    for (const double w : work) {
        done += std::min(w, budget);
        longest = std::max(longest, std::min(w, budget));
    }
    return longest > 0 ? done / (fixed + longest) : 0;
}

TEST(StepBudget, NoOtherBudgetDoesMoreAtATime) {
    EXPECT_TRUE(rc::check([] {
        const double tau = 100'000;
        std::vector<double> work;
        const int ranks = *rc::gen::inRange(1, 9);
        for (int r = 0; r < ranks; ++r)
            work.push_back(*rc::gen::inRange(0, 130'000));
        const double fixed = *rc::gen::element(0.0, 1000.0, 20'000.0);
        std::vector<double> scratch = work;
        const double best = step_budget_us(scratch, tau, fixed);
        RC_ASSERT(best >= 0.2 * tau && best <= tau);
        for (const double other : work)
            if (other >= 0.2 * tau && other <= tau)
                RC_ASSERT(rate_at(scratch, other, fixed) <=
                          rate_at(scratch, best, fixed) * (1 + 1e-9));
        RC_ASSERT(rate_at(scratch, tau, fixed) <= rate_at(scratch, best, fixed) * (1 + 1e-9));
    }));
}

TEST(StepBudget, GrowsWithTheFixedCost) {
    EXPECT_TRUE(rc::check([] {
        std::vector<double> work;
        for (int r = 0; r < 4; ++r)
            work.push_back(*rc::gen::inRange(0, 130'000));
        const double fixed = *rc::gen::inRange(0, 20'000);
        std::vector<double> a = work, b = work;
        RC_ASSERT(step_budget_us(a, 1e5, fixed) <= step_budget_us(b, 1e5, 2 * fixed + 1));
    }));
}

TEST(StepBudget, HoldsWithNothingToDo) {
    std::vector<double> none = {0, 0, 0};
    EXPECT_EQ(step_budget_us(none, 1e5, 0), 1e5);
    EXPECT_EQ(step_budget_us({}, 1e5, 0), 1e5);
    std::vector<double> one = {1e12};
    EXPECT_EQ(step_budget_us(one, 1e5, 0), 1e5);
}

TEST(StepPlanner, ShortPromptsPassALongOneThatStillGetsOn) {
    PrefillStepPlanner planner;
    PrefillCosts costs;
    costs.fill(some_prefill_cost());
    std::vector<std::vector<PrefillJob>> ranks(1);
    ranks[0].push_back({.id = 1, .length_class = 3, .rest = {.tokens = 900'000}});
    for (std::uint64_t i = 2; i < 6; ++i)
        ranks[0].push_back({.id = i, .length_class = 0, .rest = {.tokens = 1000}});
    const PrefillStep& step = planner.plan(costs, 150e3, ranks);
    ASSERT_EQ(step.slices.size(), 5U);
    std::int64_t long_tokens = 0;
    for (const PlannedSlice& slice : step.slices) {
        if (slice.job == 0) {
            long_tokens = slice.tokens;
        } else {
            EXPECT_EQ(slice.tokens, 1000);
        }
    }
    EXPECT_GT(long_tokens, 1500);
    EXPECT_LE(step.rank_us[0], 150e3 * 1.001);
}

TEST(StepPlanner, KeepsBudgetAndCapAndPlansEachPromptOnce) {
    EXPECT_TRUE(rc::check([] {
        PrefillCosts costs;
        costs.fill(any_cost());
        std::vector<std::vector<PrefillJob>> ranks(*rc::gen::inRange<std::size_t>(1, 5));
        bool has_work = false;
        for (auto& jobs : ranks) {
            jobs.resize(*rc::gen::inRange<std::size_t>(0, 6));
            for (PrefillJob& job : jobs)
                job.rest = any_rest();
            has_work = has_work || !jobs.empty();
        }
        PrefillStepPlanner planner;
        const PrefillStep& step = planner.plan(costs, 250e3, ranks);
        std::vector<std::int64_t> tokens(ranks.size(), 0);
        std::set<std::pair<std::size_t, std::size_t>> seen;
        for (const PlannedSlice& slice : step.slices) {
            RC_ASSERT(seen.emplace(slice.rank, slice.job).second);
            RC_ASSERT(slice.tokens > 0);
            RC_ASSERT(slice.tokens <= ranks[slice.rank][slice.job].rest.tokens);
            tokens[slice.rank] += slice.tokens;
        }
        for (const std::int64_t t : tokens)
            RC_ASSERT(t <= kStepRowsMax);
        for (std::size_t r = 0; r < ranks.size(); ++r)
            RC_ASSERT(ranks[r].empty() || tokens[r] > 0);
        RC_ASSERT(step.slices.empty() != has_work);
    }));
}

TEST(Division, GivesEnginesByDemand) {
    const auto divided = [](ClassCounts demand, ClassCounts previous, bool is_limited = false) {
        DivisionInput input{.demand_us = demand, .previous = previous, .is_limited = is_limited};
        for (const std::int64_t n : previous)
            input.engines += n;
        return divide_engines(input);
    };
    EXPECT_EQ(divided({50, 30, 20, 0}, {10, 0, 0, 0}).engines, (ClassCounts{5, 3, 2, 0}));
    EXPECT_EQ(divided({1000, 1, 1, 1}, {10, 0, 0, 0}).engines, (ClassCounts{7, 1, 1, 1}));
    EXPECT_EQ(divided({0, 0, 0, 0}, {4, 3, 2, 1}).engines, (ClassCounts{4, 3, 2, 1}));
    // One change in ten.
    EXPECT_EQ(divided({50, 30, 20, 0}, {10, 0, 0, 0}, true).engines, (ClassCounts{9, 1, 0, 0}));
    // Fewer engines than classes: the least demand joins the next longer class.
    const Division few = divided({10, 1, 10, 4}, {2, 0, 0, 0});
    EXPECT_EQ(few.engines, (ClassCounts{1, 0, 1, 0}));
    EXPECT_EQ(few.served_by, (std::array<std::size_t, 4>{0, 2, 2, 2}));
    EXPECT_EQ(divided({1, 1, 1, 1}, {1, 0, 0, 0}).served_by[0],
              divided({1, 1, 1, 1}, {1, 0, 0, 0}).served_by[3]);
    EXPECT_EQ(divided({5, 5, 5, 5}, {0, 0, 0, 0}).engines, (ClassCounts{0, 0, 0, 0}));
}

TEST(Division, UsesEveryEngineAndServesEveryClass) {
    EXPECT_TRUE(rc::check([] {
        DivisionInput input;
        for (std::size_t k = 0; k < kPrefillClasses; ++k) {
            input.demand_us[k] = *rc::gen::element<std::int64_t>(0, 1, 1000, 1'000'000'000'000);
            input.previous[k] = *rc::gen::inRange<std::int64_t>(0, 50);
            input.engines += input.previous[k];
        }
        input.is_limited = *rc::gen::arbitrary<bool>();
        const Division division = divide_engines(input);
        std::int64_t engines = 0, changes = 0, active = 0;
        for (std::size_t k = 0; k < kPrefillClasses; ++k) {
            RC_ASSERT(division.engines[k] >= 0);
            engines += division.engines[k];
            active += input.demand_us[k] > 0 ? 1 : 0;
            changes += std::max<std::int64_t>(0, division.engines[k] - input.previous[k]);
            if (input.engines > 0) RC_ASSERT(division.engines[division.served_by[k]] > 0);
        }
        RC_ASSERT(engines == input.engines);
        if (input.is_limited) RC_ASSERT(changes <= std::max<std::int64_t>(1, engines / 10));
        if (!input.is_limited && active > 0 && engines >= active) {
            for (std::size_t k = 0; k < kPrefillClasses; ++k)
                RC_ASSERT((division.engines[k] > 0) == (input.demand_us[k] > 0));
        }
    }));
}

}  // namespace
}  // namespace fathom
