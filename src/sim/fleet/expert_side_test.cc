#include "sim/fleet/expert_side.h"

#include <gtest/gtest.h>

#include "sim/fleet/fleet.h"
#include "sim/fleet/test_fleet.h"

namespace fathom {
namespace {

using testing::run_checked;

FleetConfig small_fleet() {
    auto config = fleet_preset("one-box");
    EXPECT_TRUE(config.ok());
    config->duration_s = 60;
    config->warmup_s = 20;
    config->runs_out = true;
    ExpertConfig& experts = config->experts;
    experts.is_process = true;
    experts.experts = 48;
    experts.layers = 4;
    experts.drift_time_s = 30;
    experts.first_s = 10;
    for (ExpertRoleConfig* role : {&experts.prefill, &experts.decode}) {
        role->period_s = 10;
        role->drift_sigma = 0.5;
    }
    return *config;
}

TEST(ExpertSide, ARunIsAFunctionOfItsConfigurationAndSeed) {
    const FleetResult one = run_checked(small_fleet()), again = run_checked(small_fleet());
    EXPECT_EQ(one.hash, again.hash);
    FleetConfig other = small_fleet();
    other.experts.decode.drift_sigma = 0.4;
    EXPECT_NE(run_checked(other).hash, one.hash);
    for (const ExpertFigures& role : one.experts) {
        EXPECT_GT(role.plans, 2);
        EXPECT_GT(role.realised.ratio(), 1);
    }
}

TEST(ExpertSide, AKeyThatIsOffChangesNothing) {
    FleetConfig config = small_fleet();
    config.experts.is_process = false;
    const FleetResult off = run_checked(config);
    config.experts = {};
    EXPECT_EQ(run_checked(config).hash, off.hash);
    EXPECT_EQ(off.experts[0].plans, 0);
    EXPECT_EQ(off.series.front().moe_balance[1], 0);
}

TEST(ExpertSide, WithoutTheBalancerStepsWaitLongerForTheSlowestExpertRank) {
    FleetConfig config = small_fleet();
    const FleetResult with = run_checked(config);
    config.experts.is_balanced = false;
    const FleetResult without = run_checked(config);
    EXPECT_LT(with.experts[0].realised.ratio(), without.experts[0].realised.ratio());
    EXPECT_LT(with.prefill.share(CardTime::moe_imbalance),
              without.prefill.share(CardTime::moe_imbalance));
}

TEST(ExpertSide, AFailingGroupDropsItsSwitchAndTheRunGoesOn) {
    FleetConfig config = small_fleet();
    config.decode.groups = 2;
    config.experts.link_part = 1e-3;  // a switch is nearly always under way
    config.failures = {.card_mtbf_h = 0.02, .repair_s = 3};
    const FleetResult result = run_checked(config);
    EXPECT_GT(result.experts[0].switches.aborted + result.experts[1].switches.aborted, 0);
    EXPECT_GT(result.totals.resumed, 0);
    EXPECT_EQ(result.totals.finished, result.totals.arrived);
}

TEST(ExpertSide, OneCardARoleAndAnEmptyFleetAreEven) {
    FleetConfig config = small_fleet();
    config.prefill.ranks = 1;
    config.decode.ranks = 1;
    const FleetResult result = run_checked(config);
    EXPECT_DOUBLE_EQ(result.experts[0].realised.ratio(), 1);
    EXPECT_DOUBLE_EQ(result.experts[1].realised.ratio(), 1);
    config = small_fleet();
    config.workload.rate = 1e-6;
    const FleetResult empty = run_checked(config);
    EXPECT_EQ(empty.experts[0].switches.begun, 0);
    EXPECT_EQ(empty.experts[0].realised.ratio(), 1);
}

}  // namespace
}  // namespace fathom
