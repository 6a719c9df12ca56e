// Verification lengths against those of the deployed engine (golden/deepinfer; its README explains
// the fields).
#include <gtest/gtest.h>

#include "json_lines.h"
#include "policy/verify_case.h"
#include "support.h"

namespace fathom {
namespace {

TEST(VerifyBudgetGolden, LengthsAreThoseOfTheDeployedEngine) {
    FATHOM_NEED_SHARED("golden/deepinfer/budget.jsonl");
    const auto rows =
        testing::read_json_lines(testing::shared_path("golden/deepinfer/budget.jsonl"));
    int cases = 0;
    for (const Json& row : rows) {
        const auto verify_case = read_verify_case(row);
        ASSERT_TRUE(verify_case.ok()) << verify_case.status().message();
        EXPECT_EQ(deployed_lengths(*verify_case), verify_case->lengths) << verify_case->id;
        ++cases;
    }
    EXPECT_EQ(cases, 240);
}

}  // namespace
}  // namespace fathom
