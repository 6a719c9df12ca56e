#include "policy/verify_budget.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "policy/verify_case.h"

namespace fathom {
namespace {

struct Batch {
    std::int64_t requests = 0, drafts = 0, other_rows = 0;
    std::vector<float> survivals;
    std::vector<std::int32_t> caps;

    VerifyBatch view() const { return {requests, drafts, survivals, caps, other_rows}; }
};

// Survivals fall along a row; a third of them are multiples of 1/4, so that there are ties.
Batch random_batch(RandomStream& random, std::int64_t requests, std::int64_t drafts) {
    Batch batch{.requests = requests, .drafts = drafts, .survivals = {}, .caps = {}};
    batch.other_rows = static_cast<std::int64_t>(random.next_below(3));
    for (std::int64_t r = 0; r < requests; ++r) {
        double survival = 1;
        for (std::int64_t k = 0; k < drafts; ++k) {
            survival *= random.next_uniform();
            if (random.next_below(3) == 0) survival = std::floor(4 * survival) / 4;
            batch.survivals.push_back(static_cast<float>(survival));
        }
        batch.caps.push_back(
            static_cast<std::int32_t>(random.next_below(static_cast<std::uint64_t>(drafts) + 1)));
    }
    return batch;
}

VerifyCurve random_curve(RandomStream& random, std::int64_t rows, CurveRules rules) {
    std::vector<CurvePoint> points;
    for (std::int64_t at = 1; at < rows; at += 1 + static_cast<std::int64_t>(random.next_below(4)))
        points.push_back({at, 1 + 3 * random.next_uniform()});
    points.push_back({rows, 4});
    return *VerifyCurve::make(points, rules);
}

VerifyCost cost_of(std::vector<CurvePoint> points, CurveRules rules = {}) {
    return VerifyCost(*VerifyCurve::make(points, rules));
}

double rate_of(const VerifyBatch& batch, const VerifyCost& cost,
               const std::vector<std::int64_t>& verified) {
    double tokens = static_cast<double>(batch.requests);
    std::int64_t rows = batch.rows_min();
    for (std::int64_t r = 0; r < batch.requests; ++r) {
        const std::int64_t k = verified[static_cast<std::size_t>(r)];
        rows += k;
        for (std::int64_t i = 0; i < k; ++i)
            tokens += static_cast<double>(
                batch.survivals[static_cast<std::size_t>(r * batch.drafts + i)]);
    }
    const auto step = cost.curve().step(rows);
    return step ? tokens / (cost.forward_ms(*step) + cost.sampler_ms(batch.requests)) : 0;
}

// Every choice of beginnings.
template <typename Visit>
void for_each_choice(const VerifyBatch& batch, const Visit& visit) {
    std::vector<std::int64_t> verified(static_cast<std::size_t>(batch.requests), 0);
    for (;;) {
        visit(verified);
        std::int64_t r = 0;
        for (; r < batch.requests; ++r) {
            std::int64_t& own = verified[static_cast<std::size_t>(r)];
            if (own < batch.cap(r)) {
                ++own;
                break;
            }
            own = 0;
        }
        if (r == batch.requests) return;
    }
}

RC_GTEST_PROP(VerifyBudget, IsTheBestOfAllChoices, (std::uint64_t seed)) {
    RandomStream random(seed);
    const auto requests = static_cast<std::int64_t>(1 + random.next_below(3));
    const auto drafts = static_cast<std::int64_t>(1 + random.next_below(3));
    const Batch batch = random_batch(random, requests, drafts);
    const CurveRules rules = seed % 2 == 0 ? CurveRules{} : CurveRules::deployed();
    const VerifyCost cost(random_curve(random, 14, rules));
    double best = 0;
    for_each_choice(batch.view(), [&](const std::vector<std::int64_t>& verified) {
        best = std::max(best, rate_of(batch.view(), cost, verified));
    });
    BudgetSolver solver;
    const BudgetChoice choice = solver.choose(batch.view(), cost);
    RC_ASSERT(std::abs(choice.rate() - best) <= 1e-6 * best);
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(requests));
    solver.allocate(batch.view(), choice.drafts, lengths);
    std::vector<std::int64_t> verified(lengths.begin(), lengths.end());
    for (std::int64_t& v : verified)
        --v;
    RC_ASSERT(std::abs(rate_of(batch.view(), cost, verified) - best) <= 1e-6 * best);
}

RC_GTEST_PROP(VerifyBudget, OfAGroupIsTheBestOfAllChoices, (std::uint64_t seed)) {
    RandomStream random(seed);
    const std::vector<Batch> ranks = {random_batch(random, 2, 2), random_batch(random, 1, 3)};
    const std::vector<VerifyBatch> views = {ranks[0].view(), ranks[1].view()};
    const VerifyCost cost(random_curve(random, 12, {}));
    const double ms_per_row = random.next_below(3) == 0 ? 0 : 0.3 * random.next_uniform();
    double best = 0;
    const auto tokens_of = [](const VerifyBatch& batch, const std::vector<std::int64_t>& verified) {
        double tokens = static_cast<double>(batch.requests);
        for (std::int64_t r = 0; r < batch.requests; ++r)
            for (std::int64_t k = 0; k < verified[static_cast<std::size_t>(r)]; ++k)
                tokens += static_cast<double>(
                    batch.survivals[static_cast<std::size_t>(r * batch.drafts + k)]);
        return tokens;
    };
    for_each_choice(views[0], [&](const std::vector<std::int64_t>& a) {
        for_each_choice(views[1], [&](const std::vector<std::int64_t>& b) {
            const auto sum = [](const std::vector<std::int64_t>& v) {
                return std::accumulate(v.begin(), v.end(), std::int64_t{0});
            };
            const std::int64_t rows_a = views[0].rows_min() + sum(a);
            const std::int64_t rows_b = views[1].rows_min() + sum(b);
            const auto step = cost.curve().step(std::max(rows_a, rows_b));
            const double ms = step->ms + ms_per_row * static_cast<double>(rows_a + rows_b);
            best = std::max(best, (tokens_of(views[0], a) + tokens_of(views[1], b)) / ms);
        });
    });
    BudgetSolver solver;
    std::vector<std::int64_t> budgets(2);
    const BudgetChoice choice = solver.choose_group(views, cost, ms_per_row, budgets);
    RC_ASSERT(std::abs(choice.rate() - best) <= 1e-9 * best);
    RC_ASSERT(budgets[0] + budgets[1] == choice.drafts);
}

// A machine that takes longer for every further row never makes more drafts worth verifying.
RC_GTEST_PROP(VerifyBudget, FallsAsRowsCostMore, (std::uint64_t seed)) {
    RandomStream random(seed);
    const Batch batch = random_batch(random, 20, 5);
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    BudgetSolver solver;
    for (const double ms_per_row : {0.0, 0.01, 0.03, 0.1, 0.3, 1.0}) {
        std::vector<CurvePoint> points;
        for (std::int64_t rows = 1; rows <= 122; ++rows)
            points.push_back({rows, 10 + ms_per_row * static_cast<double>(rows)});
        const std::int64_t drafts = solver.choose(batch.view(), cost_of(points)).drafts;
        RC_ASSERT(drafts <= before);
        before = drafts;
    }
}

// More requests of the same kind: a smaller share of the drafts of each, on a convex curve.
TEST(VerifyBudget, ARequestsShareFallsWithTheLoad) {
    std::vector<CurvePoint> points;
    for (std::int64_t rows = 1; rows <= 1024; ++rows) {
        const auto n = static_cast<double>(rows);
        points.push_back({rows, 20 + 0.01 * n + 0.00004 * n * n});
    }
    const VerifyCost cost = cost_of(points);
    BudgetSolver solver;
    double before = 6;
    for (const std::int64_t requests : {1, 8, 32, 64, 128}) {
        Batch batch{.requests = requests, .drafts = 5, .survivals = {}, .caps = {}};
        for (std::int64_t r = 0; r < requests; ++r)
            for (const float survival : {0.7f, 0.53f, 0.42f, 0.34f, 0.28f})
                batch.survivals.push_back(survival);
        const BudgetChoice choice = solver.choose(batch.view(), cost);
        const double share =
            static_cast<double>(choice.drafts) / static_cast<double>(batch.requests);
        EXPECT_LE(share, before) << requests;
        before = share;
    }
    EXPECT_LT(before, 3);
}

RC_GTEST_PROP(VerifyBudget, AllocationIsTheTopInBatchOrder, (std::uint64_t seed)) {
    RandomStream random(seed);
    const Batch batch = random_batch(random, static_cast<std::int64_t>(random.next_below(12)), 4);
    std::vector<std::pair<float, std::int64_t>> order;
    for (std::int64_t r = 0; r < batch.requests; ++r)
        for (std::int64_t k = 0; k < batch.view().cap(r); ++k)
            order.emplace_back(-batch.survivals[static_cast<std::size_t>(4 * r + k)], 4 * r + k);
    std::sort(order.begin(), order.end());
    BudgetSolver solver;
    for (std::int64_t budget = 0; budget <= 4 * batch.requests + 1; ++budget) {
        std::vector<std::int32_t> lengths(static_cast<std::size_t>(batch.requests)), expected;
        expected.assign(lengths.size(), 1);
        for (std::size_t i = 0; i < order.size() && i < static_cast<std::size_t>(budget); ++i)
            ++expected[static_cast<std::size_t>(order[i].second / 4)];
        solver.allocate(batch.view(), budget, lengths);
        RC_ASSERT(lengths == expected);
    }
}

TEST(VerifyBudget, SureDraftsAreAllVerifiedAndHopelessOnesNot) {
    BudgetSolver solver;
    std::vector<CurvePoint> points;
    for (std::int64_t rows = 1; rows <= 64; ++rows)
        points.push_back({rows, 20 + 0.05 * static_cast<double>(rows)});
    const VerifyCost cost = cost_of(points);
    for (const float survival : {0.0f, 1.0f}) {
        Batch batch{
            .requests = 8, .drafts = 5, .survivals = std::vector<float>(40, survival), .caps = {}};
        EXPECT_EQ(solver.choose(batch.view(), cost).drafts, survival > 0 ? 40 : 0);
        EXPECT_EQ(solver.choose_stopping(batch.view(), cost).drafts, survival > 0 ? 40 : 0);
    }
}

TEST(VerifyBudget, NumbersOutOfRangeCountAsTheNearestSurvival) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const Batch odd{.requests = 3,
                    .drafts = 3,
                    .survivals = {nan, 0.9f, 0.8f, 3, 0.5f, 0.7f, -1, 2, nan},
                    .caps = {}};
    const Batch clean{
        .requests = 3, .drafts = 3, .survivals = {0, 0, 0, 1, 0.5f, 0.5f, 0, 0, 0}, .caps = {}};
    BudgetSolver solver;
    const VerifyCost cost = cost_of({{3, 10}, {4, 10.5}, {6, 11.5}, {12, 13}});
    EXPECT_EQ(solver.choose(odd.view(), cost).drafts, solver.choose(clean.view(), cost).drafts);
    std::vector<std::int32_t> lengths(3);
    solver.allocate(odd.view(), 3, lengths);
    EXPECT_EQ(lengths, (std::vector<std::int32_t>{1, 4, 1}));
}

// A stair behind a dear one is found by the walk to the end only.
TEST(VerifyBudget, LooksBeyondTheFirstFall) {
    const VerifyCost cost = cost_of({{2, 10}, {3, 20}, {8, 21}});
    const Batch batch{
        .requests = 2, .drafts = 3, .survivals = std::vector<float>(6, 0.95f), .caps = {}};
    BudgetSolver solver;
    EXPECT_EQ(solver.choose(batch.view(), cost).drafts, 6);
    EXPECT_EQ(solver.choose_stopping(batch.view(), cost).drafts, 0);
}

TEST(VerifyBudget, WithoutACurveEverythingIsVerified) {
    RandomStream random(7);
    const Batch batch = random_batch(random, 9, 5);
    BudgetSolver solver;
    const BudgetChoice choice = solver.choose(batch.view(), VerifyCost());
    EXPECT_EQ(choice.drafts, std::accumulate(batch.caps.begin(), batch.caps.end(), 0));
    EXPECT_EQ(choice.rate(), 0);
    std::vector<std::int64_t> budgets(1);
    const std::vector<VerifyBatch> ranks = {batch.view()};
    EXPECT_EQ(solver.choose_group(ranks, VerifyCost(), 0.1, budgets).drafts, choice.drafts);
}

TEST(VerifyBudget, NothingToDoIsNoTrouble) {
    BudgetSolver solver;
    const VerifyCost cost = cost_of({{1, 10}});
    EXPECT_EQ(solver.choose({}, cost).drafts, 0);
    solver.allocate({}, 5, {});
    EXPECT_EQ(solver.choose_group({}, cost, 0, {}).drafts, 0);
    const std::vector<VerifyBatch> ranks(3);
    std::vector<std::int64_t> budgets(3, 9);
    EXPECT_EQ(solver.choose_group(ranks, cost, 1, budgets).drafts, 0);
    EXPECT_EQ(budgets, std::vector<std::int64_t>(3, 0));
}

TEST(VerifyBudget, RowsBeyondTheDeployedCurveAreNotPlanned) {
    const VerifyCost cost = cost_of({{1, 10}, {4, 10.1}}, CurveRules::deployed());
    BudgetSolver solver;
    const Batch four{
        .requests = 2, .drafts = 3, .survivals = std::vector<float>(6, 0.5f), .caps = {}};
    EXPECT_EQ(solver.choose(four.view(), cost).drafts, 2);
    const Batch five{
        .requests = 5, .drafts = 1, .survivals = std::vector<float>(5, 0.5f), .caps = {}};
    EXPECT_EQ(solver.choose(five.view(), cost).drafts, 0);
}

TEST(VerifyCase, FieldsAreNamedInErrors) {
    const auto error_of = [](const char* text) {
        return read_verify_case(*parse_json(text)).status().message();
    };
    EXPECT_EQ(error_of(R"({"id": "a", "drafts": 65})"), "drafts: 65, expected 0 to 64");
    EXPECT_EQ(error_of(R"({"id": "a", "drafts": 1, "curve": [[2, 1], [1, 1]]})"),
              "curve: 1 rows after 2, expected a rising number up to 1048576");
    EXPECT_EQ(error_of(R"({"id": "a", "drafts": 1, "curve": [], "updates": [[1.5, 1, 1, 1]]})"),
              "updates: expected rows of 4 numbers, the first 2 whole");
    EXPECT_EQ(error_of(R"({"id": "a", "drafts": 2, "curve": [], "updates": [], "sequences": [
                  {"paired": true, "drafted": true, "rates": [0.5], "prev": []}]})"),
              "rates: 1 rates, expected 2 or none");
    EXPECT_EQ(error_of(R"({"id": "a", "drafts": 2, "curve": [], "updates": [], "sequences": [],
                  "lengths": [4]})"),
              "lengths: expected numbers from 1 to 3");
}

}  // namespace
}  // namespace fathom
