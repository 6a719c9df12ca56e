#include "policy/prefill_cost_file.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "policy/test_prefill_fleet.h"

namespace fathom {
namespace {

const PrefillCostIdentity kIdentity{
    .model = "0123456789abcdef", .kernels = "build-7", .ranks = 4, .card = "card A"};

// On a grid, of a machine whose time for q tokens after c is `slice_us`.
std::vector<PrefillSample> measure(const auto& slice_us) {
    std::vector<PrefillSample> samples;
    for (const std::int64_t context : {0, 1024, 16'384, 65'536, 262'144, 1'000'000}) {
        for (const std::int64_t tokens : {1, 128, 512, 2048, 8192, 32'768}) {
            for (const int slices : {1, 2}) {
                PrefillSample sample;
                sample.slices.assign(static_cast<std::size_t>(slices),
                                     {.context = context, .tokens = tokens});
                sample.time_us = 5000 + slices * slice_us(tokens, context);
                samples.push_back(sample);
            }
        }
    }
    return samples;
}

double quadratic_us(std::int64_t tokens, std::int64_t context) {
    const auto q = static_cast<double>(tokens), c = static_cast<double>(context);
    return 200 + 15 * q + 2e-5 * q * (c + (q + 1) / 2);
}
// Steps in q, as of kernels with tiles, and a cliff in c.
double cliff_us(std::int64_t tokens, std::int64_t context) {
    return 3000 * std::ceil(static_cast<double>(tokens) / 4096) * (context > 60'000 ? 3 : 1);
}

TEST(PrefillCalibration, TakesTheSimplestThatPasses) {
    const auto pooled = calibrate_prefill(measure(quadratic_us));
    ASSERT_TRUE(pooled.ok());
    EXPECT_EQ(pooled->method, PrefillFitMethod::pooled);
    EXPECT_TRUE(pooled->gates.passed());
    const auto by_class = calibrate_prefill(measure([](std::int64_t q, std::int64_t c) {
        const double slower = c + q >= 262'144 ? 3 : c + q >= 65'536 ? 1.5 : 1;
        return slower * quadratic_us(q, c);
    }));
    ASSERT_TRUE(by_class.ok());
    EXPECT_EQ(by_class->method, PrefillFitMethod::by_class) << by_class->gates.to_text();
    EXPECT_TRUE(by_class->gates.passed());
    for (const PrefillCost& cost : by_class->costs)
        EXPECT_EQ(cost.k0_us, by_class->costs[0].k0_us);
    const auto table = calibrate_prefill(measure(cliff_us));
    ASSERT_TRUE(table.ok());
    EXPECT_EQ(table->method, PrefillFitMethod::table);
    EXPECT_TRUE(table->gates.passed()) << table->gates.to_text();
    EXPECT_TRUE(table->costs[0].check().ok());
    EXPECT_FALSE(calibrate_prefill({}).ok());
    for (const auto& calibration : {pooled, by_class, table})
        EXPECT_GE(calibration->worst_error, calibration->gates.p99_error);
    EXPECT_TRUE(is_same_for_all(pooled->costs));
    EXPECT_FALSE(is_same_for_all(by_class->costs));
}

TEST(PrefillTable, NeverFallsWhateverWasMeasured) {
    EXPECT_TRUE(rc::check([] {
        std::vector<PrefillTable::Point> points = {{0, 1, 5}, {0, 2, 5}};
        for (int i = *rc::gen::inRange(0, 40); i > 0; --i)
            points.push_back({*rc::gen::inRange<std::int64_t>(0, 6) * 1000,
                              *rc::gen::inRange<std::int64_t>(1, 7) * 500,
                              static_cast<double>(*rc::gen::inRange(0, 100))});
        const auto table = PrefillTable::fit(points);
        RC_ASSERT(table.ok());
        const auto q = *rc::gen::inRange<std::int64_t>(0, 20'000);
        const auto c = *rc::gen::inRange<std::int64_t>(0, 10'000);
        RC_ASSERT(table->work_us(q + 1, c) >= table->work_us(q, c) - 1e-9);
        RC_ASSERT(table->work_us(q, c + 100) >= table->work_us(q, c) - 1e-9);
    }));
}

TEST(PrefillTable, IsInvertedAsCoefficientsAre) {
    const auto calibration = calibrate_prefill(measure(cliff_us));
    ASSERT_TRUE(calibration.ok());
    const PrefillCost cost = calibration->costs[0];
    EXPECT_TRUE(rc::check([&] {
        const PrefillRest rest{.context = 128 * *rc::gen::inRange<std::int64_t>(0, 8192),
                               .tokens = *rc::gen::inRange<std::int64_t>(1, kContextTokensMax)};
        const double budget = *rc::gen::element(0.0, 3e3, 2e4, 1.5e5, 1e9);
        const std::int64_t n = fit_slice(cost, budget, rest, kStepRowsMax, false);
        RC_ASSERT(n >= 0 && n <= std::min(rest.tokens, kStepRowsMax));
        RC_ASSERT(n == rest.tokens || n % 128 == 0);
        if (n > 0) RC_ASSERT(cost.work_us(n, rest.context) <= budget * 1.1 + 1e-6);
        if (n == rest.tokens || n + 128 > kStepRowsMax || rest.tokens - n < 512) return;
        RC_ASSERT(cost.work_us(n + 128, rest.context) > budget * (1 - 1e-9));
    }));
    EXPECT_TRUE(std::isfinite(cost.request_us(0, kContextTokensMax, true)));
}

TEST(PrefillCostFile, ComesBackAsItWas) {
    for (const auto& calibration :
         {calibrate_prefill(measure(quadratic_us)), calibrate_prefill(measure(cliff_us))}) {
        ASSERT_TRUE(calibration.ok());
        const auto file = parse_json(prefill_cost_file_text(kIdentity, *calibration));
        ASSERT_TRUE(file.ok());
        const auto costs = read_prefill_cost_file(*file, kIdentity);
        ASSERT_TRUE(costs.ok()) << costs.status().message();
        EXPECT_TRUE(is_same_for_all(*costs));  // one table, not four
        for (const std::int64_t tokens : {1, 777, 40'000})
            EXPECT_EQ((*costs)[2].request_us(100'000, tokens, true),
                      calibration->costs[2].request_us(100'000, tokens, true));
    }
}

TEST(PrefillCostFile, OfAnotherModelKernelEngineOrCardIsRefused) {
    const auto calibration = calibrate_prefill(measure(quadratic_us));
    ASSERT_TRUE(calibration.ok());
    const auto file = parse_json(prefill_cost_file_text(kIdentity, *calibration));
    ASSERT_TRUE(file.ok());
    for (int i = 0; i < 4; ++i) {
        PrefillCostIdentity other = kIdentity;
        const char* field = "";
        if (i == 0) field = "model", other.model = "fedcba9876543210";
        if (i == 1) field = "kernels", other.kernels = "build-8";
        if (i == 2) field = "ranks", other.ranks = 8;
        if (i == 3) field = "card", other.card = "card B";
        const auto costs = read_prefill_cost_file(*file, other);
        ASSERT_FALSE(costs.ok());
        EXPECT_EQ(costs.status().message().find(field), 0U) << costs.status().message();
    }
}

TEST(PrefillCostFile, RefusesWhatIsNoCost) {
    const auto calibration = calibrate_prefill(measure(cliff_us));
    ASSERT_TRUE(calibration.ok());
    const std::string text = prefill_cost_file_text(kIdentity, *calibration);
    const auto refused = [&](const std::string& from, const std::string& to) {
        std::string changed = text;
        const auto at = changed.find(from);
        if (at == std::string::npos) return false;
        changed.replace(at, from.size(), to);
        const auto file = parse_json(changed);
        return file.ok() && !read_prefill_cost_file(*file, kIdentity).ok();
    };
    EXPECT_TRUE(refused("fathom-prefill-cost-1", "fathom-prefill-cost-9"));
    EXPECT_TRUE(refused("\"k1_us\":", "\"k9_us\":"));
    EXPECT_TRUE(refused("\"k4_us\":", "\"k4_us\":-1,\"was\":"));
    EXPECT_TRUE(refused("\"contexts\":[0,", "\"contexts\":[5000,"));
    EXPECT_TRUE(refused("\"tokens\":[1,", "\"tokens\":[\"x\","));
    EXPECT_TRUE(refused("\"us\":[", "\"us\":[1e9,"));
    EXPECT_TRUE(refused("\"classes\":[", "\"classes\":[1,"));
    EXPECT_TRUE(refused("\"classes\":", "\"extra\":1,\"classes\":"));
    EXPECT_TRUE(refused("\"k4_us\":", "\"k9_us\":1,\"k4_us\":"));
    EXPECT_TRUE(refused("\"tokens\":", "\"rows\":[],\"tokens\":"));
    EXPECT_FALSE(read_prefill_cost_file(Json(), kIdentity).ok());
}

}  // namespace
}  // namespace fathom
