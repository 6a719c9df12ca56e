#include "cli/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "cli/commands.h"
#include "cli/settings.h"
#include "cli/sim/fleet_order.h"
#include "cli/test_folder.h"
#include "policy/prefill_cost.h"
#include "sim/fleet/fleet.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;

const char* const kModel = FATHOM_SOURCE_DIR "/models/tiny";

// A model whose steps take the time that a cost says, on a clock of their own: what it computes is
// of no interest here.
class TimedModel final : public Model {
  public:
    TimedModel(std::unique_ptr<Model> model, ManualClock& clock, double jitter)
        : model_(std::move(model)), clock_(clock), jitter_(jitter) {}

    const ModelConfig& config() const override { return model_->config(); }
    const KvLayout& kv_layout() const override { return model_->kv_layout(); }
    const ModelOptions& options() const override { return model_->options(); }
    ComputePool& pool() override { return model_->pool(); }
    std::int64_t packed_bytes() const override { return model_->packed_bytes(); }
    std::int64_t workspace_bytes() const override { return model_->workspace_bytes(); }

    void forward(std::span<const StepSpan> spans, Rows, Probe*) override {
        double us = 5000;
        for (const StepSpan& span : spans) {
            const auto q = static_cast<double>(span.count), c = static_cast<double>(span.start);
            us += 40 * q + 0.002 * q * (c + (q + 1) / 2);
        }
        // Every other step takes longer: medians stay, spreads do not.
        is_late_ = !is_late_;
        clock_.advance_us(std::llround(is_late_ ? us * (1 + jitter_) : us));
    }

  private:
    std::unique_ptr<Model> model_;
    ManualClock& clock_;
    double jitter_;
    bool is_late_ = false;
};

class Calibrate : public testing::Test {
  protected:
    Calibrate() {
        const auto* test = testing::UnitTest::GetInstance()->current_test_info();
        dir_ = test_folder() + "fathom_calibrate_" + test->name();
        std::filesystem::create_directories(dir_);
        settings_.output = dir_ + "/cost_model.json";
        settings_.prefill_costs = dir_ + "/prefill.json";
        settings_.seconds = 86'400;
        settings_.context_max = 4096;
        settings_.json = true;
    }
    ~Calibrate() override { std::filesystem::remove_all(dir_); }

    // On the model of models/tiny with so many rows in a step.
    Status run(std::int64_t rows_max, double jitter = 0) {
        Settings settings;
        settings.stack.model_dir = kModel;
        settings.stack.engine.step_tokens_max = rows_max;
        settings.stack.threads = 1;
        auto loaded = load_model(settings.stack, 64);
        if (!loaded.ok()) return loaded.status();
        loaded->model = std::make_unique<TimedModel>(std::move(loaded->model), clock_, jitter);
        return calibrate(*loaded, settings_, clock_);
    }
    Result<FleetOrder> simulate(const std::vector<std::string>& flags) const {
        std::vector<std::string> words = {"one-box", "--sim.prefill_costs", settings_.prefill_costs,
                                          "--sim.model", kModel};
        words.insert(words.end(), flags.begin(), flags.end());
        return FleetOrderReader().read(words);
    }

    std::string dir_;
    CalibrateSettings settings_;
    ManualClock clock_;
};

TEST_F(Calibrate, WritesPrefillCostsThatASimulatedFleetTakes) {
    const Status status = run(1024);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(std::filesystem::exists(settings_.output));
    auto order = simulate({"--duration", "20", "--sim.warmup_s", "5", "--load", "0.5"});
    ASSERT_TRUE(order.ok()) << order.status().message();
    const PrefillSideConfig& prefill = order->config.prefill;
    EXPECT_EQ(prefill.ranks, 1);
    EXPECT_EQ(prefill.engines, 4);
    for (const PrefillCost& cost : prefill.policy.costs) {
        EXPECT_NEAR(cost.k0_us, 5000, 50);
        EXPECT_NEAR(cost.k1_us, 40, 1);
        EXPECT_NEAR(cost.k2_us, 0.002, 0.0002);
        EXPECT_EQ(cost.table, nullptr);
    }
    EXPECT_THAT(order->config.measured, testing::Contains("prefill"));
    EXPECT_EQ(order->config.decode.ranks, 4);  // the preset's
    const auto result = run_fleet(order->config);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_THAT(result->violations, testing::IsEmpty());
    EXPECT_GT(result->totals.finished, 0);
}

TEST_F(Calibrate, WritesNothingFromStepsThatVary) {
    const Status status = run(1024, 0.5);
    EXPECT_EQ(status.code(), StatusCode::unavailable);
    EXPECT_THAT(status.message(), HasSubstr("prefill.json is not written"));
    EXPECT_THAT(status.message(), HasSubstr("0 steady ones, expected at least 12"));
    EXPECT_FALSE(std::filesystem::exists(settings_.prefill_costs));
}

TEST_F(Calibrate, RefusesStepsTooSmallForPrefillBeforeItMeasures) {
    const Status status = run(127);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("calibrate.prefill_costs: 0 steps of prefill fit"));
    EXPECT_EQ(clock_.now_us(), 0);
    settings_.prefill_costs.clear();
    EXPECT_FALSE(run(127).code() == StatusCode::invalid_argument);
    EXPECT_GT(clock_.now_us(), 0);
}

TEST_F(Calibrate, RefusesOneFileForBothOutputsAndFoldersThatAreNotThere) {
    const auto words = [&](const std::string& costs) {
        return std::vector<std::string>{"--model",         kModel, "-o", settings_.output,
                                        "--prefill-costs", costs};
    };
    EXPECT_EQ(run_calibrate(words(settings_.output)), kExitFailed);
    EXPECT_EQ(run_calibrate(words("/nowhere/prefill.json")), kExitFailed);
    EXPECT_FALSE(std::filesystem::exists(settings_.output));
}

TEST(PrefillFitText, SaysWhatWasFittedAndHowWell) {
    PrefillCalibration calibration;
    calibration.method = PrefillFitMethod::by_class;
    calibration.gates.used = 96;
    calibration.gates.mean_error = 0.031;
    calibration.worst_error = 0.104;
    calibration.costs[2].k1_us = 43.5;
    const std::string text = prefill_fit_text(calibration);
    EXPECT_THAT(text, HasSubstr("coefficients by length class from 96 steps"));
    EXPECT_THAT(text, HasSubstr("off by 3.1 % in the mean and 10.4 % at worst"));
    EXPECT_THAT(text, testing::ContainsRegex("below 256 K +0 us a step, 43.5 us a token"));
}

TEST(CalibrateFiles, AreTwoOutputs) {
    const std::string folder = test_folder();
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_calibrate({"--model", "/nowhere", "-o", folder + "same.json", "--prefill-costs",
                             folder + "./same.json"}),
              kExitFailed);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("is named for two outputs"));
}

}  // namespace
}  // namespace fathom
