// A lowered request as JSON, in the form of the member "expect" of golden/recipe/prompts.jsonl: for
// comparison with recorded results, and to be looked at.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "recipe/prompt.h"
#include "recipe/protocols/lowered_request.h"

namespace fathom {

// Everything but the prompt, the images and what the answer repeats.
Json request_facts(const LoweredRequest& request, std::string_view image_spelling);
// The sources in the order of the prompt's images.
Json image_facts(const std::vector<ImageSource>& sources, const std::vector<PromptSegment>& prompt);
// What a response object repeats; rows of prompts.jsonl have the first six.
Json echo_facts(const ResponsesEcho& echo);
Json whole_echo_facts(const ResponsesEcho& echo);
// Of the profile `open`, under the names that requests use.
Json open_facts(const OpenSettings& open);

// The value at "inference.top_p", "messages.0.role"; nullptr where the path leads nowhere.
const Json* fact_at(const Json& facts, std::string_view path);

}  // namespace fathom
