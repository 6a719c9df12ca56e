#include "recipe/vectors/request_facts.h"

#include <charconv>
#include <optional>

#include "recipe/vectors/rows.h"

namespace fathom {
namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
}

Json tools_facts(const std::vector<Tool>& tools) {
    Json facts = Json::array();
    for (const Tool& tool : tools) {
        Json fact = Json::object();
        fact.set("name", tool.name);
        fact.set("description", or_null(tool.description));
        fact.set("parameters", or_null(tool.parameters));
        fact.set("strict", or_null(tool.strict));
        if (tool.defer_loading) fact.set("defer_loading", true);
        facts.push_back(std::move(fact));
    }
    return facts;
}

std::string with_images(const MessageText& content, std::string_view spelling) {
    std::string text;
    std::size_t done = 0;
    for (const std::size_t at : content.images) {
        text += content.text.substr(done, at - done);
        text += spelling;
        done = at;
    }
    return text + content.text.substr(done);
}

Json message_facts(const Message& message, std::string_view spelling) {
    constexpr const char* kRoles[] = {"system", "user", "assistant", "tool", "latest_reminder"};
    Json fact = Json::object();
    fact.set("role", kRoles[static_cast<int>(message.role)]);
    fact.set("content", with_images(message.content, spelling));
    if (message.reasoning_content) fact.set("reasoning_content", *message.reasoning_content);
    if (message.role == Role::tool) fact.set("tool_call_id", message.tool_call_id);
    if (!message.content.images.empty())
        fact.set("images", static_cast<std::int64_t>(message.content.images.size()));
    if (message.prefix) fact.set("prefix", true);
    if (!message.tools.empty()) fact.set("tools", tools_facts(message.tools));
    Json calls = Json::array();
    for (const ToolCall& call : message.tool_calls)
        calls.push_back(Json::array({call.id, call.name, call.arguments}));
    if (!message.tool_calls.empty()) fact.set("tool_calls", std::move(calls));
    return fact;
}

Json inference_facts(const InferenceSettings& inference) {
    constexpr const char* kKinds[] = {"", "json", "regex", "tool_call", "tool_call_required"};
    Json facts = Json::object();
    facts.set("max_tokens", or_null(inference.max_tokens));
    facts.set("temperature", double{inference.temperature});
    facts.set("top_p", double{inference.top_p});
    facts.set("logprobs", inference.logprobs);
    facts.set("top_logprobs", or_null(inference.top_logprobs));
    facts.set("seed", or_null(inference.seed));
    Json constraint;
    if (inference.output_constraint.kind != ConstraintKind::none) {
        constraint.set("kind", kKinds[static_cast<int>(inference.output_constraint.kind)]);
        constraint.set("schema", inference.output_constraint.schema);
    }
    facts.set("output_constraint", std::move(constraint));
    return facts;
}

Json parsing_facts(const ParsingOptions& parsing) {
    constexpr const char* kStages[] = {"", "reasoning_start", "reasoning_continuation",
                                       "content_continuation"};
    Json facts = Json::object();
    facts.set("parse_tool_calls", parsing.parse_tool_calls);
    facts.set("starts_in_tool_calls", parsing.starts_in_tool_calls);
    facts.set("parse_json_output", parsing.parse_json_output);
    const bool has_stage = parsing.thinking_initial_stage != ThinkingStage::none;
    facts.set("thinking_initial_stage",
              has_stage ? Json(kStages[static_cast<int>(parsing.thinking_initial_stage)]) : Json());
    Json stops = Json::array();
    for (const std::string& stop : parsing.stop_sequences)
        stops.push_back(stop);
    facts.set("stop_sequences", std::move(stops));
    return facts;
}

void set_format_facts(const ResponseFormat& format, Json& facts) {
    constexpr const char* kFormats[] = {"text", "json_object", "json_schema", "regex"};
    facts.set("response_format", kFormats[static_cast<int>(format.kind)]);
    if (format.kind == ResponseFormatKind::json_schema) facts.set("response_schema", format.schema);
    if (format.kind == ResponseFormatKind::regex) facts.set("response_regex", format.regex);
}

Json ids_facts(const std::vector<std::int64_t>& ids) {
    Json facts = Json::array();
    for (const std::int64_t id : ids)
        facts.push_back(id);
    return facts;
}

}  // namespace

Json request_facts(const LoweredRequest& request, std::string_view image_spelling) {
    constexpr const char* kEfforts[] = {"", "low", "high", "xhigh", "max"};
    constexpr const char* kChoices[] = {"auto", "none", "required"};
    const Conversation& conversation = request.conversation;
    Json facts = Json::object();
    facts.set("model_version", request.dialect == Dialect::v4 ? "v4" : "v41");
    facts.set("thinking_mode", conversation.thinking);
    const bool has_effort = conversation.effort != ReasoningEffort::none;
    facts.set("reasoning_effort",
              has_effort ? Json(kEfforts[static_cast<int>(conversation.effort)]) : Json());
    if (conversation.effort_percent) facts.set("reasoning_effort", *conversation.effort_percent);
    facts.set("tool_choice", kChoices[static_cast<int>(conversation.tool_choice)]);
    set_format_facts(conversation.response_format, facts);
    facts.set("tools", tools_facts(conversation.tools));
    Json messages = Json::array();
    for (const Message& message : conversation.messages)
        messages.push_back(message_facts(message, image_spelling));
    facts.set("messages", std::move(messages));
    facts.set("inference", inference_facts(request.inference));
    facts.set("parsing", parsing_facts(request.parsing));
    facts.set("stream", request.stream);
    if (!request.responses.namespace_tools.empty()) {
        Json tools = Json::object();
        for (const auto& [full, home] : request.responses.namespace_tools)
            tools.set(full, Json::array({home.name_space, home.name}));
        facts.set("namespace_tool_map", std::move(tools));
    }
    return facts;
}

Json image_facts(const std::vector<ImageSource>& sources,
                 const std::vector<PromptSegment>& prompt) {
    constexpr const char* kDetails[] = {"low", "high", "original", "auto"};
    Json facts = Json::array();
    for (const PromptSegment& segment : prompt) {
        if (!segment.image) continue;
        if (*segment.image >= sources.size()) continue;
        const ImageSource& source = sources[*segment.image];
        const char* kind = source.kind == ImageSource::Kind::url ? "url" : "data_url";
        Json fact = Json::object();
        fact.set("kind", kind);
        fact.set("detail", kDetails[static_cast<int>(source.detail)]);
        fact.set("path", source.path);
        fact.set(kind, source.location);
        facts.push_back(std::move(fact));
    }
    return facts;
}

Json echo_facts(const ResponsesEcho& echo) {
    Json facts = Json::object();
    facts.set("instructions", or_null(echo.instructions));
    facts.set("max_output_tokens", or_null(echo.max_output_tokens));
    facts.set("temperature", double{echo.temperature});
    facts.set("top_p", double{echo.top_p});
    facts.set("top_logprobs", echo.top_logprobs);
    facts.set("user", or_null(echo.user));
    return facts;
}

Json whole_echo_facts(const ResponsesEcho& echo) {
    Json facts = echo_facts(echo);
    facts.set("reasoning", Json::object({{"effort", echo.reasoning_effort},
                                         {"summary", or_null(echo.reasoning_summary)}}));
    facts.set("text", Json::object({{"format", echo.text_format},
                                    {"verbosity", or_null(echo.text_verbosity)}}));
    facts.set("tool_choice", echo.tool_choice);
    facts.set("tools", echo.tools);
    facts.set("frequency_penalty", echo.frequency_penalty);
    facts.set("presence_penalty", echo.presence_penalty);
    facts.set("previous_response_id", or_null(echo.previous_response_id));
    facts.set("store", echo.store);
    return facts;
}

Json open_facts(const OpenSettings& open) {
    Json facts = Json::object();
    facts.set("n", open.choices);
    facts.set("frequency_penalty", open.frequency_penalty);
    facts.set("presence_penalty", open.presence_penalty);
    facts.set("repetition_penalty", open.repetition_penalty);
    Json bias = Json::object();
    for (const auto& [id, value] : open.logit_bias)
        bias.set(fmt::format("{}", id), value);
    facts.set("logit_bias", std::move(bias));
    facts.set("allowed_token_ids", ids_facts(open.allowed_token_ids));
    facts.set("stop_token_ids", ids_facts(open.stop_token_ids));
    facts.set("top_k", open.top_k);
    facts.set("min_p", open.min_p);
    facts.set("min_tokens", open.min_tokens);
    facts.set("ignore_eos", open.ignore_eos);
    facts.set("logprobs_mode", open.logprobs_processed ? "processed" : "raw");
    facts.set("prefix_cache", or_null(open.prefix_cache));
    facts.set("cache_salt", open.cache_salt);
    facts.set("previous_response_id", open.previous_response_id);
    facts.set("store", open.store);
    return facts;
}

const Json* fact_at(const Json& facts, std::string_view path) {
    const Json* at = &facts;
    while (at != nullptr && !path.empty()) {
        const std::size_t end = std::min(path.find('.'), path.size());
        const std::string_view key = path.substr(0, end);
        path.remove_prefix(std::min(end + 1, path.size()));
        if (at->is_array()) {
            std::size_t index = at->items().size();
            std::from_chars(key.data(), key.data() + key.size(), index);
            at = index < at->items().size() ? &at->items()[index] : nullptr;
        } else {
            at = at->find(key);
        }
    }
    return at;
}

}  // namespace fathom
