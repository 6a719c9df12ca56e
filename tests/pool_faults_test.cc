// The embedded store under faults and kills: a part of what `./dev bench pool_faults` does for
// long.
#include <gtest/gtest.h>

#include "pool/testing/crash_run.h"
#include "pool/testing/embedded_rig.h"
#include "pool/testing/fault_run.h"

namespace fathom::testing {
namespace {

TEST(PoolFaults, ADiskThatLiesFailsAndLosesPowerGivesNoWrongBytesAndNoHang) {
    const FaultRunReport report = run_on_lying_disk({.seed = 20'261'130, .reads = 30'000});
    EXPECT_EQ(report.wrong, 0) << report.first;
    EXPECT_EQ(report.unopened, 0) << report.first;
    EXPECT_GT(report.hits, report.reads / 10);
    EXPECT_GT(report.faults, 1'000);
    EXPECT_GT(report.power_losses, 3);
    EXPECT_GT(report.cancelled, 0);
    EXPECT_GT(report.late, 0);
}

TEST(PoolFaults, AProcessKilledAtAnyStepLosesNothingThatItHadStored) {
    const TemporaryFolder folder;
    const auto report = run_kills(
        {.directory = folder.path(), .seed = 20'261'130, .random_kills = 40, .step_stride = 6});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->faults, 0) << report->first;
    EXPECT_EQ(report->hangs, 0);
    EXPECT_GT(report->step_kills, 30);
    EXPECT_GT(report->hits, 500);
}

}  // namespace
}  // namespace fathom::testing
