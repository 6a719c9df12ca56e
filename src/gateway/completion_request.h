// OpenAI Completions bodies: a prompt that is text, ids, or a text with a hole (`suffix`).
#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "gateway/generation.h"
#include "recipe/protocols/lower_options.h"
#include "recipe/protocols/lowered_request.h"

namespace fathom {

struct CompletionRequest {
    LoweredRequest settings;  // all but the conversation
    std::variant<RawText, std::vector<TokenId>> prompt;
};

// What Completions shares with Chat is read and checked as a chat in the profile `open` does it,
// whichever the profile is: the reference has no Completions. Errors are invalid_argument.
Result<CompletionRequest> lower_completion_request(std::string_view body,
                                                   const LowerOptions& options);

}  // namespace fathom
