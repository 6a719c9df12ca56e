// How many tokens an answer may have (recipe.md 2.13).
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "recipe/conversation.h"

namespace fathom {

struct OutputBudget {
    std::int64_t prompt_tokens = 0;          // images counted in full
    std::int64_t context_tokens_max = 0;     // prompt and answer together
    std::optional<std::int64_t> max_tokens;  // what the request asks for, if it does
};

// The answer's limit. What a request asks for is kept, or refused (invalid_argument with the
// message for the client) where prompt and answer do not fit. Otherwise the limit follows from
// thinking and effort, as far as there is room, and is at least 1; only a prompt beyond the context
// is refused.
Result<std::int64_t> resolve_output_budget(const OutputBudget& budget,
                                           const Conversation& conversation);

}  // namespace fathom
