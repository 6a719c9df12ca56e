// Requests of the terminal programs. They have the shape of the HTTP API, so that a batch line, a
// prompt and a request body mean the same: a body with `messages` is a chat, one with `prompt` a
// completion. What a body leaves open comes from the `sampling` and `chat` tables of the settings.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "cli/settings.h"
#include "gateway/owner.h"

namespace fathom {

// The value of the body's `thinking` member.
Json thinking_body(bool enabled);

// Errors are those of the API (gateway/api_request.h).
Result<PreparedRequest> prepare_request(Json body, const Settings& settings,
                                        const std::string& model_name, const OwnerRegistry& owners);

}  // namespace fathom
