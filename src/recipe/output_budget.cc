#include "recipe/output_budget.h"

#include <algorithm>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::int64_t kChatTokens = 8192;
constexpr std::int64_t kThinkingTokens = 65536;
constexpr std::int64_t kMaxEffortTokens = 131072;
constexpr int kMaxEffortPercent = 100;

std::int64_t default_tokens(const Conversation& conversation) {
    if (!conversation.thinking) return kChatTokens;
    const bool max_effort = conversation.effort_percent
                                ? *conversation.effort_percent == kMaxEffortPercent
                                : conversation.effort == ReasoningEffort::max;
    return max_effort ? kMaxEffortTokens : kThinkingTokens;
}

Status beyond_context(const OutputBudget& budget, std::int64_t completion_tokens) {
    // Both terms are not negative, so the unsigned sum does not wrap.
    const std::uint64_t total = static_cast<std::uint64_t>(budget.prompt_tokens) +
                                static_cast<std::uint64_t>(completion_tokens);
    return invalid_argument(
        "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in "
        "the messages, {} in the completion). Please reduce the length of the messages or "
        "completion.",
        budget.context_tokens_max, total, budget.prompt_tokens, completion_tokens);
}

}  // namespace

Result<std::int64_t> resolve_output_budget(const OutputBudget& budget,
                                           const Conversation& conversation) {
    FATHOM_CHECK(budget.prompt_tokens >= 0 && budget.context_tokens_max >= 0);
    const std::int64_t room = budget.context_tokens_max - budget.prompt_tokens;
    if (budget.max_tokens) {
        FATHOM_CHECK(*budget.max_tokens >= 0);
        if (*budget.max_tokens > room) return beyond_context(budget, *budget.max_tokens);
        return *budget.max_tokens;
    }
    if (room < 0) return beyond_context(budget, 0);
    return std::max<std::int64_t>(std::min(default_tokens(conversation), room), 1);
}

}  // namespace fathom
