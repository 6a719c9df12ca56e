#include "recipe/protocols/responses_request.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "recipe/protocols/lower_common.h"
#include "recipe/protocols/open_settings.h"
#include "recipe/protocols/responses_tools.h"
#include "recipe/spaced_json.h"

namespace fathom {
namespace {

// -------------------------------------------------------------------------------- other than input

struct ResponsesFields {
    std::optional<std::string> instructions;
    std::optional<std::uint64_t> max_output_tokens, top_logprobs;
    Sampling sampling;
    std::optional<bool> stream;
    std::optional<RequestedEffort> effort;
    RequestedChoice tool_choice;
    bool chooses_web_search = false;
    ResponseFormatKind format = ResponseFormatKind::text;
    FormatSchema schema;
    ResponsesEcho echo;
};

Status read_reasoning(Json* value, Profile profile, ResponsesFields& read) {
    if (value == nullptr || value->is_null()) return {};
    FATHOM_ASSIGN(Fields fields, Fields::of(*value, "struct ResponsesReasoningConfig"));
    FATHOM_ASSIGN(read.effort, read_effort(fields.find("effort"), "reasoning.effort", profile));
    if (const Json* effort = fields.present("effort")) read.echo.reasoning_effort = *effort;
    FATHOM_ASSIGN(read.echo.reasoning_summary, fields.optional_string("summary"));
    return {};
}

Status read_format(Json* value, ResponsesFields& read) {
    if (value == nullptr || value->is_null()) return {};
    static constexpr std::array<std::string_view, 3> kTypes = {"text", "json_schema",
                                                               "json_object"};
    static constexpr std::array<ResponseFormatKind, 3> kKinds = {
        ResponseFormatKind::text, ResponseFormatKind::json_schema, ResponseFormatKind::json_object};
    FATHOM_ASSIGN(Fields fields, Fields::of(*value, "internally tagged enum ResponsesTextFormat"));
    FATHOM_ASSIGN(const std::size_t type, fields.variant("type", kTypes));
    read.format = kKinds[type];
    Json repeated = Json::object();
    repeated.set("type", kTypes[type]);
    if (read.format == ResponseFormatKind::json_schema) {
        FATHOM_ASSIGN(std::string name, fields.string("name"));
        FATHOM_ASSIGN(const Json* schema, fields.required("schema"));
        FATHOM_ASSIGN(std::optional<std::string> description,
                      fields.optional_string("description"));
        FATHOM_ASSIGN(const std::optional<bool> strict, fields.optional_bool("strict"));
        repeated.set("name", std::move(name));
        repeated.set("schema", *schema);
        repeated.set("description", description ? Json(*std::move(description)) : Json());
        repeated.set("strict", strict ? Json(*strict) : Json());
        read.schema = {*schema, strict.value_or(false)};
    }
    read.echo.text_format = std::move(repeated);
    return {};
}

Status read_text(Json* value, ResponsesFields& read) {
    if (value == nullptr || value->is_null()) return {};
    static constexpr std::array<std::string_view, 3> kVerbosities = {"low", "medium", "high"};
    FATHOM_ASSIGN(Fields fields, Fields::of(*value, "struct ResponsesTextConfig"));
    if (fields.present("verbosity") != nullptr) {
        FATHOM_ASSIGN(const std::size_t level, fields.variant("verbosity", kVerbosities));
        read.echo.text_verbosity = kVerbosities[level];
    }
    return read_format(fields.find("format"), read);
}

Status read_tool_choice(Json* value, ResponsesFields& read) {
    if (value == nullptr || value->is_null()) return {};
    static constexpr std::array<std::string_view, 3> kKinds = {"auto", "none", "required"};
    static constexpr std::array<std::string_view, 4> kTypes = {"function", "web_search",
                                                               "web_search_2025_08_26", "custom"};
    if (value->is_string()) {
        FATHOM_ASSIGN(const std::size_t kind, json_variant(*value, kKinds));
        read.tool_choice.kind = static_cast<ToolChoice>(kind);
        read.echo.tool_choice = *value;
        return {};
    }
    FATHOM_ASSIGN(Fields fields,
                  Fields::of(*value, "one of `none`, `auto`, `required` or a tool choice object"));
    FATHOM_ASSIGN(const std::size_t type, fields.variant("type", kTypes));
    Json repeated = Json::object();
    repeated.set("type", kTypes[type]);
    if (kTypes[type].starts_with("web_search")) {
        read.chooses_web_search = true;
    } else {
        FATHOM_ASSIGN(read.tool_choice.function, fields.string("name"));
        read.tool_choice.kind = ToolChoice::required;
        repeated.set("name", *read.tool_choice.function);
    }
    read.echo.tool_choice = std::move(repeated);
    return {};
}

Result<ResponsesFields> read_fields(Fields& body, Profile profile) {
    ResponsesFields read;
    FATHOM_ASSIGN(read.instructions, body.optional_string("instructions"));
    FATHOM_ASSIGN(read.max_output_tokens,
                  body.optional_unsigned("max_output_tokens", UINT32_MAX, "u32"));
    FATHOM_ASSIGN(read.top_logprobs, body.optional_unsigned("top_logprobs", UINT8_MAX, "u8"));
    FATHOM_ASSIGN(read.sampling.temperature, body.optional_float("temperature"));
    FATHOM_ASSIGN(read.sampling.top_p, body.optional_float("top_p"));
    FATHOM_ASSIGN(read.stream, body.optional_bool("stream"));
    FATHOM_ASSIGN(read.echo.user, body.optional_string("user"));
    FATHOM_RETURN_IF_ERROR(read_reasoning(body.find("reasoning"), profile, read));
    FATHOM_RETURN_IF_ERROR(read_text(body.find("text"), read));
    FATHOM_RETURN_IF_ERROR(read_tool_choice(body.find("tool_choice"), read));
    return read;
}

// -------------------------------------------------------------------------------------- input
// items

// Turns items into the conversation's messages. Calls and their results are collected until every
// call has its result; then they become one assistant message and its results.
class ItemReader {
  public:
    ItemReader(Dialect dialect, ResponsesToolReader& tools) : dialect_(dialect), tools_(tools) {}

    Status read(Json& item, std::size_t index) {
        index_ = index;
        if (!item.is_object()) return invalid_argument("invalid request body: invalid input item");
        FATHOM_ASSIGN(Fields fields, Fields::of(item, "input item"));
        const Json* type = fields.present("type");
        if (type == nullptr) {
            if (fields.find("role") == nullptr)
                return invalid_argument("invalid request body: invalid input item");
            return read_message(fields);
        }
        if (!type->is_string()) return wrong_type(*type, "a string");
        const std::string& name = type->as_string();
        if (name == "message") return read_message(fields);
        if (name == "reasoning") return read_reasoning_item(fields);
        if (name == "function_call" || name == "custom_tool_call")
            return read_call(fields, name == "custom_tool_call");
        if (name == "function_call_output" || name == "custom_tool_call_output")
            return read_output(fields);
        if (name == "tool_search_call") return read_search_call(fields);
        if (name == "tool_search_output") return read_search_output(fields);
        return {};  // of no effect on the conversation
    }

    Status check_all_answered() const {
        for (const ToolCall& call : calls_)
            if (!results_.contains(call.id))
                return invalid_argument("No tool output found for tool call {}.", call.id);
        return {};
    }

    void add_instructions(const std::string& text) {
        LoweredMessage lowered;
        lowered.message.role = Role::system;
        lowered.message.content = text;
        messages.push_back(std::move(lowered));
    }
    void add_user_text(std::string text) {
        LoweredMessage lowered;
        lowered.message.content = std::move(text);
        messages.push_back(std::move(lowered));
    }

    std::vector<LoweredMessage> messages;
    std::vector<Tool> found_tools;  // by searches, deferred

  private:
    struct CallResult {
        ContentBlocks content;
        std::vector<Tool> found;
    };

    Message* trailing_assistant() {
        if (messages.empty() || messages.back().message.role != Role::assistant) return nullptr;
        Message& message = messages.back().message;
        return message.tool_calls.empty() ? &message : nullptr;
    }
    Message& new_assistant() {
        messages.emplace_back().message.role = Role::assistant;
        return messages.back().message;
    }

    // ---- messages

    Status read_message(Fields& fields) {
        static constexpr std::array<std::string_view, 4> kRoles = {"user", "assistant", "system",
                                                                   "developer"};
        FATHOM_ASSIGN(const std::size_t role, fields.variant("role", kRoles));
        FATHOM_ASSIGN(Json * value, fields.required("content"));
        ContentBlocks content(dialect_);
        const bool is_assistant = kRoles[role] == "assistant";
        FATHOM_RETURN_IF_ERROR(read_content(
            *value, "content should be a string or a list of content blocks", content));
        if (is_assistant && !content.images.empty())
            return invalid_argument("input[{}]: Image in assistant message is unsupported", index_);
        FATHOM_RETURN_IF_ERROR(check_all_answered());
        if (is_assistant) {
            add_assistant_text(std::move(content));
            return {};
        }
        LoweredMessage lowered;
        const bool is_system =
            kRoles[role] == "system" || (kRoles[role] == "developer" && dialect_ == Dialect::v41);
        lowered.message.role = is_system ? Role::system : Role::user;
        lowered.message.content = std::move(content.text);
        lowered.images = std::move(content.images);
        messages.push_back(std::move(lowered));
        return {};
    }

    void add_assistant_text(ContentBlocks content) {
        Message* last = trailing_assistant();
        if (last == nullptr) {
            new_assistant().content = std::move(content.text);
        } else if (last->content.empty()) {
            last->content = std::move(content.text);
        } else {
            last->content.append("\n\n");
            last->content.append(content.text);
        }
    }

    Status read_content(Json& value, std::string_view expected, ContentBlocks& content) {
        if (value.is_string()) {
            content.add_text(value.as_string());
            return {};
        }
        if (!value.is_array()) return invalid_argument("invalid request body: {}", expected);
        Json::Array& parts = value.items();
        for (std::size_t i = 0; i < parts.size(); ++i)
            FATHOM_RETURN_IF_ERROR(read_part(parts[i], i, content));
        return {};
    }

    Status read_part(Json& part, std::size_t part_index, ContentBlocks& content) {
        static constexpr std::array<std::string_view, 4> kTypes = {"input_text", "output_text",
                                                                   "input_image", "input_file"};
        FATHOM_ASSIGN(Fields fields,
                      Fields::of(part, "internally tagged enum ResponsesContentBlock"));
        FATHOM_ASSIGN(const std::size_t type, fields.variant("type", kTypes));
        if (kTypes[type] == "input_file") {
            content.add_text("[Unsupported Document]");
            return {};
        }
        if (kTypes[type] == "input_image") return read_image(fields, part_index, content);
        FATHOM_ASSIGN(const std::string text, fields.string("text"));
        content.add_text(text);
        return {};
    }

    Status read_image(Fields& fields, std::size_t part_index, ContentBlocks& content) {
        FATHOM_ASSIGN(std::optional<std::string> url, fields.optional_string("image_url"));
        FATHOM_ASSIGN(const auto file_id, fields.optional_string("file_id"));
        FATHOM_ASSIGN(const ImageDetail detail, image_detail(fields.find("detail")));
        if (dialect_ == Dialect::v4) {
            content.add_image({});
            return {};
        }
        const std::string place = fmt::format("input[{}].content[{}]", index_, part_index);
        if (url && file_id) {
            return invalid_argument("{}: input_image cannot have both image_url and file_id",
                                    place);
        }
        if (file_id) return file_id_unsupported(place);
        if (!url) return invalid_argument("{}: input_image must have image_url or file_id", place);
        FATHOM_ASSIGN(ImageSource image,
                      image_from_url(*std::move(url), detail, fmt::format("input[{}]", index_)));
        content.add_image(std::move(image));
        return {};
    }

    // Summaries and encrypted content are not read.
    Status read_reasoning_item(Fields& fields) {
        static constexpr std::array<std::string_view, 1> kTypes = {"reasoning_text"};
        FATHOM_ASSIGN(Json::Array * parts, fields.optional_array("content"));
        FATHOM_RETURN_IF_ERROR(check_all_answered());
        if (parts == nullptr || parts->empty()) return {};
        std::string text;
        for (std::size_t i = 0; i < parts->size(); ++i) {
            FATHOM_ASSIGN(Fields part,
                          Fields::of((*parts)[i], "internally tagged enum ResponsesReasoning"));
            FATHOM_RETURN_IF_ERROR(part.variant("type", kTypes).status());
            FATHOM_ASSIGN(const std::string line, part.string("text"));
            text += (i == 0 ? "" : "\n") + line;
        }
        Message* last = trailing_assistant();
        Message& message = last != nullptr && last->content.empty() ? *last : new_assistant();
        if (message.reasoning_content) {
            *message.reasoning_content += "\n" + text;
        } else {
            message.reasoning_content = std::move(text);
        }
        return {};
    }

    // ---- calls and results

    Result<std::string> call_id(Fields& fields) const {
        FATHOM_ASSIGN(std::string id, fields.string("call_id"));
        if (id.empty()) {
            return invalid_argument(
                "Invalid 'input[{}].call_id': empty string. Expected a string with minimum length "
                "1, but got an empty string instead.",
                index_);
        }
        return id;
    }

    Status add_call(ToolCall call) {
        if (!known_calls_.insert(call.id).second)
            return invalid_argument("Duplicate 'call_id': {}.", call.id);
        calls_.push_back(std::move(call));
        return {};
    }

    Status read_call(Fields& fields, bool is_custom) {
        ToolCall call;
        FATHOM_ASSIGN(call.id, call_id(fields));
        FATHOM_ASSIGN(call.name, fields.string("name"));
        FATHOM_ASSIGN(const auto space, fields.optional_string("namespace"));
        if (space) call.name = namespace_member_name(*space, call.name, dialect_);
        FATHOM_ASSIGN(std::string text, fields.string(is_custom ? "input" : "arguments"));
        call.arguments =
            is_custom ? wire_json(Json::object({{"input", std::move(text)}})) : std::move(text);
        return add_call(std::move(call));
    }

    Status read_search_call(Fields& fields) {
        ToolCall call;
        FATHOM_ASSIGN(call.id, call_id(fields));
        FATHOM_ASSIGN(const Json* arguments, fields.required("arguments"));
        if (!arguments->is_object()) return wrong_type(*arguments, "a map");
        if (dialect_ == Dialect::v4) return {};
        call.name = "tool_search";
        call.arguments = wire_json(*arguments);
        return add_call(std::move(call));
    }

    Status read_output(Fields& fields) {
        FATHOM_ASSIGN(std::string id, call_id(fields));
        FATHOM_ASSIGN(Json * output, fields.required("output"));
        CallResult result{ContentBlocks(dialect_), {}};
        FATHOM_RETURN_IF_ERROR(
            read_content(*output, "output should be a string or a list of output content parts",
                         result.content));
        return add_result(std::move(id), std::move(result));
    }

    Status read_search_output(Fields& fields) {
        FATHOM_ASSIGN(std::string id, call_id(fields));
        FATHOM_ASSIGN(Json::Array * declarations, fields.array("tools"));
        if (dialect_ == Dialect::v4) return {};
        FATHOM_ASSIGN(ResponsesTools found,
                      tools_.read(*declarations, fmt::format("input[{}].tools", index_)));
        CallResult result{ContentBlocks(dialect_), std::move(found.tools)};
        result.content.add_text(wire_json(found.functions));
        for (Tool& tool : result.found) {
            tool.defer_loading = true;
            found_tools.push_back(tool);
        }
        return add_result(std::move(id), std::move(result));
    }

    Status add_result(std::string id, CallResult result) {
        if (!known_calls_.contains(id))
            return invalid_argument("No tool call found for tool output with call_id {}.", id);
        if (!answered_.insert(id).second)
            return invalid_argument("Duplicate tool output for call_id: {}.", id);
        results_.emplace(std::move(id), std::move(result));
        if (results_.size() == calls_.size()) flush_calls();
        return {};
    }

    void flush_calls() {
        std::sort(calls_.begin(), calls_.end(),
                  [](const ToolCall& a, const ToolCall& b) { return a.id < b.id; });
        Message* last = trailing_assistant();
        (last != nullptr ? *last : new_assistant()).tool_calls = std::move(calls_);
        std::vector<Tool> announced;
        for (auto& [id, result] : results_) {
            LoweredMessage lowered;
            lowered.message.role = Role::tool;
            lowered.message.tool_call_id = id;
            lowered.message.content = std::move(result.content.text);
            lowered.images = std::move(result.content.images);
            messages.push_back(std::move(lowered));
            std::move(result.found.begin(), result.found.end(), std::back_inserter(announced));
        }
        if (!announced.empty()) {
            LoweredMessage lowered;
            lowered.message.role = Role::system;
            lowered.message.tools = std::move(announced);
            messages.push_back(std::move(lowered));
        }
        calls_.clear();
        results_.clear();
    }

    Dialect dialect_;
    ResponsesToolReader& tools_;
    std::size_t index_ = 0;
    std::vector<ToolCall> calls_;  // that wait, in the order of the input
    std::map<std::string, CallResult> results_;
    std::set<std::string> known_calls_;
    std::set<std::string> answered_;
};

Status read_input(Fields& body, const ResponsesFields& read, Json::Array earlier,
                  ItemReader& reader) {
    Json* input = body.present("input");
    const std::string instructions = read.instructions.value_or("");
    if (input == nullptr && instructions.empty())
        return invalid_argument("Either input or instructions must be provided");
    if (!instructions.empty()) reader.add_instructions(instructions);
    for (std::size_t i = 0; i < earlier.size(); ++i)
        FATHOM_RETURN_IF_ERROR(reader.read(earlier[i], i));
    if (input == nullptr) return reader.check_all_answered();
    if (input->is_string()) {
        FATHOM_RETURN_IF_ERROR(reader.check_all_answered());
        reader.add_user_text(input->as_string());
        return {};
    }
    if (!input->is_array()) {
        return invalid_argument(
            "invalid request body: input should be a string or a list of input items");
    }
    Json::Array& items = input->items();
    if (items.empty()) return invalid_argument("Input items array must not be empty");
    for (std::size_t i = 0; i < items.size(); ++i)
        FATHOM_RETURN_IF_ERROR(reader.read(items[i], i));
    return reader.check_all_answered();
}

// -------------------------------------------------------------------------------- formats and
// ranges

Status settle_format(ResponsesFields& read, const std::vector<LoweredMessage>& messages,
                     LoweredRequest& request) {
    OutputConstraint& constraint = request.inference.output_constraint;
    request.conversation.response_format.kind = read.format;
    if (read.format == ResponseFormatKind::json_schema) {
        return settle_schema_format(std::move(read.schema), request.conversation, constraint);
    }
    if (read.format != ResponseFormatKind::json_object) return {};
    constraint = {ConstraintKind::json, ""};
    if (mentions_json(messages)) return {};
    return invalid_argument(
        "Response input messages must contain the word 'json' in some form to use 'text.format' of "
        "type 'json_object'.");
}

Status check_ranges(const ResponsesFields& read, bool thinking, const LowerOptions& options) {
    FATHOM_RETURN_IF_ERROR(check_temperature(read.sampling));
    FATHOM_RETURN_IF_ERROR(check_top_p(read.sampling));
    FATHOM_RETURN_IF_ERROR(check_top_logprobs(read.top_logprobs));
    return check_max_tokens(read.max_output_tokens, thinking, options);
}

void settle_settings(ResponsesFields& read, LoweredRequest& request) {
    InferenceSettings& inference = request.inference;
    ResponsesEcho echo = std::move(read.echo);
    if (read.max_output_tokens) {
        inference.max_tokens = static_cast<std::int64_t>(*read.max_output_tokens);
        echo.max_output_tokens = inference.max_tokens;
    }
    if (read.top_logprobs) {
        inference.logprobs = true;
        inference.top_logprobs = static_cast<int>(*read.top_logprobs);
        echo.top_logprobs = *inference.top_logprobs;
    }
    echo.instructions = std::move(read.instructions);
    echo.temperature = read.sampling.temperature.value_or(1.0F);
    echo.top_p = read.sampling.top_p.value_or(1.0F);
    request.stream = read.stream.value_or(false);
    request.responses.echo = std::move(echo);
}

}  // namespace

Result<LoweredRequest> lower_responses_request(std::string_view body, const LowerOptions& options,
                                               const EarlierItems& earlier_items) {
    FATHOM_ASSIGN(Json json, parse_request_body(body, "struct ResponsesRequest"));
    FATHOM_ASSIGN(Fields fields, Fields::of(json, "struct ResponsesRequest"));
    FATHOM_ASSIGN(ResponsesFields read, read_fields(fields, options.profile));
    LoweredRequest request;
    Conversation& conversation = request.conversation;
    FATHOM_ASSIGN(request.model, fields.string("model"));
    FATHOM_ASSIGN(request.dialect, dialect_of_model(request.model, options));
    FATHOM_RETURN_IF_ERROR(settle_thinking({}, read.effort, options, request));

    ResponsesToolReader tool_reader(request.dialect, options.responses_web_search);
    FATHOM_ASSIGN(Json::Array * declarations, fields.optional_array("tools"));
    if (declarations != nullptr) {
        FATHOM_ASSIGN(ResponsesTools declared, tool_reader.read(*declarations, "tools"));
        FATHOM_RETURN_IF_ERROR(check_tools_together(declared.tools, true));
        conversation.tools = std::move(declared.tools);
        read.echo.tools = std::move(declared.repeated);
        request.responses.namespace_tools = std::move(declared.namespace_tools);
        request.responses.custom_tools = std::move(declared.custom_tools);
        request.responses.tool_search = declared.tool_search;
    }

    Json::Array earlier;
    if (options.profile == Profile::open) {
        FATHOM_RETURN_IF_ERROR(read_stored_response(fields, request.open));
        const std::string& id = request.open.previous_response_id;
        if (!id.empty() && earlier_items) {
            FATHOM_ASSIGN(earlier, earlier_items(id));
        }
    }
    ItemReader reader(request.dialect, tool_reader);
    FATHOM_RETURN_IF_ERROR(read_input(fields, read, std::move(earlier), reader));
    std::vector<LoweredMessage>& messages = reader.messages;
    std::move(reader.found_tools.begin(), reader.found_tools.end(),
              std::back_inserter(conversation.tools));
    FATHOM_RETURN_IF_ERROR(check_tools_together(conversation.tools, true));
    FATHOM_RETURN_IF_ERROR(settle_reasoning(messages, conversation.thinking,
                                            options.missing_reasoning, "reasoning_text"));

    if (read.chooses_web_search && options.responses_web_search == ServerTools::reject)
        return invalid_argument("Server tools are not supported");
    FATHOM_RETURN_IF_ERROR(settle_tool_choice(std::move(read.tool_choice), conversation));
    if (conversation.tools.empty()) drop_announcements(messages);
    FATHOM_RETURN_IF_ERROR(settle_format(read, messages, request));
    FATHOM_RETURN_IF_ERROR(check_ranges(read, conversation.thinking, options));
    place_messages(std::move(messages), request);
    settle_settings(read, request);
    settle_generation(read.sampling, options, request);
    if (options.profile == Profile::open) {
        FATHOM_RETURN_IF_ERROR(read_open_settings(fields, request));
        repeat_open_settings(request.open, request.responses.echo);
    }
    return request;
}

}  // namespace fathom
