// OpenAI Chat Completions request bodies, lowered (recipe.md 4.3).
#pragma once

#include <string_view>

#include "base/result.h"
#include "recipe/protocols/lower_options.h"
#include "recipe/protocols/lowered_request.h"

namespace fathom {

// Any bytes are safe. Errors are faults of the request (request_error.h), in the reference's order
// of checks where two are at fault.
Result<LoweredRequest> lower_chat_request(std::string_view body, const LowerOptions& options);

}  // namespace fathom
