// What a request of any of the three protocols comes down to: the conversation to be rendered, the
// settings of generation, how the output is to be parsed and what the answer has to repeat
// (recipe.md 4). Lowering is pure: any thread, no clock, no network; pictures are named, not read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
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

// Sampling. In the profile `reference` temperature and top_p follow from mode and model (4.1); in
// `open` what the request says holds, and only its gaps are filled so.
struct InferenceSettings {
    std::optional<std::int64_t> max_tokens = {};  // absent: 2.13 says
    float temperature = 1.0F;
    float top_p = 1.0F;
    bool logprobs = false;
    std::optional<int> top_logprobs = {};  // 0..20
    std::optional<std::int64_t> seed = {};
    OutputConstraint output_constraint = {};
};

// What requests may ask for in the profile `open` alone; elsewhere each keeps its value here.
// Ranges are checked in lowering, except what only the tokenizer knows (that an id exists).
struct OpenSettings {
    std::int64_t choices = 1;                                      // Chat `n`, 1..16
    double frequency_penalty = 0.0;                                // [-2, 2]
    double presence_penalty = 0.0;                                 // [-2, 2]
    double repetition_penalty = 1.0;                               // [0.01, 10]
    std::vector<std::pair<std::int64_t, double>> logit_bias = {};  // id, [-100, 100]; ascending ids
    std::vector<std::int64_t> allowed_token_ids = {};              // empty: all; ascending
    std::vector<std::int64_t> stop_token_ids = {};  // beside the model's own; at most 16, ascending
    std::int64_t top_k = 0;                         // 0: off
    double min_p = 0.0;                             // [0, 1]
    std::int64_t min_tokens = 0;
    bool ignore_eos = false;
    bool logprobs_processed = false;               // `logprobs_mode`: processed instead of raw
    std::optional<std::string> prefix_cache = {};  // any, exact, none
    std::string cache_salt = {};
    std::string previous_response_id = {};  // Responses: see lower_responses_request
    bool store = true;                      // Responses: may be named by a later request
};

struct LoweredRequest {
    std::string model;  // as asked for
    Dialect dialect = Dialect::v41;
    Conversation conversation;
    InferenceSettings inference;
    OpenSettings open;
    ParsingOptions parsing;
    bool stream = false;
    bool include_usage = false;  // Chat: usage on every chunk of a stream
    // One for each image of the conversation, in its order; PromptSegment::image counts by it.
    std::vector<ImageSource> image_sources;
    ResponsesAnswerOptions responses;  // Responses: what the answer repeats, and its tools
};

}  // namespace fathom
