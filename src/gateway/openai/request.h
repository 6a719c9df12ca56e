// OpenAI request bodies to generation requests (recipe.md 4.1 to 4.3). Unknown fields are ignored
// and null counts as absent, as the reference component has it; a known field that this server
// cannot honour yet (tools, images, echo, log probabilities of the prompt, response formats) is
// refused with a message that says so, never dropped. Pure; any thread; safe on hostile input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gateway/generation.h"

namespace fathom {

struct ApiOptions {
    std::vector<std::string> model_names;  // accepted as "model"
    std::int64_t max_tokens = 393'216;     // largest max_tokens that may be asked for
    bool reference_sampling = false;       // ServerOptions::reference_sampling
};

enum class ApiKind { chat, completion };

struct ApiRequest {
    ApiKind kind = ApiKind::chat;
    GenerationRequest generation;
    bool has_seed = false;  // without one the caller draws a seed
    std::string model;
    bool stream = false;
    bool include_usage = false;
    bool thinking = false;  // a chat whose answer may begin with reasoning
};

// All errors are invalid_argument. Where two fields are at fault, the first in the reference's
// order of checks is reported.
Result<ApiRequest> parse_api_request(ApiKind kind, std::string_view body,
                                     const ApiOptions& options);

}  // namespace fathom
