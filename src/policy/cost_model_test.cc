#include "policy/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <type_traits>

#include "policy/cost_file.h"
#include "policy/cost_fit.h"
#include "policy/nnls.h"
#include "policy/share.h"
#include "policy/test_shapes.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;
using testing::released_shape;

CostModel some_model() {
    CostModel model;
    model.k_us = {2000, 60'000, 400, 420, 0.002, 0.0001, 0.01, 300, 50};
    return model;
}

CostModel any_model() {
    CostModel model;
    const std::vector<double> units = {5000, 1e5, 1000, 1000, 0.01, 0.001, 0.1, 1000, 500};
    for (std::size_t i = 0; i < kCostFeatures; ++i)
        model.k_us[i] = *rc::gen::element(0.0, 0.01, 0.3, 1.0) * units[i];
    return model;
}

ChunkRequest any_request() {
    ChunkRequest request;
    request.context = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
    request.remaining = *rc::gen::inRange<std::int64_t>(1, 100'000);
    const std::int64_t end = request.context + request.remaining;
    request.decoder_begin =
        *rc::gen::element(request.context, end, std::max<std::int64_t>(0, end - 140));
    request.first = *rc::gen::arbitrary<bool>();
    return request;
}

double cost(const CostModel& model, StepFeatures step, const ChunkRequest& request,
            std::int64_t rows) {
    if (rows > 0) step.add(request.slice(rows));
    return model.cost_us(step);
}

// Features refer to a shape: one that dies at once would be read afterwards.
static_assert(!std::is_constructible_v<StepFeatures, ModelShape>);
static_assert(std::is_constructible_v<StepFeatures, const ModelShape&>);

TEST(CostModel, TimeGrowsWithRowsAndContext) {
    const ModelShape shape = released_shape();
    EXPECT_TRUE(rc::check([&] {
        const CostModel model = any_model();
        const StepFeatures step(shape);
        ChunkRequest request = any_request();
        const auto rows = *rc::gen::inRange<std::int64_t>(1, 32'768);
        request.remaining = 50'000;
        RC_ASSERT(cost(model, step, request, rows) <=
                  cost(model, step, request, rows + 1) * (1 + 1e-12));
        ChunkRequest deeper = request;
        deeper.context += *rc::gen::inRange<std::int64_t>(0, 5000);
        deeper.decoder_begin = request.decoder_begin = 1 << 30;
        RC_ASSERT(cost(model, step, request, rows) <=
                  cost(model, step, deeper, rows) * (1 + 1e-12));
    }));
}

TEST(CostModel, RowsWithinIsTheInverseOfCost) {
    const ModelShape shape = released_shape();
    EXPECT_TRUE(rc::check([&] {
        const CostModel model = any_model();
        StepFeatures step(shape);
        if (*rc::gen::arbitrary<bool>()) step.add({.context = 500, .rows = 1, .decoder_rows = 1});
        const ChunkRequest request = any_request();
        const auto rows_max = *rc::gen::inRange<std::int64_t>(0, 40'000);
        const double budget_us = *rc::gen::inRange(0, 3'000'000);
        const std::int64_t rows = rows_within(model, step, budget_us, request, rows_max);
        const std::int64_t limit = std::min({request.remaining, rows_max, kStepRowsMax});
        RC_ASSERT(rows >= 0 && rows <= limit);
        if (rows > 0) RC_ASSERT(cost(model, step, request, rows) <= budget_us);
        if (rows < limit) RC_ASSERT(cost(model, step, request, rows + 1) > budget_us);
    }));
}

TEST(CostModel, ChunksObeyBudgetAlignmentAndCrumbs) {
    const ModelShape shape = released_shape();
    EXPECT_TRUE(rc::check([&] {
        const CostModel model = any_model();
        const StepFeatures step(shape);
        const ChunkRequest request = any_request();
        const auto rows_max = *rc::gen::inRange<std::int64_t>(0, 40'000);
        const double budget_us = *rc::gen::inRange(0, 3'000'000);
        const std::int64_t rows = fit_chunk(model, step, budget_us, request, rows_max);
        RC_ASSERT(rows >= 0 && rows <= std::min({request.remaining, rows_max, kStepRowsMax}));
        if (rows == 0) return;
        if (rows == request.remaining) {  // finishing pays for the decoder's tail too
            RC_ASSERT(cost(model, step, request, rows) <= budget_us * 1.10);
            return;
        }
        RC_ASSERT(cost(model, step, request, rows) <= budget_us);
        RC_ASSERT((request.context + rows) % kBlockTokens == 0);
        // A crumb stays only where the chunk that leaves none would be empty.
        if (request.remaining - rows < kTailAbsorb)
            RC_ASSERT(request.remaining - kTailAbsorb - kBlockTokens < 0 ||
                      (request.context + request.remaining - kTailAbsorb) / kBlockTokens ==
                          request.context / kBlockTokens);
    }));
}

TEST(CostModel, FinishingPaysForTheDecodersTail) {
    const ModelShape shape = released_shape();
    const CostModel model = some_model();
    const StepFeatures step(shape);
    const ChunkRequest request{.context = 0, .remaining = 512, .decoder_begin = 512 - 140};
    ChunkRequest longer = request;
    longer.remaining = longer.decoder_begin = 8192;
    const double encoder_only = cost(model, step, longer, 512);
    EXPECT_LT(fit_chunk(model, step, encoder_only, request, kStepRowsMax), 512);
    EXPECT_EQ(fit_chunk(model, step, cost(model, step, request, 512), request, kStepRowsMax), 512);
}

TEST(CostModel, ReadsOfExpertsSaturate) {
    const ModelShape shape = released_shape();
    const auto reads = [&](std::int64_t rows) {
        StepFeatures step(shape);
        step.add({.context = 0, .rows = rows, .decoder_rows = rows});
        return step.values()[static_cast<std::size_t>(CostFeature::reads)];
    };
    EXPECT_NEAR(reads(1), 6.0 / 384, 1e-12);
    EXPECT_GT(reads(400), 0.99);
    EXPECT_LE(reads(32'768), 1.0);
}

TEST(Nnls, FindsNonNegativeSolutions) {
    EXPECT_TRUE(rc::check([] {
        const std::size_t n = 5, m = 40;
        std::vector<double> truth, rows, targets, weights(m, 1.0);
        for (std::size_t i = 0; i < n; ++i)
            truth.push_back(*rc::gen::inRange(0, 4));
        for (std::size_t r = 0; r < m; ++r) {
            double target = 0;
            for (std::size_t i = 0; i < n; ++i) {
                rows.push_back(*rc::gen::inRange(0, 1000));
                target += rows.back() * truth[i];
            }
            targets.push_back(target);
        }
        const std::vector<double> found = solve_nnls(rows, targets, weights, n);
        double worst = 0;
        for (std::size_t r = 0; r < m; ++r) {
            double value = 0;
            for (std::size_t i = 0; i < n; ++i)
                value += rows[r * n + i] * found[i];
            worst = std::max(worst, std::abs(value - targets[r]));
        }
        for (const double x : found)
            RC_ASSERT(x >= 0);
        RC_ASSERT(worst <= 1e-3);
    }));
}

TEST(Nnls, WhatWouldBeNegativeIsZeroAndTheRestIsFittedWithoutIt) {
    // y = 3a − 2b has the non-negative fit of a alone.
    const std::vector<double> rows = {1, 0, 1, 1, 2, 1, 0, 1};
    const std::vector<double> targets = {3, 1, 4, -2};
    const std::vector<double> weights(4, 1.0);
    const std::vector<double> x = solve_nnls(rows, targets, weights, 2);
    EXPECT_NEAR(x[0], (3.0 + 1 + 8) / 6, 1e-9);
    EXPECT_EQ(x[1], 0);
    EXPECT_EQ(solve_nnls(std::vector<double>(8, 0.0), targets, weights, 2),
              std::vector<double>(2, 0.0));
}

std::vector<CostSample> samples_of(const CostModel& model, const ModelShape& shape) {
    std::vector<CostSample> samples;
    for (const std::int64_t context : {0, 1024, 16'384, 131'072, 524'288}) {
        for (const std::int64_t rows : {1, 16, 128, 512, 2048, 8192}) {
            for (const std::int64_t decoder :
                 {std::int64_t{0}, std::min<std::int64_t>(rows, 140)}) {
                StepFeatures step(shape);
                step.add({.context = context,
                          .rows = rows,
                          .decoder_rows = decoder,
                          .first = rows<100, .last = decoder> 0});
                if (context > 20'000) step.add({.context = 4096, .rows = rows});
                samples.push_back({step.values(), model.cost_us(step), 0.01});
            }
        }
    }
    return samples;
}

TEST(CostFit, FindsTheModelBehindItsSamples) {
    const ModelShape shape = released_shape();
    const CostModel truth = some_model();
    std::vector<CostSample> samples = samples_of(truth, shape);
    samples.push_back(samples[0]);
    samples.back().time_us *= 50;
    samples.back().spread = 0.5;  // disturbed: left out
    const CostFit fit = fit_cost_model(samples, shape);
    EXPECT_TRUE(fit.gates.passed()) << fit.gates.to_text();
    EXPECT_EQ(fit.gates.dropped, 1u);
    EXPECT_LT(fit.gates.mean_error, 1e-3);
    for (const CostSample& sample : samples_of(truth, shape))
        EXPECT_NEAR(fit.model.cost_us(sample.features), sample.time_us, 0.01 * sample.time_us);
}

TEST(CostFit, GatesRefuseWhatDoesNotFit) {
    const ModelShape shape = released_shape();
    std::vector<CostSample> samples = samples_of(some_model(), shape);
    for (std::size_t i = 0; i < samples.size(); i += 2)
        samples[i].time_us *= 1.6;
    const CostFit fit = fit_cost_model(samples, shape);
    EXPECT_FALSE(fit.gates.passed());
    EXPECT_THAT(fit.gates.to_text(), HasSubstr("not passed"));
}

TEST(CostFit, AFewSamplesGiveOneSpeedForAllArithmetic) {
    const ModelShape shape = released_shape();
    const auto sample = [&](std::int64_t rows, std::int64_t decoder) {
        const Slice slice{.context = 0,
                          .rows = rows,
                          .decoder_rows = decoder,
                          .logits_rows = decoder > 0 ? 1 : 0,
                          .last = decoder > 0};
        StepFeatures step(shape);
        step.add(slice);
        CostSample made;
        made.features = step.values();
        made.time_us = 1000 + 50'000 * step.values()[1] + useful_flops(shape, slice) * 1e-6;
        return made;
    };
    const std::vector<CostSample> samples = {sample(1, 1), sample(16, 16), sample(256, 0),
                                             sample(256, 140)};
    const CostModel model = fit_rough_model(samples, shape);
    const CostSample other = sample(5000, 140);
    EXPECT_NEAR(model.cost_us(other.features), other.time_us, 1e-6 * other.time_us);
    const CostModel single = fit_rough_model({samples.data(), 1}, shape);
    EXPECT_EQ(single.fixed_us(shape), 0);
    EXPECT_NEAR(single.cost_us(samples[0].features), samples[0].time_us, 1e-6);
}

TEST(CostFile, TheDigestTellsShapesApart) {
    ModelShape shape = released_shape();
    const std::string before = shape_digest(shape);
    EXPECT_EQ(before.size(), 16u);
    shape.decoder.back().layers += 1;
    EXPECT_NE(shape_digest(shape), before);
}

TEST(CostCorrection, FollowsSlowlyWithinLimits) {
    CostCorrection correction;
    EXPECT_EQ(correction.scale(), 1);
    correction.observe(100, 1e9);  // one outlier moves it by 0.6 % at most
    EXPECT_LT(correction.scale(), 1.0061);
    for (int i = 0; i < 1000; ++i)
        correction.observe(100, 120);
    EXPECT_NEAR(correction.scale(), 1.2, 1e-3);
    EXPECT_FALSE(correction.drifted());
    for (int i = 0; i < 1000; ++i)
        correction.observe(100, 130);
    EXPECT_TRUE(correction.drifted());
    for (int i = 0; i < 2000; ++i)
        correction.observe(100, 10);
    EXPECT_NEAR(correction.scale(), std::exp(-0.3), 1e-3);
    correction.observe(0, 10);
    correction.observe(10, 0);
}

Result<CostModel> parsed(const std::string& text, const CostIdentity& expected) {
    FATHOM_ASSIGN(const Json file, parse_json(text));
    return read_cost_file(file, expected);
}

TEST(CostFile, IsReadBackAndRefusedElsewhere) {
    const CostIdentity identity{.model = "abc", .kernels = "x86-avx2/0.1.0", .threads = 2};
    CostFit fit;
    fit.model = some_model();
    const std::string text = cost_file_text(identity, fit);
    const Result<CostModel> model = parsed(text, identity);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    EXPECT_EQ(model->k_us, fit.model.k_us);
    CostIdentity other = identity;
    other.threads = 4;
    EXPECT_EQ(parsed(text, other).status().message(),
              "threads: the file was measured with \"2\", this is \"4\"; calibrate again");
    other = identity;
    other.model = "def";
    EXPECT_THAT(parsed(text, other).status().message(), HasSubstr("model: the file"));
    other = identity;
    other.kernels = "reference/0.1.0";
    EXPECT_THAT(parsed(text, other).status().message(), HasSubstr("kernels: the file"));
    for (const auto& [from, to, message] : std::vector<std::array<const char*, 3>>{
             {"\"threads\":", "\"cores\":2,\"threads\":", "cores: no such field"},
             {"\"rows\":", "\"columns\":1,\"rows\":", "microseconds: columns: no such field"},
             {"\"samples\":0", "\"samples\":-1", "samples: -1, expected at least 0"},
             {"\"mean_error\":0.0", "\"mean_error\":5.0", "mean_error: 5.0, expected a number"}}) {
        std::string changed = text;
        ASSERT_NE(changed.find(from), std::string::npos) << from;
        changed.replace(changed.find(from), std::string(from).size(), to);
        EXPECT_THAT(parsed(changed, identity).status().message(), HasSubstr(message));
    }
    std::string broken = text;
    broken.replace(broken.find("\"rows\":400"), 10, "\"rows\":-40");
    EXPECT_EQ(parsed(broken, identity).status().message(),
              "microseconds.rows: expected a number that is not negative");
    for (std::size_t cut = 0; cut + 2 < text.size(); cut += 7)
        EXPECT_FALSE(parsed(text.substr(0, cut), identity).ok());
}

TEST(ShareBudget, ShortPromptsGoFirstAndTheOldestGetsOn) {
    using Shares = std::vector<double>;
    EXPECT_EQ(share_budget(100, Shares{}), Shares{});
    EXPECT_EQ(share_budget(100, Shares{500}), Shares{100});
    EXPECT_EQ(share_budget(100, Shares{60, 40}), (Shares{60, 40}));
    EXPECT_EQ(share_budget(100, Shares{500, 10}), (Shares{25, 10}));  // the step ends early
    EXPECT_EQ(share_budget(100, Shares{500, 400}), (Shares{25, 75}));
    EXPECT_EQ(share_budget(100, Shares{500, 50, 20, 30}), (Shares{25, 0, 20, 30}));
    EXPECT_EQ(share_budget(100, Shares{10, 500, 500}), (Shares{10, 25, 0}));
    EXPECT_EQ(share_budget(0, Shares{5}), Shares{0});
    EXPECT_EQ(share_budget(100, Shares{0, 500}), (Shares{0, 25}));
}

TEST(ShareBudget, NeverGivesMoreThanThereIs) {
    EXPECT_TRUE(rc::check([] {
        const double budget = *rc::gen::inRange(1, 1000);
        std::vector<double> needs;
        for (int i = *rc::gen::inRange(1, 12); i > 0; --i)
            needs.push_back(*rc::gen::inRange(1, 2000));
        const std::vector<double> shares = share_budget(budget, needs);
        double sum = 0;
        for (std::size_t i = 0; i < needs.size(); ++i) {
            RC_ASSERT(shares[i] >= 0 && shares[i] <= needs[i]);
            sum += shares[i];
        }
        RC_ASSERT(sum <= budget * (1 + 1e-12));
        RC_ASSERT(shares[0] >= std::min(needs[0], kOldestShare * budget));
    }));
}

}  // namespace
}  // namespace fathom
