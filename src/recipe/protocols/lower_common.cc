#include "recipe/protocols/lower_common.h"

#include <algorithm>
#include <array>
#include <utility>

#include "recipe/protocols/schema_check.h"
#include "recipe/spaced_json.h"
#include "recipe/strict_schema.h"

namespace fathom {
namespace {

constexpr std::size_t kToolNameBytesMax = 128;
constexpr std::size_t kStopSequencesMax = 16;
constexpr std::uint64_t kTopLogprobsMax = 20;
constexpr int kEffortMax = 100;

bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

bool has_json(std::string_view text) {
    constexpr std::string_view kWord = "json";
    return std::search(text.begin(), text.end(), kWord.begin(), kWord.end(),
                       [](char c, char w) { return c == w || c == w - 'a' + 'A'; }) != text.end();
}

// The tools in the form of Chat Completions, compact.
std::string tools_json(const std::vector<Tool>& tools) {
    std::string text = "[";
    for (const Tool& tool : tools) {
        text += text.size() == 1 ? "" : ",";
        text += R"({"type":"function","function":{"name":)";
        append_json_string(text, tool.name);
        text += R"(,"description":)";
        append_wire_json(text, tool.description ? Json(*tool.description) : Json());
        text += R"(,"parameters":)";
        append_wire_json(text, tool.parameters.value_or(Json()));
        text += R"(,"strict":)";
        append_wire_json(text, tool.strict ? Json(*tool.strict) : Json());
        text += tool.defer_loading ? R"(},"defer_loading":true})" : "}}";
    }
    return text + "]";
}

float top_p(const Sampling& sampling, Dialect dialect, bool thinking, bool has_tools) {
    constexpr float kThinkingTopP = 0.95F;
    const float requested = sampling.top_p.value_or(1.0F);
    if (dialect == Dialect::v41) return thinking ? std::max(kThinkingTopP, requested) : 1.0F;
    if (!thinking) return requested;
    return has_tools ? kThinkingTopP : 1.0F;
}

ThinkingStage initial_stage(const Conversation& conversation) {
    if (!conversation.thinking) return ThinkingStage::none;
    if (conversation.messages.empty() || !conversation.messages.back().prefix)
        return ThinkingStage::reasoning_start;
    const Message& prefix = conversation.messages.back();
    if (!prefix.content.empty()) return ThinkingStage::content_continuation;
    return prefix.reasoning_content.value_or("").empty() ? ThinkingStage::reasoning_start
                                                         : ThinkingStage::reasoning_continuation;
}

}  // namespace

// --------------------------------------------------------------------------------------- messages

void ContentBlocks::begin_block() {
    if (has_blocks_) text.append(std::string_view("\n\n"));
    has_blocks_ = true;
}

void ContentBlocks::add_text(std::string_view block) {
    begin_block();
    text.append(block);
}

void ContentBlocks::add_image(ImageSource source) {
    if (dialect_ == Dialect::v4) return add_text("[Unsupported Image]");
    begin_block();
    text.append_image();
    images.push_back(std::move(source));
}

void place_messages(std::vector<LoweredMessage> messages, LoweredRequest& request) {
    for (LoweredMessage& lowered : messages) {
        request.conversation.messages.push_back(std::move(lowered.message));
        for (ImageSource& image : lowered.images)
            request.image_sources.push_back(std::move(image));
    }
}

void drop_announcements(std::vector<LoweredMessage>& messages) {
    std::erase_if(messages, [](const LoweredMessage& lowered) {
        return !lowered.message.tools.empty() && lowered.message.content.empty();
    });
    for (LoweredMessage& lowered : messages)
        lowered.message.tools.clear();
}

bool mentions_json(const std::vector<LoweredMessage>& messages) {
    return std::any_of(messages.begin(), messages.end(), [](const LoweredMessage& lowered) {
        return has_json(lowered.message.content.text);
    });
}

Status settle_reasoning(std::vector<LoweredMessage>& messages, bool thinking,
                        MissingReasoning missing, std::string_view field) {
    for (LoweredMessage& lowered : messages) {
        Message& message = lowered.message;
        if (message.role != Role::assistant) continue;
        if (!thinking) {
            message.reasoning_content.reset();
        } else if (!message.reasoning_content) {
            if (missing == MissingReasoning::reject && !message.tool_calls.empty()) {
                return invalid_argument(
                    "The `{}` in the thinking mode must be passed back to the API.", field);
            }
            message.reasoning_content = "";
        }
    }
    return {};
}

// ---------------------------------------------------------------------------------- mode and model

Result<Dialect> dialect_of_model(const std::string& model, const LowerOptions& options) {
    const auto found = options.models.find(model);
    if (found != options.models.end()) return found->second;
    std::string names;
    for (const auto& [name, dialect] : options.models)
        names += (names.empty() ? "" : ", ") + name;
    return invalid_argument("The supported API model names are {}, but you passed {}.", names,
                            model);
}

Result<std::optional<RequestedEffort>> read_effort(Json* value, std::string_view name,
                                                   Profile profile) {
    if (value == nullptr || value->is_null()) return std::optional<RequestedEffort>();
    if (profile == Profile::open && value->is_integer()) {
        const bool too_large = value->kind() == Json::Kind::unsigned_integer;
        if (too_large || value->as_int64() < 1 || value->as_int64() > kEffortMax)
            return invalid_argument("Invalid {} value {}, the valid range of {} is [1, {}]", name,
                                    value->dump(), name, kEffortMax);
        return std::optional<RequestedEffort>({.percent = static_cast<int>(value->as_int64())});
    }
    if (!value->is_string())
        return wrong_type(*value, profile == Profile::open ? "string or integer" : "string or map");
    static constexpr std::array<std::string_view, 8> kNames = {"none", "minimal", "low",   "medium",
                                                               "high", "xhigh",   "ultra", "max"};
    static constexpr std::array<ReasoningEffort, 8> kEfforts = {
        ReasoningEffort::high, ReasoningEffort::low,   ReasoningEffort::low, ReasoningEffort::high,
        ReasoningEffort::high, ReasoningEffort::xhigh, ReasoningEffort::max, ReasoningEffort::max};
    FATHOM_ASSIGN(const std::size_t place, json_variant(*value, kNames));
    return std::optional<RequestedEffort>({.off = place == 0, .effort = kEfforts[place]});
}

Result<std::optional<bool>> read_thinking(Json* value, std::string_view expected) {
    if (value == nullptr || value->is_null()) return std::optional<bool>();
    static constexpr std::array<std::string_view, 3> kTypes = {"adaptive", "enabled", "disabled"};
    FATHOM_ASSIGN(Fields fields, Fields::of(*value, expected));
    FATHOM_ASSIGN(const std::size_t type, fields.variant("type", kTypes));
    FATHOM_RETURN_IF_ERROR(fields.optional_unsigned("budget_tokens", UINT64_MAX, "u64").status());
    return std::optional<bool>(kTypes[type] != "disabled");
}

Status settle_thinking(std::optional<bool> enabled, std::optional<RequestedEffort> effort,
                       const LowerOptions& options, LoweredRequest& request) {
    Conversation& conversation = request.conversation;
    if (effort && effort->percent && request.dialect == Dialect::v4)
        return invalid_argument("Model {} takes no numeric effort, only names", request.model);
    const bool by_effort = effort ? !effort->off : options.default_thinking;
    conversation.thinking = enabled.value_or(by_effort);
    conversation.effort = ReasoningEffort::none;
    if (!conversation.thinking) return {};
    conversation.effort = effort ? effort->effort : ReasoningEffort::high;
    if (effort) conversation.effort_percent = effort->percent;
    return {};
}

// ------------------------------------------------------------------------------------------- tools

Result<FunctionFields> read_function(Fields& fields) {
    FunctionFields function;
    FATHOM_ASSIGN(function.name, fields.string("name"));
    FATHOM_ASSIGN(function.description, fields.optional_string("description"));
    FATHOM_ASSIGN(function.strict, fields.optional_bool("strict"));
    if (Json* parameters = fields.present("parameters"))
        function.parameters = std::move(*parameters);
    return function;
}

Status check_tool_name(const std::string& name, std::string_view path) {
    if (name.empty()) {
        return invalid_argument(
            "Invalid '{}': empty string. Expected a string with minimum length 1, but got an empty "
            "string instead.",
            path);
    }
    if (!std::all_of(name.begin(), name.end(), is_name_char)) {
        return invalid_argument(
            "Invalid '{}': string does not match pattern. Expected a string that matches the "
            "pattern '^[a-zA-Z0-9_-]+$'.",
            path);
    }
    if (name.size() > kToolNameBytesMax) {
        return invalid_argument(
            "Invalid '{}': string too long. Expected a string with maximum length {}, but got a "
            "string with length {} instead.",
            path, kToolNameBytesMax, name.size());
    }
    return {};
}

Status check_tool_schema(const Json& schema, const std::string& function) {
    const Status status = check_json_schema(schema);
    if (!status.ok())
        return invalid_argument("Invalid schema for function '{}': {}", function, status.message());
    const Json* type = schema.find("type");
    if (type != nullptr && type->is_string() && type->as_string() == "object") return {};
    return invalid_argument(
        "Invalid schema for function '{}': schema must be a JSON Schema of 'type: \"object\"', got "
        "'type: {}'.",
        function, type == nullptr ? "null" : type->dump());
}

Result<Tool> lower_function(FunctionFields function, std::string_view path) {
    FATHOM_RETURN_IF_ERROR(check_tool_name(function.name, path));
    Tool tool{.name = std::move(function.name), .description = std::move(function.description)};
    tool.strict = function.strict;
    if (function.strict.value_or(false)) {
        FATHOM_ASSIGN(tool.parameters,
                      normalize_strict_parameters(function.parameters.value_or(Json())));
    } else if (!function.parameters) {
        tool.parameters = Json::object();
    } else {
        FATHOM_RETURN_IF_ERROR(check_tool_schema(*function.parameters, tool.name));
        tool.parameters = std::move(function.parameters);
    }
    return tool;
}

Status check_tools_together(const std::vector<Tool>& tools, bool strict_matters) {
    std::vector<std::string_view> names;
    names.reserve(tools.size());
    for (const Tool& tool : tools)
        names.push_back(tool.name);
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) != names.end())
        return invalid_argument("Tool names must be unique.");
    const auto is_strict = [](const Tool& tool) { return tool.strict.value_or(false); };
    const auto strict = std::count_if(tools.begin(), tools.end(), is_strict);
    if (strict_matters && strict != 0 && static_cast<std::size_t>(strict) != tools.size())
        return invalid_argument("Cannot use strict tool with non-strict tool in the same request");
    return {};
}

Status settle_tool_choice(RequestedChoice choice, Conversation& conversation) {
    std::vector<Tool>& tools = conversation.tools;
    conversation.tool_choice = choice.kind;
    if (tools.empty() && choice.kind != ToolChoice::none)
        conversation.tool_choice = ToolChoice::automatic;
    if (choice.kind == ToolChoice::none) tools.clear();
    if (tools.empty()) return {};
    if (choice.function) {
        const auto named = std::find_if(tools.begin(), tools.end(), [&](const Tool& tool) {
            return tool.name == *choice.function;
        });
        if (named == tools.end()) {
            return invalid_argument(
                "Invalid value for 'tool_call': no function named '{}' was specified in the "
                "'tools' parameter.",
                *choice.function);
        }
        tools = std::vector<Tool>{std::move(*named)};
        conversation.tool_choice = ToolChoice::required;
    }
    if (conversation.tool_choice == ToolChoice::required && conversation.thinking)
        return invalid_argument("Thinking mode does not support this tool_choice");
    return {};
}

// --------------------------------------------------------------------------- response format, rest

Status settle_schema_format(FormatSchema format, Conversation& conversation,
                            OutputConstraint& constraint) {
    if (format.strict) {
        FATHOM_ASSIGN(const Json strict, normalize_strict_format(format.schema));
        constraint = {ConstraintKind::json, wire_json(strict)};
    } else {
        const Status status = check_json_schema(format.schema);
        if (!status.ok()) return invalid_argument("Invalid json schema: {}", status.message());
        constraint = {ConstraintKind::json, wire_json(format.schema)};
    }
    conversation.response_format = {.kind = ResponseFormatKind::json_schema,
                                    .schema = std::move(format.schema)};
    return {};
}

Status check_temperature(const Sampling& sampling) {
    const float value = sampling.temperature.value_or(1.0F);
    if (value >= 0.0F && value <= 2.0F) return {};
    return invalid_argument("Invalid temperature value, the valid range of temperature is [0, 2]");
}

Status check_top_p(const Sampling& sampling) {
    const float value = sampling.top_p.value_or(1.0F);
    if (value > 0.0F && value <= 1.0F) return {};
    return invalid_argument("Invalid top_p value, the valid range of top_p is (0, 1.0]");
}

Status check_top_logprobs(std::optional<std::uint64_t> count) {
    if (count.value_or(0) <= kTopLogprobsMax) return {};
    return invalid_argument(
        "Invalid top_logprobs value, the valid range of top_logprobs is [0, 20].");
}

Status check_stop_sequences(const std::vector<std::string>& stops, bool is_list) {
    if (stops.size() > kStopSequencesMax)
        return invalid_argument("Stop string array too long: {}", stops.size());
    for (std::size_t i = 0; i < stops.size(); ++i) {
        if (!stops[i].empty()) continue;
        return invalid_argument(
            "Invalid 'stop{}': empty string. Expected a string with minimum length 1, but got an "
            "empty string instead.",
            is_list ? fmt::format("[{}]", i) : "");
    }
    return {};
}

std::int64_t max_tokens_bound(bool thinking, const LowerOptions& options) {
    return thinking ? options.thinking_max_tokens : options.chat_max_tokens;
}

Status check_max_tokens(std::optional<std::uint64_t> tokens, bool thinking,
                        const LowerOptions& options, std::string_view name) {
    const std::int64_t bound = max_tokens_bound(thinking, options);
    if (!tokens || (*tokens >= 1 && *tokens <= static_cast<std::uint64_t>(bound))) return {};
    return invalid_argument("Invalid {} value, the valid range of {} is [1, {}]", name, name,
                            bound);
}

void settle_generation(const Sampling& sampling, const LowerOptions& options,
                       LoweredRequest& request) {
    const Conversation& conversation = request.conversation;
    InferenceSettings& inference = request.inference;
    const bool has_tools = conversation.has_tools();
    const bool required = has_tools && conversation.tool_choice == ToolChoice::required;
    inference.temperature = conversation.thinking ? 1.0F : sampling.temperature.value_or(1.0F);
    inference.top_p = top_p(sampling, request.dialect, conversation.thinking, has_tools);
    request.parsing.valid_arguments = options.profile == Profile::open;
    if (options.profile ==
        Profile::open) {  // what the request says holds; defaults are the reference's
        inference.temperature = sampling.temperature.value_or(inference.temperature);
        inference.top_p = sampling.top_p.value_or(inference.top_p);
    }
    if (has_tools) {
        inference.output_constraint = {
            required ? ConstraintKind::tool_call_required : ConstraintKind::tool_call,
            tools_json(conversation.tools)};
    }
    request.parsing.parse_tool_calls = has_tools;
    request.parsing.starts_in_tool_calls = required;
    request.parsing.parse_json_output =
        conversation.response_format.kind == ResponseFormatKind::json_object;
    request.parsing.thinking_initial_stage = initial_stage(conversation);
    request.parsing.dsml_recovery = options.dsml_recovery;
    if (has_tools && options.dsml_recovery != DsmlRecovery::off) {
        for (const Tool& tool : conversation.tools)
            request.parsing.tool_names.push_back(tool.name);
    }
}

}  // namespace fathom
