// What a request of any of the three protocols comes down to: the conversation to be rendered, the
// settings of generation, how the output is to be parsed and what the answer has to repeat
// (recipe.md 4). Lowering is pure: any thread, no clock, no network; pictures are named, not read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recipe/conversation.h"
#include "recipe/parsing_options.h"
#include "recipe/protocols/image_source.h"
#include "recipe/protocols/responses_events.h"

namespace fathom {

// What generation is to be held to. `schema` is by kind: json – the compact schema, or empty for
// any JSON object; regex – the expression, not checked; tool calls – the compact array of function
// tools in the form of Chat Completions.
enum class ConstraintKind { none, json, regex, tool_call, tool_call_required };
struct OutputConstraint {
    ConstraintKind kind = ConstraintKind::none;
    std::string schema = {};
};

// Sampling as the reference resolves it from mode and model, not as the request has it (4.1).
struct InferenceSettings {
    std::optional<std::int64_t> max_tokens = {};  // absent: 2.13 says
    float temperature = 1.0F;
    float top_p = 1.0F;
    bool logprobs = false;
    std::optional<int> top_logprobs = {};  // 0..20
    std::optional<std::int64_t> seed = {};
    OutputConstraint output_constraint = {};
};

struct LoweredRequest {
    std::string model;  // as asked for
    Dialect dialect = Dialect::v41;
    Conversation conversation;
    InferenceSettings inference;
    ParsingOptions parsing;
    bool stream = false;
    bool include_usage = false;  // Chat: usage on every chunk of a stream
    // One for each image of the conversation, in its order; PromptSegment::image counts by it.
    std::vector<ImageSource> image_sources;
    ResponsesAnswerOptions responses;  // Responses: what the answer repeats, and its tools
};

}  // namespace fathom
