#include "cli/sim/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/sim/fleet_order.h"
#include "cli/test_folder.h"
#include "engine/model_shape.h"
#include "model/config.h"
#include "policy/cost_file.h"
#include "sim/fleet/fleet.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::string write_file(const std::string& name, const std::string& text) {
    const std::string path = test_folder() + name;
    std::ofstream(path) << text;
    return path;
}

// A folder with the configuration of a checkpoint: all that a shape needs.
std::string model_folder(const std::string& name, const std::string& source) {
    const std::string folder = test_folder() + name;
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(FATHOM_SOURCE_DIR "/" + source, folder + "/config.json",
                               std::filesystem::copy_options::overwrite_existing);
    return folder;
}

std::string tiny_model() {
    return model_folder("calibrated_tiny", "models/tiny/config.json");
}

// 900 us a step and 40 us a row, 0.002 us a pair of attention.
std::string cost_text() {
    const auto json = parse_json_file(FATHOM_SOURCE_DIR "/models/tiny/config.json");
    const auto config = parse_model_config(*json);
    const ModelShape shape = make_model_shape(*config);
    CostFit fit;
    fit.model.k_us[static_cast<std::size_t>(CostFeature::step)] = 900;
    fit.model.k_us[static_cast<std::size_t>(CostFeature::rows)] = 40;
    fit.model.k_us[static_cast<std::size_t>(CostFeature::attention_pairs)] = 0.002;
    return cost_file_text({.model = shape_digest(shape), .kernels = "test 1", .threads = 2}, fit);
}

Result<FleetOrder> read(const std::vector<std::string>& flags) {
    FleetOrderReader reader;
    std::vector<std::string> words = {"one-box", "--sim.model", tiny_model()};
    words.insert(words.end(), flags.begin(), flags.end());
    return reader.read(words);
}

TEST(Calibration, GivesTheStepCurvesOfTheFileAndAnEngineToEachCard) {
    const auto order = read({"--sim.calibration", write_file("cost.json", cost_text())});
    ASSERT_TRUE(order.ok()) << order.status().message();
    const FleetConfig& config = order->config;
    EXPECT_EQ(config.prefill.ranks, 1);
    EXPECT_EQ(config.prefill.engines, 4);
    EXPECT_EQ(config.decode.groups, 4);
    EXPECT_THAT(config.decode.speculation, IsEmpty());
    EXPECT_THAT(config.measured, UnorderedElementsAre("prefill", "decode"));
    const PrefillCost& prefill = config.prefill.policy.costs[0];
    EXPECT_NEAR(prefill.fixed_us(), 900, 90);
    EXPECT_NEAR(prefill.k1_us, 40, 8);
    const DecodeCost& decode = config.decode.policy.cost;
    EXPECT_NEAR(decode.c0_us, 900, 90);
    EXPECT_NEAR(decode.verify_us, 40, 8);
}

TEST(Calibration, KeysThatAreGivenWinAndAreNotCalledMeasured) {
    const std::string cost = write_file("cost.json", cost_text());
    const std::string fleet =
        write_file("calibrated.toml", "[sim]\npreset = \"16-cards\"\ncalibration = \"" + cost +
                                          "\"\nmodel = \"" + tiny_model() +
                                          "\"\n[prefill]\ntoken_us = 7.0\nengines = 3\n");
    FleetOrderReader reader;
    const auto order = reader.read({fleet, "--decode.ranks", "2"});
    ASSERT_TRUE(order.ok()) << order.status().message();
    EXPECT_EQ(order->config.prefill.policy.costs[3].k1_us, 7);
    EXPECT_EQ(order->config.prefill.engines, 3);
    EXPECT_EQ(order->config.decode.ranks, 2);
    EXPECT_EQ(order->config.decode.groups, 8);
    EXPECT_THAT(order->config.measured, UnorderedElementsAre("decode"));
    const auto said = reader.read({fleet, "--sim.measured", "prefill"});
    ASSERT_TRUE(said.ok()) << said.status().message();
    EXPECT_THAT(said->config.measured, UnorderedElementsAre("prefill"));
}

TEST(Calibration, AFleetOfTheMeasuredMachineRuns) {
    auto order = read({"--sim.calibration", write_file("cost.json", cost_text()), "--duration",
                       "20", "--sim.warmup_s", "5", "--load", "0.5"});
    ASSERT_TRUE(order.ok()) << order.status().message();
    const auto result = run_fleet(order->config);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_THAT(result->violations, IsEmpty());
    EXPECT_GT(result->totals.finished, 0);
}

struct Unfit {
    const char* name;
    std::string file;  // its text
    const char* message;
};
class UnfitCalibration : public testing::TestWithParam<Unfit> {};

TEST_P(UnfitCalibration, IsRefusedByFileAndField) {
    const std::string path = write_file("unfit_cost.json", GetParam().file);
    const auto order = read({"--sim.calibration", path});
    ASSERT_FALSE(order.ok());
    EXPECT_THAT(order.status().message(), HasSubstr("unfit_cost.json"));
    EXPECT_THAT(order.status().message(), HasSubstr(GetParam().message));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    return at == std::string::npos ? "" : text.replace(at, from.size(), to);
}

INSTANTIATE_TEST_SUITE_P(
    All, UnfitCalibration,
    testing::Values(
        Unfit{"CutOff", cost_text().substr(0, 60), "unfit_cost.json"},
        Unfit{"NoObject", "[]", "unfit_cost.json"},
        Unfit{"OtherFormat", replaced(cost_text(), "fathom-cost-model-1", "fathom-cost-model-9"),
              "format: \"fathom-cost-model-9\", expected \"fathom-cost-model-1\""},
        Unfit{"NegativeTime", replaced(cost_text(), ":900", ":-900"),
              "microseconds.step: expected a number that is not negative"},
        Unfit{"TooLong", replaced(cost_text(), ":900", ":900000000000900"),
              "us, expected at most 1e+09"},
        Unfit{"NoThreads", replaced(cost_text(), "\"threads\"", "\"treads\""), "threads"}),
    [](const testing::TestParamInfo<Unfit>& one) { return std::string(one.param.name); });

TEST(Calibration, AFileOfAnotherModelIsRefusedWithBothDigests) {
    const std::string path = write_file("other_cost.json", cost_text());
    FleetOrderReader reader;
    const auto order =
        reader.read({"one-box", "--sim.calibration", path, "--sim.model",
                     model_folder("calibrated_released", "tests/data/official_config.json")});
    ASSERT_FALSE(order.ok());
    EXPECT_THAT(order.status().message(), HasSubstr("other_cost.json: model: "));
    const auto without = reader.read({"one-box", "--sim.calibration", path});
    ASSERT_FALSE(without.ok());
    EXPECT_THAT(without.status().message(), HasSubstr("sim.model: missing"));
    const auto nowhere = read({"--sim.calibration", "/nowhere/cost.json"});
    EXPECT_THAT(nowhere.status().message(), HasSubstr("/nowhere/cost.json"));
}

}  // namespace
}  // namespace fathom
