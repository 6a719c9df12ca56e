#include "recipe/protocols/chat_request.h"

#include <array>
#include <set>
#include <utility>

#include "recipe/protocols/lower_common.h"
#include "recipe/protocols/open_settings.h"

namespace fathom {
namespace {

// ------------------------------------------------------------------- the fields beside the
// messages

struct ChatFields {
    RequestedChoice tool_choice;
    std::vector<std::string> stops;
    bool stops_are_list = false;
    bool has_stream_options = false;
    bool include_usage = false;
    bool stream = false;
    std::optional<std::uint64_t> n, max_tokens, seed, top_logprobs;
    std::optional<std::uint64_t> max_completion_tokens;  // open
    std::optional<float> frequency_penalty, presence_penalty;
    Sampling sampling;
    std::optional<bool> logprobs;
    ResponseFormatKind format = ResponseFormatKind::text;
    FormatSchema schema;
    std::string regex;
    std::optional<bool> thinking;
    std::optional<RequestedEffort> effort;
};

Result<RequestedChoice> read_tool_choice(Json* value) {
    RequestedChoice choice;
    if (value == nullptr || value->is_null()) return choice;
    static constexpr std::array<std::string_view, 3> kKinds = {"auto", "none", "required"};
    static constexpr std::array<std::string_view, 1> kTypes = {"function"};
    if (value->is_string()) {
        FATHOM_ASSIGN(const std::size_t kind, json_variant(*value, kKinds));
        choice.kind = static_cast<ToolChoice>(kind);
        return choice;
    }
    FATHOM_ASSIGN(Fields fields, Fields::of(*value, "one of `none`, `auto`, `required` or a tool"));
    FATHOM_RETURN_IF_ERROR(fields.variant("type", kTypes).status());
    FATHOM_ASSIGN(Json * named, fields.required("function"));
    FATHOM_ASSIGN(Fields function, Fields::of(*named, "struct ChatCompletionToolChoiceFunction"));
    FATHOM_ASSIGN(choice.function, function.string("name"));
    choice.kind = ToolChoice::required;
    return choice;
}

Status read_stops(Json* value, ChatFields& chat) {
    if (value == nullptr || value->is_null()) return {};
    if (value->is_string()) {
        chat.stops.push_back(value->as_string());
        return {};
    }
    if (!value->is_array()) return wrong_type(*value, "a string or a list");
    chat.stops_are_list = true;
    for (const Json& stop : value->items()) {
        if (!stop.is_string()) return wrong_type(stop, "a string");
        chat.stops.push_back(stop.as_string());
    }
    return {};
}

Status read_response_format(Json* value, ChatFields& chat) {
    if (value == nullptr || value->is_null()) return {};
    static constexpr std::array<std::string_view, 4> kTypes = {"json_object", "json_schema",
                                                               "regex", "text"};
    static constexpr std::array<ResponseFormatKind, 4> kKinds = {
        ResponseFormatKind::json_object, ResponseFormatKind::json_schema, ResponseFormatKind::regex,
        ResponseFormatKind::text};
    FATHOM_ASSIGN(Fields fields,
                  Fields::of(*value, "internally tagged enum ChatCompletionResponseFormat"));
    FATHOM_ASSIGN(const std::size_t type, fields.variant("type", kTypes));
    chat.format = kKinds[type];
    if (chat.format == ResponseFormatKind::regex) {
        FATHOM_ASSIGN(chat.regex, fields.string("regex"));
    }
    if (chat.format != ResponseFormatKind::json_schema) return {};
    FATHOM_ASSIGN(Json * format, fields.required("json_schema"));
    FATHOM_ASSIGN(Fields schema,
                  Fields::of(*format, "struct ChatCompletionResponseFormatJsonSchema"));
    FATHOM_RETURN_IF_ERROR(schema.optional_string("name").status());
    FATHOM_RETURN_IF_ERROR(schema.optional_string("description").status());
    FATHOM_ASSIGN(const std::optional<bool> strict, schema.optional_bool("strict"));
    FATHOM_ASSIGN(Json * tree, schema.required("schema"));
    chat.schema = {std::move(*tree), strict.value_or(false)};
    return {};
}

Status read_stream(Fields& body, ChatFields& chat) {
    FATHOM_ASSIGN(const std::optional<bool> stream, body.optional_bool("stream"));
    chat.stream = stream.value_or(false);
    Json* options = body.present("stream_options");
    chat.has_stream_options = options != nullptr;
    if (options == nullptr) return {};
    FATHOM_ASSIGN(Fields fields, Fields::of(*options, "struct ChatCompletionStreamOptions"));
    FATHOM_ASSIGN(const std::optional<bool> usage, fields.optional_bool("include_usage"));
    chat.include_usage = usage.value_or(false);
    return {};
}

Result<ChatFields> read_fields(Fields& body, Profile profile) {
    ChatFields chat;
    FATHOM_ASSIGN(chat.tool_choice, read_tool_choice(body.find("tool_choice")));
    FATHOM_RETURN_IF_ERROR(read_stops(body.find("stop"), chat));
    FATHOM_RETURN_IF_ERROR(read_stream(body, chat));
    FATHOM_RETURN_IF_ERROR(read_response_format(body.find("response_format"), chat));
    FATHOM_ASSIGN(chat.n, body.optional_unsigned("n", UINT8_MAX, "u8"));
    FATHOM_ASSIGN(chat.max_tokens, body.optional_unsigned("max_tokens", UINT32_MAX, "u32"));
    FATHOM_ASSIGN(chat.seed, body.optional_unsigned("seed", UINT64_MAX, "u64"));
    FATHOM_ASSIGN(chat.top_logprobs, body.optional_unsigned("top_logprobs", UINT8_MAX, "u8"));
    FATHOM_ASSIGN(chat.logprobs, body.optional_bool("logprobs"));
    FATHOM_ASSIGN(chat.frequency_penalty, body.optional_float("frequency_penalty"));
    FATHOM_ASSIGN(chat.presence_penalty, body.optional_float("presence_penalty"));
    FATHOM_ASSIGN(chat.sampling.temperature, body.optional_float("temperature"));
    FATHOM_ASSIGN(chat.sampling.top_p, body.optional_float("top_p"));
    FATHOM_ASSIGN(chat.thinking,
                  read_thinking(body.find("thinking"), "struct ChatCompletionThinking"));
    FATHOM_ASSIGN(chat.effort,
                  read_effort(body.find("reasoning_effort"), "reasoning_effort", profile));
    if (profile == Profile::reference) return chat;
    FATHOM_ASSIGN(chat.max_completion_tokens,
                  body.optional_unsigned("max_completion_tokens", UINT32_MAX, "u32"));
    return chat;
}

Result<std::vector<Tool>> lower_tools(Fields& body) {
    std::vector<Tool> tools;
    FATHOM_ASSIGN(Json::Array * items, body.optional_array("tools"));
    if (items == nullptr) return tools;
    static constexpr std::array<std::string_view, 1> kTypes = {"function"};
    for (std::size_t i = 0; i < items->size(); ++i) {
        FATHOM_ASSIGN(Fields fields,
                      Fields::of((*items)[i], "internally tagged enum ChatCompletionTool"));
        FATHOM_RETURN_IF_ERROR(fields.variant("type", kTypes).status());
        FATHOM_ASSIGN(Json * declared, fields.required("function"));
        FATHOM_ASSIGN(Fields members, Fields::of(*declared, "struct ChatCompletionFunction"));
        FATHOM_ASSIGN(FunctionFields function, read_function(members));
        FATHOM_ASSIGN(Tool tool, lower_function(std::move(function),
                                                fmt::format("tools[{}].function.name", i)));
        tools.push_back(std::move(tool));
    }
    FATHOM_RETURN_IF_ERROR(check_tools_together(tools, true));
    return tools;
}

// -----------------------------------------------------------------------------------------
// messages

// Turns the messages into the conversation's, one at a time, and follows which calls are still
// without a result.
class MessageReader {
  public:
    MessageReader(Dialect dialect, Profile profile) : dialect_(dialect), profile_(profile) {}

    Status read(Json& item, std::size_t index, bool is_last) {
        index_ = index;
        FATHOM_ASSIGN(Fields fields,
                      Fields::of(item, "internally tagged enum ChatCompletionRequestMessage"));
        FATHOM_ASSIGN(const Role role, read_role(fields));
        FATHOM_RETURN_IF_ERROR(fields.optional_string("name").status());
        LoweredMessage lowered;
        Message& message = lowered.message;
        message.role = role;
        if (message.role != Role::tool) FATHOM_RETURN_IF_ERROR(check_all_answered());
        switch (message.role) {
            case Role::system:
            case Role::user:
                FATHOM_RETURN_IF_ERROR(read_content(fields, lowered));
                if (message.role == Role::system && message.content.empty()) return {};
                break;
            case Role::assistant:
                FATHOM_RETURN_IF_ERROR(read_assistant(fields, is_last, lowered));
                break;
            case Role::tool:
                FATHOM_RETURN_IF_ERROR(read_tool_result(fields, lowered));
                break;
            case Role::latest_reminder: {
                FATHOM_ASSIGN(std::string text, fields.string("content"));
                message.content = std::move(text);
                break;
            }
        }
        messages.push_back(std::move(lowered));
        return {};
    }

    Status check_all_answered() const {
        if (open_calls_.empty()) return {};
        return invalid_argument(
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. (insufficient tool messages following tool_calls message)");
    }

    std::vector<LoweredMessage> messages;

  private:
    std::string path() const { return fmt::format(".messages[{}]", index_); }

    // A developer speaks as the system does where the dialect has that: V4 only at the start.
    Result<Role> read_role(Fields& fields) {
        static constexpr std::array<std::string_view, 6> kRoles = {
            "system", "user", "assistant", "tool", "latest_reminder", "developer"};
        const std::span<const std::string_view> known(kRoles);
        FATHOM_ASSIGN(const std::size_t role,
                      fields.variant("role", known.first(profile_ == Profile::open ? 6 : 5)));
        const bool is_developer = kRoles[role] == "developer";
        const bool is_system =
            kRoles[role] == "system" || (is_developer && (dialect_ == Dialect::v41 || at_start_));
        at_start_ = at_start_ && is_system;
        if (is_system) return Role::system;
        return is_developer ? Role::user : static_cast<Role>(role);
    }

    Status read_content(Fields& fields, LoweredMessage& lowered) {
        FATHOM_ASSIGN(Json * content, fields.required("content"));
        return read_content(*content, lowered);
    }

    Status read_content(Json& content, LoweredMessage& lowered) {
        if (content.is_string()) {
            lowered.message.content = content.as_string();
            return {};
        }
        if (!content.is_array())
            return invalid_argument("invalid request body: content should be a string or a list");
        ContentBlocks blocks(dialect_);
        for (Json& part : content.items())
            FATHOM_RETURN_IF_ERROR(read_part(part, lowered.message.role, blocks));
        lowered.message.content = std::move(blocks.text);
        lowered.images = std::move(blocks.images);
        return {};
    }

    Status read_part(Json& part, Role role, ContentBlocks& blocks) {
        static constexpr std::array<std::string_view, 3> kTypes = {"text", "image_url", "file"};
        FATHOM_ASSIGN(Fields fields,
                      Fields::of(part, "internally tagged enum ChatCompletionRequestContentBlock"));
        FATHOM_ASSIGN(const std::size_t type, fields.variant("type", kTypes));
        if (kTypes[type] == "text") {
            FATHOM_ASSIGN(const std::string text, fields.string("text"));
            blocks.add_text(text);
            return {};
        }
        if (kTypes[type] == "file") {
            FATHOM_ASSIGN(Json * file, fields.required("file"));
            FATHOM_ASSIGN(Fields members, Fields::of(*file, "struct ChatCompletionFile"));
            return read_file(members, role, blocks);
        }
        FATHOM_ASSIGN(Json * image, fields.required("image_url"));
        FATHOM_ASSIGN(Fields members, Fields::of(*image, "struct ChatCompletionImageUrl"));
        FATHOM_ASSIGN(std::string url, members.string("url"));
        FATHOM_ASSIGN(const ImageDetail detail, image_detail(members.find("detail")));
        if (role == Role::assistant)
            return invalid_argument("Image in assistant message is not supported");
        if (dialect_ == Dialect::v4) {
            blocks.add_image({});
            return {};
        }
        FATHOM_ASSIGN(ImageSource source, image_from_url(std::move(url), detail, path()));
        blocks.add_image(std::move(source));
        return {};
    }

    // A picture, whole in `file_data`.
    Status read_file(Fields& file, Role role, ContentBlocks& blocks) {
        const bool open = profile_ == Profile::open;
        if (open && file.present("file_id") != nullptr) return file_id_unsupported(path());
        if (!open || file.present("file_data") == nullptr)
            return invalid_argument("{}: file must have a file_id or file_data", path());
        FATHOM_ASSIGN(std::string data, file.string("file_data"));
        if (role == Role::assistant)
            return invalid_argument("Image in assistant message is not supported");
        if (dialect_ == Dialect::v4) {
            blocks.add_image({});
            return {};
        }
        FATHOM_ASSIGN(ImageSource source, image_from_file_data(std::move(data), path()));
        blocks.add_image(std::move(source));
        return {};
    }

    Status read_assistant(Fields& fields, bool is_last, LoweredMessage& lowered) {
        Message& message = lowered.message;
        Json* content = fields.present("content");
        if (content != nullptr) FATHOM_RETURN_IF_ERROR(read_content(*content, lowered));
        FATHOM_ASSIGN(message.reasoning_content, fields.optional_string("reasoning_content"));
        FATHOM_ASSIGN(Json::Array * calls, fields.optional_array("tool_calls"));
        FATHOM_ASSIGN(const std::optional<bool> prefix, fields.optional_bool("prefix"));
        message.prefix = prefix.value_or(false);
        if (message.prefix && !is_last) {
            return invalid_argument(
                "Invalid completion message: prefix set true with message which is not final "
                "message or message role is not assistant");
        }
        if (content == nullptr && calls == nullptr) {
            return invalid_argument("Invalid assistant message: content or tool_calls must be set");
        }
        return calls == nullptr ? Status() : read_calls(*calls, message);
    }

    Status read_calls(Json::Array& calls, Message& message) {
        static constexpr std::array<std::string_view, 1> kTypes = {"function"};
        if (calls.empty()) {
            return invalid_argument(
                "Invalid 'messages[{}].tool_calls': empty array. Expected an array with minimum "
                "length 1, but got an empty array instead.",
                index_);
        }
        for (Json& item : calls) {
            FATHOM_ASSIGN(Fields fields, Fields::of(item, "struct ChatCompletionToolCall"));
            ToolCall call;
            FATHOM_ASSIGN(call.id, fields.string("id"));
            FATHOM_RETURN_IF_ERROR(fields.variant("type", kTypes).status());
            FATHOM_ASSIGN(Json * called, fields.required("function"));
            FATHOM_ASSIGN(Fields function, Fields::of(*called, "struct ChatCompletionCalled"));
            FATHOM_ASSIGN(call.name, function.string("name"));
            FATHOM_ASSIGN(call.arguments, function.string("arguments"));
            if (!open_calls_.insert(call.id).second) {
                return invalid_argument("Duplicate value for 'tool_call_id' of {} in message[{}]",
                                        call.id, index_);
            }
            message.tool_calls.push_back(std::move(call));
        }
        has_calls = true;
        return {};
    }

    Status read_tool_result(Fields& fields, LoweredMessage& lowered) {
        FATHOM_ASSIGN(std::string id, fields.string("tool_call_id"));
        FATHOM_RETURN_IF_ERROR(read_content(fields, lowered));
        if (open_calls_.empty()) {
            return invalid_argument(
                "Messages with role 'tool' must be a response to a preceding message with "
                "'tool_calls'");
        }
        if (open_calls_.erase(id) == 0) {
            return invalid_argument(
                "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id', The following tool_call_ids did not have "
                "response messages: {}",
                id);
        }
        lowered.message.tool_call_id = std::move(id);
        return {};
    }

  public:
    bool has_calls = false;

  private:
    Dialect dialect_;
    Profile profile_;
    bool at_start_ = true;  // only the system has spoken
    std::size_t index_ = 0;
    std::set<std::string> open_calls_;
};

Result<std::vector<LoweredMessage>> lower_messages(Fields& body, bool has_tools,
                                                   const ChatFields& chat, Dialect dialect,
                                                   Profile profile) {
    FATHOM_ASSIGN(Json::Array * items, body.array("messages"));
    if (items->empty()) return invalid_argument("Empty input messages");
    MessageReader reader(dialect, profile);
    for (std::size_t i = 0; i < items->size(); ++i)
        FATHOM_RETURN_IF_ERROR(reader.read((*items)[i], i, i + 1 == items->size()));
    FATHOM_RETURN_IF_ERROR(reader.check_all_answered());
    std::vector<LoweredMessage>& messages = reader.messages;
    if (!messages.empty() && messages.back().message.prefix) {
        if (has_tools || reader.has_calls)
            return invalid_argument("Function call should not be used with prefix");
        if (chat.format == ResponseFormatKind::json_object)
            return invalid_argument("response_format json_object should not be used with prefix");
    }
    return std::move(messages);
}

// -------------------------------------------------------------------------------- formats and
// ranges

Status settle_format(ChatFields& chat, const std::vector<LoweredMessage>& messages,
                     LoweredRequest& request) {
    Conversation& conversation = request.conversation;
    OutputConstraint& constraint = request.inference.output_constraint;
    conversation.response_format.kind = chat.format;
    switch (chat.format) {
        case ResponseFormatKind::text:
            return {};
        case ResponseFormatKind::json_object:
            constraint = {ConstraintKind::json, ""};
            if (mentions_json(messages)) return {};
            return invalid_argument(
                "Prompt must contain the word 'json' in some form to use 'response_format' of type "
                "'json_object'.");
        case ResponseFormatKind::json_schema:
            return settle_schema_format(std::move(chat.schema), conversation, constraint);
        case ResponseFormatKind::regex:
            constraint = {ConstraintKind::regex, chat.regex};
            conversation.response_format.regex = std::move(chat.regex);
            return {};
    }
    return {};
}

Status check_penalty(std::optional<float> penalty, std::string_view name) {
    if (!penalty || (*penalty >= -2.0F && *penalty <= 2.0F)) return {};
    return invalid_argument("Invalid {} value, the valid range of {} is [-2, 2]", name, name);
}

Status check_ranges(const ChatFields& chat, bool thinking, const LowerOptions& options) {
    FATHOM_RETURN_IF_ERROR(check_stop_sequences(chat.stops, chat.stops_are_list));
    if (chat.has_stream_options && !chat.stream)
        return invalid_argument("stream_options should be set along with stream = true");
    FATHOM_RETURN_IF_ERROR(check_choices(chat.n.value_or(1), options.profile));
    FATHOM_RETURN_IF_ERROR(check_penalty(chat.presence_penalty, "presence_penalty"));
    FATHOM_RETURN_IF_ERROR(check_penalty(chat.frequency_penalty, "frequency_penalty"));
    FATHOM_RETURN_IF_ERROR(check_temperature(chat.sampling));
    FATHOM_RETURN_IF_ERROR(check_top_p(chat.sampling));
    if (chat.top_logprobs && !chat.logprobs.value_or(false)) {
        return invalid_argument(
            "Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs "
            "is used.");
    }
    FATHOM_RETURN_IF_ERROR(check_top_logprobs(chat.top_logprobs));
    FATHOM_RETURN_IF_ERROR(check_max_tokens(chat.max_tokens, thinking, options));
    FATHOM_RETURN_IF_ERROR(
        check_max_tokens(chat.max_completion_tokens, thinking, options, "max_completion_tokens"));
    if (chat.seed.value_or(0) > static_cast<std::uint64_t>(INT64_MAX))
        return invalid_argument("Invalid seed value, the valid range of seed is [0, 2^63)");
    return {};
}

void settle_settings(ChatFields& chat, LoweredRequest& request) {
    InferenceSettings& inference = request.inference;
    const auto max_tokens = chat.max_tokens ? chat.max_tokens : chat.max_completion_tokens;
    if (max_tokens) inference.max_tokens = static_cast<std::int64_t>(*max_tokens);
    if (chat.seed) inference.seed = static_cast<std::int64_t>(*chat.seed);
    if (chat.top_logprobs) inference.top_logprobs = static_cast<int>(*chat.top_logprobs);
    inference.logprobs = chat.logprobs.value_or(false);
    request.stream = chat.stream;
    request.include_usage = chat.include_usage;
    request.parsing.stop_sequences = std::move(chat.stops);
}

}  // namespace

Result<LoweredRequest> lower_chat_request(std::string_view body, const LowerOptions& options) {
    FATHOM_ASSIGN(Json json, parse_request_body(body, "struct ChatCompletionRequest"));
    FATHOM_ASSIGN(Fields fields, Fields::of(json, "struct ChatCompletionRequest"));
    FATHOM_ASSIGN(ChatFields chat, read_fields(fields, options.profile));
    LoweredRequest request;
    Conversation& conversation = request.conversation;
    FATHOM_RETURN_IF_ERROR(fields.required("messages").status());
    FATHOM_ASSIGN(request.model, fields.string("model"));
    FATHOM_ASSIGN(request.dialect, dialect_of_model(request.model, options));
    FATHOM_RETURN_IF_ERROR(settle_thinking(chat.thinking, chat.effort, options, request));
    FATHOM_ASSIGN(conversation.tools, lower_tools(fields));
    FATHOM_ASSIGN(std::vector<LoweredMessage> messages,
                  lower_messages(fields, !conversation.tools.empty(), chat, request.dialect,
                                 options.profile));
    FATHOM_RETURN_IF_ERROR(settle_reasoning(messages, conversation.thinking,
                                            options.missing_reasoning, "reasoning_content"));
    FATHOM_RETURN_IF_ERROR(settle_format(chat, messages, request));
    FATHOM_RETURN_IF_ERROR(settle_tool_choice(std::move(chat.tool_choice), conversation));
    FATHOM_RETURN_IF_ERROR(check_ranges(chat, conversation.thinking, options));
    place_messages(std::move(messages), request);
    settle_settings(chat, request);
    settle_generation(chat.sampling, options, request);
    if (options.profile == Profile::open) {
        request.open.choices = static_cast<std::int64_t>(chat.n.value_or(1));
        FATHOM_RETURN_IF_ERROR(read_open_settings(fields, request));
    }
    return request;
}

}  // namespace fathom
