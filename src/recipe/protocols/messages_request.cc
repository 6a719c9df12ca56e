#include "recipe/protocols/messages_request.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "recipe/protocols/lower_common.h"
#include "recipe/protocols/open_settings.h"
#include "recipe/spaced_json.h"

namespace fathom {
namespace {

enum class Speaker { user, assistant, system };

// Each announcement repeats the tool's schema, so a short request could otherwise become a very
// long prompt.
constexpr std::size_t kAnnouncedBytesMax = std::size_t{16} << 20;

// ------------------------------------------------------------------------------- tools, their
// choice

struct DeclaredTools {
    std::vector<Tool> tools;
    std::set<std::string, std::less<>> dropped;  // server tools, by name
};

Result<DeclaredTools> lower_tools(Fields& body, Dialect dialect, const LowerOptions& options) {
    DeclaredTools declared;
    FATHOM_ASSIGN(Json::Array * items, body.optional_array("tools"));
    if (items == nullptr) return declared;
    for (std::size_t i = 0; i < items->size(); ++i) {
        FATHOM_ASSIGN(Fields fields, Fields::of((*items)[i], "struct MessagesTool"));
        FATHOM_ASSIGN(FunctionFields function, read_function(fields));
        if (fields.find("type") != nullptr) {
            FATHOM_ASSIGN(const std::string type, fields.string("type"));
            const bool is_search = type.starts_with("web_search");
            const bool is_client = options.profile == Profile::open && type == "custom";
            if (is_search && options.messages_web_search == ServerTools::drop) {
                declared.dropped.insert(std::move(function.name));
                continue;
            }
            if (!is_client) return invalid_argument("tools[{}]: server tools are not supported", i);
        }
        FATHOM_ASSIGN(const std::optional<bool> deferred, fields.optional_bool("defer_loading"));
        function.strict.reset();
        const Json* schema = fields.find("input_schema");
        function.parameters = schema == nullptr ? Json() : *schema;
        FATHOM_ASSIGN(Tool tool,
                      lower_function(std::move(function), fmt::format("tools[{}].name", i)));
        tool.defer_loading = deferred.value_or(false);
        declared.tools.push_back(std::move(tool));
    }
    std::vector<Tool>& tools = declared.tools;
    FATHOM_RETURN_IF_ERROR(check_tools_together(tools, false));
    if (!tools.empty() && std::all_of(tools.begin(), tools.end(),
                                      [](const Tool& tool) { return tool.defer_loading; })) {
        return invalid_argument(
            "tools: at least one tool must have defer_loading=false. All tools cannot be "
            "deferred.");
    }
    if (dialect == Dialect::v4)  // it lists all tools from the start
        for (Tool& tool : tools)
            tool.defer_loading = false;
    return declared;
}

Result<RequestedChoice> read_tool_choice(Json* value) {
    RequestedChoice choice;
    if (value == nullptr || value->is_null()) return choice;
    static constexpr std::array<std::string_view, 4> kTypes = {"auto", "any", "tool", "none"};
    FATHOM_ASSIGN(Fields fields, Fields::of(*value, "internally tagged enum MessagesToolChoice"));
    FATHOM_ASSIGN(const std::size_t type, fields.variant("type", kTypes));
    FATHOM_RETURN_IF_ERROR(fields.optional_bool("disable_parallel_tool_use").status());
    if (kTypes[type] == "none") choice.kind = ToolChoice::none;
    if (kTypes[type] == "tool") {
        FATHOM_ASSIGN(choice.function, fields.string("name"));
        choice.kind = ToolChoice::required;
    }
    return choice;
}

// -----------------------------------------------------------------------------------------
// messages

// Where a block stands, for messages of errors.
struct Place {
    std::size_t message = 0;
    std::size_t block = 0;
};

// Turns messages into those of the conversation, and follows which calls wait for a result.
class MessageReader {
  public:
    MessageReader(Dialect dialect, const std::vector<Tool>& tools, const LowerOptions& options)
        : dialect_(dialect), server_tools_(options.messages_web_search), profile_(options.profile) {
        for (const Tool& tool : tools)
            tools_.emplace(tool.name, KnownTool{&tool, bytes_of(tool)});
    }

    Status read(Json& item, std::size_t index) {
        static constexpr std::array<std::string_view, 3> kRoles = {"user", "assistant", "system"};
        place_ = {index, 0};
        FATHOM_ASSIGN(Fields fields, Fields::of(item, "adjacently tagged enum MessagesMessage"));
        FATHOM_ASSIGN(const std::size_t role, fields.variant("role", kRoles));
        FATHOM_ASSIGN(Json * content, fields.required("content"));
        FATHOM_ASSIGN(Json::Array * blocks, blocks_of(*content));
        if (blocks->empty()) {
            return invalid_argument("messages.{}: all messages must have non-empty content", index);
        }
        switch (static_cast<Speaker>(role)) {
            case Speaker::user:
                return read_user(*blocks);
            case Speaker::assistant:
                return read_assistant(*blocks);
            case Speaker::system:
                return read_system(*blocks);
        }
        return {};
    }

    // At the end of a message that should have had the results.
    Status check_all_answered(std::size_t next_index) const {
        return check_no_open_calls(fmt::format("messages.{}:", next_index - 1));
    }

    std::vector<LoweredMessage> messages;

  private:
    enum class Block {
        text,
        image,
        document,
        thinking,
        server_tool_use,
        tool_use,
        tool_result,
        web_search_tool_result,
        tool_addition,
        redacted_thinking,  // in the profile `open` alone
    };

    struct TypedBlock {
        Block type;
        Fields fields;
    };

    // A string is one text block.
    Result<Json::Array*> blocks_of(Json& content) {
        if (content.is_string()) {
            Json block = Json::object();
            block.set("type", "text");
            block.set("text", std::move(content));
            content = Json::array({std::move(block)});
        }
        if (!content.is_array())
            return invalid_argument("invalid request body: expected a string or a list");
        return &content.items();
    }

    Result<TypedBlock> typed(Json& block) {
        static constexpr std::array<std::string_view, 10> kTypes = {"text",
                                                                    "image",
                                                                    "document",
                                                                    "thinking",
                                                                    "server_tool_use",
                                                                    "tool_use",
                                                                    "tool_result",
                                                                    "web_search_tool_result",
                                                                    "tool_addition",
                                                                    "redacted_thinking"};
        const std::span<const std::string_view> known(kTypes);
        FATHOM_ASSIGN(Fields fields,
                      Fields::of(block, "internally tagged enum MessagesContentBlock"));
        FATHOM_ASSIGN(const std::size_t type,
                      fields.variant("type", known.first(profile_ == Profile::open ? 10 : 9)));
        return TypedBlock{static_cast<Block>(type), fields};
    }

    // ---- faults

    Status check_no_open_calls(std::string_view prefix) const {
        if (open_calls_.empty()) return {};
        std::string ids;
        for (const std::string& id : open_calls_in_order_) {
            if (!open_calls_.contains(id)) continue;
            ids += (ids.empty() ? "" : ", ") + id;
        }
        return invalid_argument(
            "{}`tool_use` ids were found without `tool_result` blocks immediately after: {}. Each "
            "`tool_use` block must have a corresponding `tool_result` block in the next message.",
            prefix, ids);
    }
    Status check_no_open_calls_here() const {
        return check_no_open_calls(fmt::format("messages.{}: ", place_.message));
    }
    Status misplaced(std::string_view type, std::string_view role) const {
        return invalid_argument("messages.{}: `{}` blocks can only be in `{}` messages",
                                place_.message, type, role);
    }
    Status misplaced_thinking() const {
        return invalid_argument(
            "messages.{}.content: thinking blocks may only be in `assistant` messages",
            place_.message);
    }
    // Server tools' blocks have no place in a prompt.
    Status pass_server_block() const {
        if (server_tools_ == ServerTools::drop) return {};
        return invalid_argument("Unsupported content block: server tools are not supported");
    }

    // ---- announced tools

    struct KnownTool {
        const Tool* tool;
        std::size_t bytes;
    };

    static std::size_t bytes_of(const Tool& tool) {
        return tool.name.size() + tool.description.value_or("").size() +
               tool.parameters.value_or(Json()).dump().size();
    }

    Status add_announced(const KnownTool& known, std::vector<Tool>& announced) {
        announced_bytes_ += known.bytes;
        if (announced_bytes_ > kAnnouncedBytesMax) {
            return invalid_argument("messages.{}.content.{}: announced tools exceed {} bytes",
                                    place_.message, place_.block, kAnnouncedBytesMax);
        }
        announced.push_back(*known.tool);
        return {};
    }

    // ---- blocks that several roles have

    // `image_path` names pictures; `place` is the block's own place.
    Status read_image(Fields& fields, std::string image_path, std::string_view place,
                      ContentBlocks& out) {
        static constexpr std::array<std::string_view, 3> kTypes = {"base64", "url", "file"};
        FATHOM_ASSIGN(Json * value, fields.required("source"));
        FATHOM_ASSIGN(Fields source,
                      Fields::of(*value, "internally tagged enum MessagesImageSource"));
        FATHOM_ASSIGN(const std::size_t type, source.variant("type", kTypes));
        if (kTypes[type] == "file") {
            FATHOM_RETURN_IF_ERROR(source.string("file_id").status());
            return file_id_unsupported(place);
        }
        if (kTypes[type] == "url") {
            FATHOM_ASSIGN(std::string url, source.string("url"));
            if (dialect_ == Dialect::v4) return out.add_image({}), Status();
            FATHOM_ASSIGN(ImageSource image, image_from_web(std::move(url), std::move(image_path)));
            out.add_image(std::move(image));
            return {};
        }
        FATHOM_ASSIGN(const std::size_t media, source.variant("media_type", kImageMediaTypes));
        FATHOM_ASSIGN(const std::string data, source.string("data"));
        if (dialect_ == Dialect::v4) return out.add_image({}), Status();
        FATHOM_ASSIGN(ImageSource image,
                      image_from_base64(kImageMediaTypes[media], data, std::move(image_path)));
        out.add_image(std::move(image));
        return {};
    }

    Status read_document(Fields& fields, ContentBlocks& out) {
        FATHOM_ASSIGN(Json * value, fields.required("source"));
        FATHOM_ASSIGN(Fields source, Fields::of(*value, "struct MessagesDocumentSource"));
        FATHOM_ASSIGN(const auto media_type, source.optional_string("media_type"));
        out.add_text(
            fmt::format("[Unsupported document type: {}]", media_type.value_or("unknown")));
        return {};
    }

    // ---- user

    Status read_user(Json::Array& blocks) {
        std::set<std::string> answered;
        std::vector<Tool> announced;
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            place_.block = i;
            FATHOM_ASSIGN(TypedBlock block, typed(blocks[i]));
            FATHOM_RETURN_IF_ERROR(read_user_block(block, answered, announced));
        }
        FATHOM_RETURN_IF_ERROR(check_all_answered(place_.message));
        announce(std::move(announced));
        return {};
    }

    Status read_user_block(TypedBlock& block, std::set<std::string>& answered,
                           std::vector<Tool>& announced) {
        ContentBlocks content(dialect_);
        switch (block.type) {
            case Block::thinking:
            case Block::redacted_thinking:
                return misplaced_thinking();
            case Block::tool_use:
            case Block::server_tool_use:
                return misplaced("tool_use", "assistant");
            case Block::tool_addition:
                return misplaced("tool_addition", "system");
            case Block::web_search_tool_result:
                return pass_server_block();
            case Block::tool_result:
                return read_tool_result(block.fields, answered, announced);
            case Block::text: {
                FATHOM_ASSIGN(const std::string text, block.fields.string("text"));
                content.add_text(text);
                break;
            }
            case Block::image: {
                const std::string path =
                    fmt::format("messages.{}.content[{}]", place_.message, place_.block);
                FATHOM_RETURN_IF_ERROR(read_image(block.fields, path, path, content));
                break;
            }
            case Block::document:
                FATHOM_RETURN_IF_ERROR(read_document(block.fields, content));
                break;
        }
        FATHOM_RETURN_IF_ERROR(check_no_open_calls_here());
        add(Role::user, std::move(content));
        return {};
    }

    void add(Role role, ContentBlocks content) {
        LoweredMessage lowered;
        lowered.message.role = role;
        lowered.message.content = std::move(content.text);
        lowered.images = std::move(content.images);
        messages.push_back(std::move(lowered));
    }

    Status read_tool_result(Fields& fields, std::set<std::string>& answered,
                            std::vector<Tool>& announced) {
        FATHOM_ASSIGN(std::string id, fields.string("tool_use_id"));
        FATHOM_RETURN_IF_ERROR(fields.optional_bool("is_error").status());
        if (answered.contains(id)) {
            return invalid_argument(
                "messages.{}.content.{}: each tool_use must have a single result. Found multiple "
                "`tool_result` blocks with id: {}",
                place_.message, place_.block, id);
        }
        if (open_calls_.erase(id) == 0) {
            return invalid_argument(
                "unexpected `messages.{}.content.{}: tool_use_id` found in `tool_result` blocks: "
                "{}. Each `tool_result` block must have a corresponding `tool_use` block in the "
                "previous message.",
                place_.message, place_.block, id);
        }
        answered.insert(id);
        ContentBlocks content(dialect_);
        if (Json* value = fields.present("content")) {
            if (value->is_string()) {
                content.add_text(value->as_string());
            } else if (value->is_array()) {
                FATHOM_RETURN_IF_ERROR(read_result_blocks(value->items(), content, announced));
            } else {
                return invalid_argument("invalid request body: expected a string or a list");
            }
        }
        add(Role::tool, std::move(content));
        messages.back().message.tool_call_id = std::move(id);
        return {};
    }

    Status read_result_blocks(Json::Array& blocks, ContentBlocks& content,
                              std::vector<Tool>& announced) {
        static constexpr std::array<std::string_view, 4> kTypes = {"text", "image", "document",
                                                                   "tool_reference"};
        const std::string path =
            fmt::format("messages.{}.content.{}.tool_result", place_.message, place_.block);
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            FATHOM_ASSIGN(Fields fields,
                          Fields::of(blocks[i], "internally tagged enum MessagesResultBlock"));
            FATHOM_ASSIGN(const std::size_t type, fields.variant("type", kTypes));
            if (kTypes[type] == "text") {
                FATHOM_ASSIGN(const std::string text, fields.string("text"));
                content.add_text(text);
            } else if (kTypes[type] == "image") {
                FATHOM_RETURN_IF_ERROR(
                    read_image(fields, path, fmt::format("{}.content[{}]", path, i), content));
            } else if (kTypes[type] == "document") {
                FATHOM_RETURN_IF_ERROR(read_document(fields, content));
            } else {
                FATHOM_ASSIGN(const std::string name, fields.string("tool_name"));
                const auto tool = tools_.find(name);
                if (tool == tools_.end()) {
                    return invalid_argument(
                        "messages.{}.content.{}: tool reference '{}' not found in available tools",
                        place_.message, place_.block, name);
                }
                content.add_text(name);
                FATHOM_RETURN_IF_ERROR(add_announced(tool->second, announced));
            }
        }
        return {};
    }

    void announce(std::vector<Tool> tools) {
        if (tools.empty() || dialect_ == Dialect::v4) return;
        LoweredMessage lowered;
        lowered.message.role = Role::system;
        lowered.message.tools = std::move(tools);
        messages.push_back(std::move(lowered));
    }

    // ---- assistant

    Status read_assistant(Json::Array& blocks) {
        FATHOM_RETURN_IF_ERROR(check_no_open_calls_here());
        open_calls_in_order_.clear();
        ContentBlocks content(dialect_);
        ContentBlocks thinking(dialect_);
        LoweredMessage lowered;
        lowered.message.role = Role::assistant;
        bool has_thinking = false;
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            place_.block = i;
            FATHOM_ASSIGN(TypedBlock block, typed(blocks[i]));
            if (block.type == Block::thinking) {
                FATHOM_ASSIGN(const std::string text, block.fields.string("thinking"));
                FATHOM_RETURN_IF_ERROR(block.fields.optional_string("signature").status());
                thinking.add_text(text);
                has_thinking = true;
                continue;
            }
            FATHOM_RETURN_IF_ERROR(read_assistant_block(block, content, lowered.message));
        }
        lowered.message.content = std::move(content.text);
        if (has_thinking) lowered.message.reasoning_content = std::move(thinking.text.text);
        messages.push_back(std::move(lowered));
        return {};
    }

    Status read_assistant_block(TypedBlock& block, ContentBlocks& content, Message& message) {
        switch (block.type) {
            case Block::text: {
                FATHOM_ASSIGN(const std::string text, block.fields.string("text"));
                FATHOM_RETURN_IF_ERROR(check_no_open_calls(
                    fmt::format("messages.{}.{}: ", place_.message, place_.block)));
                content.add_text(text);
                return {};
            }
            case Block::document:
                return read_document(block.fields, content);
            case Block::image:
                return invalid_argument("Image in assistant message is unsupported");
            case Block::tool_use:
                return read_tool_use(block.fields, message);
            case Block::tool_result:
                return misplaced("tool_result", "user");
            case Block::tool_addition:
                return misplaced("tool_addition", "system");
            case Block::server_tool_use:
            case Block::web_search_tool_result:
                return pass_server_block();
            case Block::thinking:
            case Block::redacted_thinking:  // sealed by whoever wrote it
                break;
        }
        return {};
    }

    Status read_tool_use(Fields& fields, Message& message) {
        ToolCall call;
        FATHOM_ASSIGN(call.id, fields.string("id"));
        FATHOM_ASSIGN(call.name, fields.string("name"));
        FATHOM_ASSIGN(const Json* input, fields.required("input"));
        call.arguments = spaced_json(*input, dialect_);
        if (!open_calls_.insert(call.id).second) {
            return invalid_argument("messages.{}.content.{}: `tool_use` ids must be unique",
                                    place_.message, place_.block);
        }
        open_calls_in_order_.push_back(call.id);
        message.tool_calls.push_back(std::move(call));
        return {};
    }

    // ---- system

    Status read_system(Json::Array& blocks) {
        FATHOM_RETURN_IF_ERROR(check_no_open_calls_here());
        ContentBlocks content(dialect_);
        std::vector<Tool> announced;
        bool has_content = false;
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            place_.block = i;
            FATHOM_ASSIGN(TypedBlock block, typed(blocks[i]));
            has_content |= block.type != Block::tool_addition;
            FATHOM_RETURN_IF_ERROR(read_system_block(block, content, announced));
        }
        if (!has_content) {
            announce(std::move(announced));
            return {};
        }
        if (dialect_ == Dialect::v4) {
            LoweredMessage lowered;
            lowered.message.content =
                "<system-reminder>\n" + content.text.text + "\n</system-reminder>";
            messages.push_back(std::move(lowered));
            return {};
        }
        add(Role::system, std::move(content));
        messages.back().message.tools = std::move(announced);
        return {};
    }

    Status read_system_block(TypedBlock& block, ContentBlocks& content,
                             std::vector<Tool>& announced) {
        switch (block.type) {
            case Block::text: {
                FATHOM_ASSIGN(const std::string text, block.fields.string("text"));
                content.add_text(text);
                return {};
            }
            case Block::image:
                return read_image(
                    block.fields, fmt::format("messages.{}", place_.message),
                    fmt::format("messages.{}.content[{}]", place_.message, place_.block), content);
            case Block::document:
                return read_document(block.fields, content);
            case Block::tool_addition:
                return read_tool_addition(block.fields, announced);
            case Block::thinking:
            case Block::redacted_thinking:
                return misplaced_thinking();
            case Block::tool_use:
            case Block::server_tool_use:
                return misplaced("tool_use", "assistant");
            case Block::tool_result:
                return misplaced("tool_result", "user");
            case Block::web_search_tool_result:
                return pass_server_block();
        }
        return {};
    }

    Status read_tool_addition(Fields& fields, std::vector<Tool>& announced) {
        static constexpr std::array<std::string_view, 1> kTypes = {"tool_reference"};
        FATHOM_ASSIGN(Json * value, fields.required("tool"));
        FATHOM_ASSIGN(Fields reference, Fields::of(*value, "internally tagged enum MessagesTool"));
        FATHOM_RETURN_IF_ERROR(reference.variant("type", kTypes).status());
        FATHOM_ASSIGN(const std::string name, reference.string("name"));
        const auto tool = tools_.find(name);
        if (tool == tools_.end()) {
            return invalid_argument(
                "messages.{}.content.{}: `tool_addition` references unknown tool '{}'",
                place_.message, place_.block, name);
        }
        return add_announced(tool->second, announced);
    }

    Dialect dialect_;
    ServerTools server_tools_;
    Profile profile_;
    std::map<std::string_view, KnownTool> tools_;
    std::size_t announced_bytes_ = 0;
    Place place_;
    std::set<std::string> open_calls_;
    std::vector<std::string> open_calls_in_order_;
};

Status read_system_field(Json* value, Dialect dialect, std::vector<LoweredMessage>& messages) {
    if (value == nullptr || value->is_null()) return {};
    static constexpr std::array<std::string_view, 1> kTypes = {"text"};
    ContentBlocks content(dialect);
    if (value->is_string()) {
        content.add_text(value->as_string());
    } else if (value->is_array()) {
        for (Json& block : value->items()) {
            FATHOM_ASSIGN(Fields fields,
                          Fields::of(block, "internally tagged enum MessagesSystemBlock"));
            FATHOM_RETURN_IF_ERROR(fields.variant("type", kTypes).status());
            FATHOM_ASSIGN(const std::string text, fields.string("text"));
            content.add_text(text);
        }
    } else {
        return invalid_argument("invalid request body: expected a string or a list");
    }
    LoweredMessage lowered;
    lowered.message.role = Role::system;
    lowered.message.content = std::move(content.text);
    messages.push_back(std::move(lowered));
    return {};
}

Result<std::vector<LoweredMessage>> lower_messages(Fields& body, const std::vector<Tool>& tools,
                                                   Dialect dialect, const LowerOptions& options) {
    FATHOM_ASSIGN(Json::Array * items, body.array("messages"));
    MessageReader reader(dialect, tools, options);
    FATHOM_RETURN_IF_ERROR(read_system_field(body.find("system"), dialect, reader.messages));
    if (items->empty()) return invalid_argument("messages: at least one message is required");
    for (std::size_t i = 0; i < items->size(); ++i)
        FATHOM_RETURN_IF_ERROR(reader.read((*items)[i], i));
    FATHOM_RETURN_IF_ERROR(reader.check_all_answered(items->size()));
    return std::move(reader.messages);
}

// ------------------------------------------------------------------------------------ other fields

struct MessagesFields {
    RequestedChoice tool_choice;
    std::vector<std::string> stops;
    std::optional<std::uint64_t> max_tokens;
    Sampling sampling;
    std::optional<bool> stream;
    std::optional<bool> thinking;
    std::optional<RequestedEffort> effort;
};

Result<MessagesFields> read_fields(Fields& body, Profile profile) {
    MessagesFields read;
    FATHOM_ASSIGN(read.tool_choice, read_tool_choice(body.find("tool_choice")));
    FATHOM_ASSIGN(Json::Array * stops, body.optional_array("stop_sequences"));
    for (std::size_t i = 0; stops != nullptr && i < stops->size(); ++i) {
        if (!(*stops)[i].is_string()) return wrong_type((*stops)[i], "a string");
        read.stops.push_back((*stops)[i].as_string());
    }
    FATHOM_ASSIGN(read.max_tokens, body.optional_unsigned("max_tokens", UINT32_MAX, "u32"));
    FATHOM_ASSIGN(read.sampling.temperature, body.optional_float("temperature"));
    FATHOM_ASSIGN(read.sampling.top_p, body.optional_float("top_p"));
    FATHOM_ASSIGN(read.stream, body.optional_bool("stream"));
    FATHOM_ASSIGN(read.thinking, read_thinking(body.find("thinking"), "struct MessagesThinking"));
    if (Json* metadata = body.present("metadata"))
        FATHOM_RETURN_IF_ERROR(Fields::of(*metadata, "struct MessagesMetadata").status());
    if (Json* config = body.present("output_config")) {
        FATHOM_ASSIGN(Fields fields, Fields::of(*config, "struct MessagesOutputConfig"));
        FATHOM_ASSIGN(read.effort,
                      read_effort(fields.find("effort"), "output_config.effort", profile));
    }
    return read;
}

Status check_ranges(const MessagesFields& read, bool thinking, const LowerOptions& options) {
    FATHOM_RETURN_IF_ERROR(check_stop_sequences(read.stops, true));
    FATHOM_RETURN_IF_ERROR(check_temperature(read.sampling));
    FATHOM_RETURN_IF_ERROR(check_top_p(read.sampling));
    // Larger values than the bound are lowered to it.
    if (read.max_tokens.value_or(1) != 0) return {};
    return check_max_tokens(read.max_tokens, thinking, options);
}

}  // namespace

Result<LoweredRequest> lower_messages_request(std::string_view body, const LowerOptions& options) {
    FATHOM_ASSIGN(Json json, parse_request_body(body, "struct MessagesRequest"));
    FATHOM_ASSIGN(Fields fields, Fields::of(json, "struct MessagesRequest"));
    FATHOM_ASSIGN(MessagesFields read, read_fields(fields, options.profile));
    LoweredRequest request;
    Conversation& conversation = request.conversation;
    FATHOM_ASSIGN(request.model, fields.string("model"));
    FATHOM_RETURN_IF_ERROR(fields.required("messages").status());
    FATHOM_ASSIGN(request.dialect, dialect_of_model(request.model, options));
    FATHOM_RETURN_IF_ERROR(settle_thinking(read.thinking, read.effort, options, request));
    FATHOM_ASSIGN(DeclaredTools declared, lower_tools(fields, request.dialect, options));
    FATHOM_ASSIGN(std::vector<LoweredMessage> messages,
                  lower_messages(fields, declared.tools, request.dialect, options));
    FATHOM_RETURN_IF_ERROR(settle_reasoning(messages, conversation.thinking,
                                            options.missing_reasoning, "content[].thinking"));
    conversation.tools = std::move(declared.tools);
    if (read.tool_choice.function && declared.dropped.contains(*read.tool_choice.function))
        read.tool_choice = {};
    FATHOM_RETURN_IF_ERROR(settle_tool_choice(std::move(read.tool_choice), conversation));
    if (conversation.tools.empty()) drop_announcements(messages);
    FATHOM_RETURN_IF_ERROR(check_ranges(read, conversation.thinking, options));
    place_messages(std::move(messages), request);
    if (read.max_tokens) {
        request.inference.max_tokens = std::min(static_cast<std::int64_t>(*read.max_tokens),
                                                max_tokens_bound(conversation.thinking, options));
    }
    request.stream = read.stream.value_or(false);
    request.parsing.stop_sequences = std::move(read.stops);
    settle_generation(read.sampling, options, request);
    if (options.profile == Profile::open)
        FATHOM_RETURN_IF_ERROR(read_open_settings(fields, request));
    return request;
}

}  // namespace fathom
