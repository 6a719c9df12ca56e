// OpenAI Responses request bodies, lowered (recipe.md 4.5).
#pragma once

#include <string_view>

#include "base/result.h"
#include "recipe/protocols/lower_options.h"
#include "recipe/protocols/lowered_request.h"

namespace fathom {

// As lower_chat_request.
Result<LoweredRequest> lower_responses_request(std::string_view body, const LowerOptions& options);

}  // namespace fathom
