// Answers of OpenAI Responses (recipe.md 4.5): an event stream of output items, or one response
// object. Log probabilities are written for content, not for reasoning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "recipe/protocols/answer_builder.h"

namespace fathom {

// Settings of the request that the response repeats.
struct ResponsesEcho {
    std::optional<std::string> instructions = {};
    std::optional<std::int64_t> max_output_tokens = {};
    Json reasoning_effort = {};  // a name or a number, as the request has it
    std::optional<std::string> reasoning_summary = {};
    float temperature = 1;
    float top_p = 1;
    Json text_format = Json::object({{"type", "text"}});
    std::optional<std::string> text_verbosity = {};
    Json tool_choice = "auto";
    Json tools = Json::array();  // each in the fixed form of recipe.md 4.5
    std::int64_t top_logprobs = 0;
    std::optional<std::string> user = {};
    // In the profile `reference` these are the constants here.
    double frequency_penalty = 0;
    double presence_penalty = 0;
    std::optional<std::string> previous_response_id = {};
    bool store = false;
};

struct NamespaceTool {
    std::string name_space;
    std::string name;
};

struct ResponsesAnswerOptions {
    ResponsesEcho echo = {};
    // By the name the model calls: a call is shown by its own name and its namespace.
    std::map<std::string, NamespaceTool> namespace_tools = {};
    std::vector<std::string> custom_tools = {};  // calls of these are custom_tool_call items
    bool tool_search = false;                    // `tool_search` is declared, run by the client
    // Unix seconds at the end of the answer; without it, those of its creation.
    std::function<std::int64_t()> unix_seconds = {};
    // A response object of more bytes says that it is not stored.
    std::size_t stored_bytes_max = std::numeric_limits<std::size_t>::max();
};

std::unique_ptr<AnswerBuilder> make_responses_answer(AnswerSettings settings,
                                                     ResponsesAnswerOptions options);

}  // namespace fathom
