#include <gtest/gtest.h>

#include "sim/study/expert_study.h"

namespace fathom {
namespace {

TEST(ExpertStudy, EvenTrafficThatDoesNotDriftReachesTheSamplingFloor) {
    ExpertStudy study;
    study.shape = {.experts = 384, .ranks = 64, .slots = 7};
    study.layers = 2;
    const auto result = run_expert_study(study);
    ASSERT_TRUE(result.ok());
    // 1 + 2.39 · √(1 / 1,440), and what little the placement leaves.
    EXPECT_NEAR(result->realised, 1.063, 0.01);
    EXPECT_GE(result->expected, 1);
    study.drift_sigma = 0.3;
    EXPECT_GT(run_expert_study(study)->realised, result->realised + 0.05);
    study.is_balanced = false;
    EXPECT_GT(run_expert_study(study)->realised, 1.5);
    study.shape.ranks = 0;
    EXPECT_FALSE(run_expert_study(study).ok());
}

}  // namespace
}  // namespace fathom
