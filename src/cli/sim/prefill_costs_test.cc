#include "cli/sim/prefill_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/sim/calibration.h"
#include "cli/sim/fleet_order.h"
#include "cli/test_folder.h"
#include "policy/cost_file.h"
#include "policy/prefill_cost_file.h"
#include "sim/fleet/bound.h"
#include "sim/fleet/fleet.h"

namespace fathom {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const char* const kModel = FATHOM_SOURCE_DIR "/models/tiny";

std::string write_file(const std::string& name, const std::string& text) {
    const std::string path = test_folder() + name;
    std::ofstream(path) << text;
    return path;
}

// 20 us a token below 16 K, and 10 more with every length class.
std::string costs_text(std::int64_t ranks = 2, bool is_table = false) {
    const auto shape = measured_shape("", kModel);
    PrefillCalibration calibration;
    calibration.method = is_table ? PrefillFitMethod::table : PrefillFitMethod::by_class;
    for (std::size_t k = 0; k < kPrefillClasses; ++k) {
        PrefillCost& cost = calibration.costs[k];
        cost.k0_us = 6000;
        cost.k3_us = 0.01;
        if (is_table)
            cost.table = std::make_shared<const PrefillTable>(
                *PrefillTable::make({0}, {1, 128, 8192}, {100, 3000, 160'000}));
        else
            cost.k1_us = 20 + 10 * static_cast<double>(k);
    }
    return prefill_cost_file_text(
        {.model = shape_digest(*shape), .kernels = "test 1", .ranks = ranks, .card = "card A"},
        calibration);
}

Result<FleetOrder> read(const std::string& path, const std::vector<std::string>& flags = {}) {
    std::vector<std::string> words = {"one-box", "--sim.prefill_costs", path, "--sim.model",
                                      kModel};
    words.insert(words.end(), flags.begin(), flags.end());
    return FleetOrderReader().read(words);
}

std::string source_of(const FleetConfig& config, const std::string& key) {
    for (const FleetChange& change : config.changes)
        if (change.key == key) return change.source;
    return "none";
}

TEST(SimPrefillCosts, AreOfEachLengthClassOnEnginesOfTheirSize) {
    const std::string path = write_file("by_class.json", costs_text());
    const auto order = read(path);
    ASSERT_TRUE(order.ok()) << order.status().message();
    const FleetConfig& config = order->config;
    for (std::size_t k = 0; k < kPrefillClasses; ++k)
        EXPECT_EQ(config.prefill.policy.costs[k].k1_us, 20 + 10 * static_cast<double>(k));
    EXPECT_EQ(config.prefill.ranks, 2);
    EXPECT_EQ(config.prefill.engines, 2);
    EXPECT_THAT(config.measured, UnorderedElementsAre("prefill"));
    EXPECT_THAT(config.derived, IsEmpty());
    EXPECT_THAT(order->inputs, Contains(path));
    EXPECT_EQ(source_of(config, "prefill.token_us"),
              "sim.prefill_costs " + path + ", of prompts below 16 K; longer ones have others");
    EXPECT_EQ(source_of(config, "prefill.ranks"), "sim.prefill_costs " + path);
    EXPECT_EQ(source_of(config, "sim.measured"), "sim.prefill_costs " + path);
    EXPECT_THAT(
        fleet_assumptions(config),
        Contains(Field(&Assumption::value, "20 / 30 / 40 / 50 us on a card, by length class")));
}

TEST(SimPrefillCosts, OfEnginesThatTheCardsDoNotMakeAreRefused) {
    for (const std::int64_t ranks : {5, 8, 1024}) {
        const std::string path = write_file("large.json", costs_text(ranks));
        const auto order = read(path);
        ASSERT_FALSE(order.ok());
        EXPECT_EQ(order.status().message(),
                  path + ": ranks: " + std::to_string(ranks) +
                      ", expected at most the fleet's 4 prefill cards; or say prefill.engines");
    }
    const std::string path = write_file("large.json", costs_text(8));
    const auto said = read(path, {"--prefill.engines", "2"});
    ASSERT_TRUE(said.ok()) << said.status().message();
    EXPECT_EQ(said->config.prefill_cards(), 16);
    EXPECT_EQ(source_of(said->config, "prefill.ranks"),
              "sim.prefill_costs " + path + "; prefill cards: 4 -> 16");
}

TEST(SimPrefillCosts, TellHowManyCardsTheyLeaveOut) {
    const std::string path = write_file("three.json", costs_text(3));
    const auto order = read(path);
    ASSERT_TRUE(order.ok()) << order.status().message();
    EXPECT_EQ(order->config.prefill_cards(), 3);
    EXPECT_EQ(source_of(order->config, "prefill.ranks"),
              "sim.prefill_costs " + path + "; prefill cards: 4 -> 3");
}

TEST(SimPrefillCosts, LeaveDecodeToItsOwnKeys) {
    const auto order = read(write_file("decode.json", costs_text()), {"--decode.ranks", "8"});
    ASSERT_TRUE(order.ok()) << order.status().message();
    EXPECT_THAT(order->config.derived, UnorderedElementsAre("decode"));
    EXPECT_EQ(order->config.prefill.policy.costs[1].k1_us, 30);
}

TEST(SimPrefillCosts, AKeyThatIsGivenWinsInAllClassesAndIsNotCalledMeasured) {
    const std::string path = write_file("given.json", costs_text());
    const auto order = read(path, {"--prefill.token_us", "20", "--prefill.engines", "3"});
    ASSERT_TRUE(order.ok()) << order.status().message();
    const FleetConfig& config = order->config;
    for (const PrefillCost& cost : config.prefill.policy.costs) {
        EXPECT_EQ(cost.k1_us, 20);  // also where it says what one class costs anyway
        EXPECT_EQ(cost.k0_us, 6000);
    }
    EXPECT_EQ(config.prefill.engines, 3);
    EXPECT_THAT(config.measured, IsEmpty());
    EXPECT_EQ(source_of(config, "prefill.token_us"), "flag --prefill.token_us");
}

TEST(SimPrefillCosts, WinOverACalibrationOfTheCostModel) {
    const auto shape = measured_shape("", kModel);
    CostFit fit;
    fit.model.k_us[static_cast<std::size_t>(CostFeature::step)] = 900;
    fit.model.k_us[static_cast<std::size_t>(CostFeature::rows)] = 40;
    const std::string model = write_file(
        "beside.json",
        cost_file_text({.model = shape_digest(*shape), .kernels = "test 1", .threads = 2}, fit));
    const auto order = read(write_file("over.json", costs_text()), {"--sim.calibration", model});
    ASSERT_TRUE(order.ok()) << order.status().message();
    EXPECT_EQ(order->config.prefill.policy.costs[2].k1_us, 40);
    EXPECT_EQ(order->config.prefill.ranks, 2);
    EXPECT_NEAR(order->config.decode.policy.cost.c0_us, 900, 90);
    EXPECT_THAT(order->config.measured, UnorderedElementsAre("prefill", "decode"));
}

TEST(SimPrefillCosts, OfATableAreReplacedByAllItsKeysOrNone) {
    const std::string path = write_file("table.json", costs_text(4, true));
    const auto order = read(path, {"--prefill.step_us", "7000"});
    ASSERT_TRUE(order.ok()) << order.status().message();
    for (const PrefillCost& cost : order->config.prefill.policy.costs) {
        EXPECT_NE(cost.table, nullptr);
        EXPECT_EQ(cost.k0_us, 7000);
    }
    EXPECT_TRUE(is_same_for_all(order->config.prefill.policy.costs));
    const auto one = read(path, {"--prefill.token_us", "50"});
    ASSERT_FALSE(one.ok());
    EXPECT_THAT(one.status().message(), HasSubstr("prefill.slice_us: 1 of them given"));
    const auto all = read(
        path, {"--prefill.token_us", "50", "--prefill.pair_us", "0", "--prefill.slice_us", "9"});
    ASSERT_TRUE(all.ok()) << all.status().message();
    EXPECT_EQ(all->config.prefill.policy.costs[3].table, nullptr);
    EXPECT_EQ(all->config.prefill.policy.costs[3].k5_us, 9);
}

TEST(SimPrefillCosts, FleetsOfThemRunAndAccountForAllTime) {
    for (const bool is_table : {false, true}) {
        auto order = read(write_file("run.json", costs_text(2, is_table)),
                          {"--duration", "20", "--sim.warmup_s", "5", "--load", "0.5"});
        ASSERT_TRUE(order.ok()) << order.status().message();
        const auto result = run_fleet(order->config);
        ASSERT_TRUE(result.ok()) << result.status().message();
        EXPECT_THAT(result->violations, IsEmpty());
        EXPECT_GT(result->totals.finished, 0);
    }
}

TEST(BoundRates, CountEachPromptAtTheCostOfItsClass) {
    const auto order = read(write_file("bound.json", costs_text()));
    ASSERT_TRUE(order.ok()) << order.status().message();
    FleetConfig config = order->config;
    SessionCall call;
    call.input_tokens = 300'000;
    const double by_class = bound_rates(config, {call}).prefill;
    config.prefill.policy.costs.fill(config.prefill.policy.costs[3]);
    EXPECT_EQ(bound_rates(config, {call}).prefill, by_class);
    call.input_tokens = 1000;
    EXPECT_LT(bound_rates(config, {call}).prefill, bound_rates(order->config, {call}).prefill);
}

struct Unfit {
    const char* name;
    std::string file;  // its text
    const char* message;
};
class UnfitPrefillCosts : public testing::TestWithParam<Unfit> {};

TEST_P(UnfitPrefillCosts, AreRefusedByFileAndField) {
    const auto order = read(write_file("unfit_prefill.json", GetParam().file));
    ASSERT_FALSE(order.ok());
    EXPECT_THAT(order.status().message(), HasSubstr("unfit_prefill.json"));
    EXPECT_THAT(order.status().message(), HasSubstr(GetParam().message));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    return at == std::string::npos ? "" : text.replace(at, from.size(), to);
}

INSTANTIATE_TEST_SUITE_P(
    All, UnfitPrefillCosts,
    testing::Values(
        Unfit{"CutOff", costs_text().substr(0, 90), "unfit_prefill.json"},
        Unfit{"Empty", "", "unfit_prefill.json"}, Unfit{"NoObject", "[]", "unfit_prefill.json"},
        Unfit{"OtherFormat", replaced(costs_text(), "fathom-prefill-cost-1", "fathom-cost-model-1"),
              "format: \"fathom-cost-model-1\", expected \"fathom-prefill-cost-1\""},
        Unfit{"OtherModel", replaced(costs_text(), "\"model\":\"", "\"model\":\"f"), "model: "},
        Unfit{"NoCard", replaced(costs_text(), "\"card\"", "\"cart\""), "card"},
        Unfit{"NoRanks", costs_text(0), "ranks: 0, expected 1 to 1024"},
        Unfit{"TooManyRanks", costs_text(2000), "ranks: 2000, expected 1 to 1024"},
        Unfit{"NegativeTime", replaced(costs_text(), "\"k1_us\":30", "\"k1_us\":-30"),
              "classes[1]: k1_us: -30.0, expected a number from 0 to 1e+09"},
        Unfit{"TooLong", replaced(costs_text(), "\"k0_us\":6000.0", "\"k0_us\":6e12"),
              "classes[0]: k0_us: 6"},
        Unfit{"NoCoefficient", replaced(costs_text(), "\"sync_us\"", "\"sink_us\""),
              "classes[0]: sync_us: missing"},
        Unfit{"UnknownField", replaced(costs_text(), "\"card\":", "\"cart\":1,\"card\":"),
              ": cart: no such field, expected one of format, model, kernels, ranks, card"},
        Unfit{"UnknownCoefficient", replaced(costs_text(), "\"k5_us\":", "\"k6_us\":1,\"k5_us\":"),
              "classes[0]: k6_us: no such field"},
        Unfit{"KeyTwice", replaced(costs_text(), "\"k5_us\":", "\"k0_us\":1,\"k5_us\":"),
              "classes[0].\"k0_us\": given twice"},
        Unfit{"OtherMethod", replaced(costs_text(), "by_class", "bogus"),
              "method: \"bogus\", expected one of pooled, by_class, table"},
        Unfit{"LargeError", replaced(costs_text(), "\"mean_error\":0.0", "\"mean_error\":5.0"),
              "mean_error: 5.0, expected a number from 0 to 1"},
        Unfit{"NegativeError", replaced(costs_text(), "\"p99_error\":0.0", "\"p99_error\":-0.5"),
              "p99_error: -0.5, expected a number from 0 to 1"},
        Unfit{"NegativeSamples", replaced(costs_text(), "\"samples\":0", "\"samples\":-1"),
              "samples: -1, expected at least 0"},
        Unfit{"FewerClasses", replaced(costs_text(), "\"classes\":[", "\"classes\":[],\"was\":["),
              "classes: expected an array of 4 objects"},
        Unfit{"FallingTable", replaced(costs_text(4, true), "160000.0", "16"),
              "classes[0]: prefill table: time 16 us"},
        Unfit{"LongTable", replaced(costs_text(4, true), "160000.0", "1e10"),
              "classes[0]: table.us: 1"},
        Unfit{"NarrowTable", replaced(costs_text(4, true), "[1,128,8192]", "[1,2,3]"),
              "classes[0]: table.tokens: up to 3, expected up to at least 128"}),
    [](const testing::TestParamInfo<Unfit>& one) { return std::string(one.param.name); });

TEST(SimPrefillCosts, NeedTheModelThatTheyMeasured) {
    const std::string path = write_file("modelless.json", costs_text());
    const auto without = FleetOrderReader().read({"one-box", "--sim.prefill_costs", path});
    ASSERT_FALSE(without.ok());
    EXPECT_THAT(without.status().message(), HasSubstr("sim.model: missing; sim.prefill_costs"));
    EXPECT_THAT(read("/nowhere/prefill.json").status().message(),
                HasSubstr("/nowhere/prefill.json"));
}

}  // namespace
}  // namespace fathom
