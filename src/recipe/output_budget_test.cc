#include "recipe/output_budget.h"

#include <gtest/gtest.h>

#include <limits>

namespace fathom {
namespace {

std::string resolved(const OutputBudget& budget, const Conversation& conversation = {}) {
    const auto tokens = resolve_output_budget(budget, conversation);
    return tokens.ok() ? std::to_string(*tokens) : std::string(tokens.status().message());
}

std::string refusal(const std::string& limit, const std::string& total, const std::string& prompt,
                    const std::string& completion) {
    return "This model's maximum context length is " + limit + " tokens. However, you requested " +
           total + " tokens (" + prompt + " in the messages, " + completion +
           " in the completion). Please reduce the length of the messages or completion.";
}

TEST(OutputBudget, WithoutAWishItFollowsFromThinkingAndEffort) {
    const OutputBudget wide{.prompt_tokens = 5, .context_tokens_max = 1 << 20, .max_tokens = {}};
    EXPECT_EQ(resolved(wide, {.thinking = false, .effort = ReasoningEffort::max}), "8192");
    EXPECT_EQ(resolved(wide), "65536");
    EXPECT_EQ(resolved(wide, {.effort = ReasoningEffort::max}), "131072");
    EXPECT_EQ(resolved(wide, {.effort = ReasoningEffort::max, .effort_percent = 99}), "65536");
    EXPECT_EQ(resolved(wide, {.effort_percent = 100}), "131072");
}

TEST(OutputBudget, AFullContextLeavesOneTokenUnlessSomeAreAskedFor) {
    EXPECT_EQ(resolved({10, 10, {}}), "1");
    EXPECT_EQ(resolved({9, 10, {}}), "1");
    EXPECT_EQ(resolved({7, 10, {}}), "3");
    EXPECT_EQ(resolved({11, 10, {}}), refusal("10", "11", "11", "0"));
    EXPECT_EQ(resolved({10, 10, 1}), refusal("10", "11", "10", "1"));
    EXPECT_EQ(resolved({9, 10, 1}), "1");
}

TEST(OutputBudget, HugeWishesDoNotOverflow) {
    constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(resolved({10, 10, kHuge}),
              refusal("10", "9223372036854775817", "10", "9223372036854775807"));
}

}  // namespace
}  // namespace fathom
