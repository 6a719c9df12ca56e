#include "policy/verify_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fathom {
namespace {

// The table that was published, and the specification's own run of the model (dspark.md 7.2).
TEST(VerifyModel, ReproducesThePublishedTable) {
    struct Expected {
        double gain, verified, length, length_plain, accepted;
    };
    constexpr Expected kExpected[] = {{-0.0140, 4.40, 3.256, 3.266, 0.51},
                                      {0.0170, 3.77, 3.256, 3.317, 0.60},
                                      {0.0548, 3.39, 3.174, 3.299, 0.64},
                                      {0.1095, 3.07, 3.107, 3.315, 0.69}};
    const std::vector<VerifyTableRow> table = verify_table({});
    ASSERT_EQ(table.size(), 4U);
    double length = 0, length_plain = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        const VerifyGain& ours = table[i].ours;
        SCOPED_TRACE(ours.requests);
        EXPECT_NEAR(ours.gain, table[i].published, 0.01);
        EXPECT_NEAR(ours.gain, kExpected[i].gain, 0.01);
        EXPECT_NEAR(ours.verified, kExpected[i].verified, 0.2);
        EXPECT_NEAR(ours.length, kExpected[i].length, 0.05);
        EXPECT_NEAR(ours.length_plain, kExpected[i].length_plain, 0.05);
        EXPECT_NEAR(ours.accepted, kExpected[i].accepted, 0.03);
        // The gain by hand.
        EXPECT_NEAR(ours.gain,
                    ours.length / ours.length_plain * ours.step_plain_ms / ours.step_ms - 1, 1e-3);
        length += ours.length / 4;
        length_plain += ours.length_plain / 4;
    }
    EXPECT_NEAR(length, 3.20, 0.05);
    EXPECT_NEAR(length_plain, 3.29, 0.05);
}

VerifyGain gain_of(VerifyTrial trial, std::int64_t requests) {
    trial.steps = 24'000 / requests;
    return verify_gain({}, trial, requests, 5);
}

// Whose drafts are verified matters more than how many.
TEST(VerifyModel, OrdersTheAllocations) {
    for (const std::int64_t requests : {16, 32, 60, 96}) {
        SCOPED_TRACE(requests);
        const auto gain = [requests](VerifyAllocation allocation) {
            return gain_of({.allocation = allocation}, requests).gain;
        };
        const double shuffled = gain(VerifyAllocation::shuffled);
        EXPECT_LT(shuffled, 0);
        EXPECT_LT(shuffled, gain(VerifyAllocation::stale));
        EXPECT_LT(gain(VerifyAllocation::stale), gain(VerifyAllocation::newest));
        EXPECT_LT(gain(VerifyAllocation::even), gain(VerifyAllocation::stale));
        EXPECT_LT(gain(VerifyAllocation::shorter), 0);
    }
}

// All sure: everything is verified, and what is lost is exactly the path.
TEST(VerifyModel, SureConfidencesCostThePath) {
    const VerifyModel model;
    for (const std::int64_t requests : {16, 96}) {
        const VerifyGain sure = gain_of({.allocation = VerifyAllocation::sure}, requests);
        EXPECT_EQ(sure.verified, 5);
        EXPECT_EQ(sure.length, sure.length_plain);
        const double plain_ms = model.step_ms(6 * requests);
        EXPECT_NEAR(sure.gain, plain_ms / (plain_ms + model.path_ms()) - 1, 1e-9);
    }
}

TEST(VerifyModel, FallsBackWhereNothingIsGained) {
    const auto gain = [](std::int64_t requests) {
        return gain_of({.allocation = VerifyAllocation::fallback}, requests).gain;
    };
    EXPECT_NEAR(gain(16), 0, 1e-3);
    EXPECT_GT(gain(60), 0.045);
}

// dspark.md 7.3: noise hurts most, calibration and the table little.
TEST(VerifyModel, NoiseHurtsMoreThanCalibration) {
    for (const std::int64_t requests : {32, 96}) {
        SCOPED_TRACE(requests);
        const double good = gain_of({}, requests).gain;
        const double noisy = gain_of({.logit_error = 2}, requests).gain;
        EXPECT_LT(noisy, good - 0.03);
        for (const VerifyTrial& trial :
             {VerifyTrial{.logit_scale = 2}, VerifyTrial{.table_slope = 0.5},
              VerifyTrial{.table_slope = 2}, VerifyTrial{.stride = 32}}) {
            const double changed = gain_of(trial, requests).gain;
            EXPECT_LT(changed, good + 0.005);
            EXPECT_GT(changed, good - 0.03);
        }
        EXPECT_GT(gain_of({.has_path = false}, requests).gain, good + 0.01);
    }
}

TEST(VerifyModel, IsAFunctionOfItsSeed) {
    const VerifyTrial trial{.steps = 50};
    EXPECT_EQ(verify_gain({}, trial, 8, 4).gain, verify_gain({}, trial, 8, 4).gain);
    EXPECT_NE(verify_gain({}, trial, 8, 4).gain, verify_gain({}, trial, 8, 5).gain);
}

}  // namespace
}  // namespace fathom
