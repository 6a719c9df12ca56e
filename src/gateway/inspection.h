// Answers about requests that nothing is generated for: how many tokens they are, their ids, and
// the prompt as the model gets it. Pure; any thread. Errors are those of the request itself.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "gateway/api_request.h"
#include "gateway/generation.h"
#include "recipe/tokenizer.h"

namespace fathom {

enum class Inspection {
    count_messages,   // POST /v1/messages/count_tokens: {"input_tokens"}
    count_responses,  // POST /v1/responses/input_tokens: {"object","input_tokens"}
    tokenize,         // POST /v1/tokenize: {"count","ids","pieces"}
    prompt,           // POST /v1/prompt: the prompt, its segments, settings and parsing
};

struct InspectionCall {
    Inspection kind = Inspection::prompt;
    Api api = Api::chat;  // whose body it is: tokenize, prompt
    std::string_view body;
};

// `tokenize` also takes {"text", "special"}: with special (default false) the special tokens that
// the text spells are special.
Result<std::string> inspect_request(const InspectionCall& call, const ApiOptions& options,
                                    const EarlierItems& earlier_items, const Tokenizer& tokenizer,
                                    const GenerationLimits& limits);

}  // namespace fathom
