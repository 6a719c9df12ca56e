#include "recipe/vectors/rows.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

namespace fathom {
namespace {

std::int64_t images_of(const Json& message) {
    if (row_has(message, "image_sources"))
        return static_cast<std::int64_t>(row_items(message, "image_sources").size());
    return row_integer(message, "images");
}

MessageText content_of(const Json& message, std::string_view image_spelling) {
    const std::string text = row_text(message, "content");
    std::string_view rest = text;
    MessageText content;
    for (std::int64_t images = images_of(message); images > 0; --images) {
        const std::size_t at = rest.find(image_spelling);
        if (at == std::string_view::npos) break;
        content.append(rest.substr(0, at));
        content.append_image();
        rest.remove_prefix(at + image_spelling.size());
    }
    content.append(rest);
    return content;
}

ReasoningEffort effort_of(const Json& lowered) {
    const std::string effort = row_text(lowered, "reasoning_effort");
    if (effort == "low") return ReasoningEffort::low;
    if (effort == "high") return ReasoningEffort::high;
    if (effort == "xhigh") return ReasoningEffort::xhigh;
    return effort == "max" ? ReasoningEffort::max : ReasoningEffort::none;
}

ResponseFormat format_of(const Json& lowered) {
    ResponseFormat format;
    if (row_text(lowered, "response_format") == "json_object")
        format.kind = ResponseFormatKind::json_object;
    if (const Json* schema = lowered.find("response_schema")) {
        format.kind = ResponseFormatKind::json_schema;
        format.schema = *schema;
    }
    if (const auto regex = row_optional_text(lowered, "response_regex")) {
        format.kind = ResponseFormatKind::regex;
        format.regex = *regex;
    }
    return format;
}

std::string decode_base64(std::string_view text) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    unsigned bits = 0;
    int count = 0;
    for (const char c : text) {
        const std::size_t digit = kDigits.find(c);
        if (digit == std::string_view::npos) continue;
        bits = bits << 6 | static_cast<unsigned>(digit);
        count += 6;
        if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
    }
    return bytes;
}

}  // namespace

const Json& row_member(const Json& object, std::string_view key) {
    static const Json kNull;
    const Json* member = object.find(key);
    return member == nullptr ? kNull : *member;
}

bool row_has(const Json& object, std::string_view key) {
    return object.find(key) != nullptr;
}

const Json::Array& row_items(const Json& object, std::string_view key) {
    static const Json::Array kNone;
    const Json& member = row_member(object, key);
    return member.is_array() ? member.items() : kNone;
}

const Json::Object& row_members(const Json& object, std::string_view key) {
    static const Json::Object kNone;
    const Json& member = row_member(object, key);
    return member.is_object() ? member.members() : kNone;
}

std::string row_text(const Json& object, std::string_view key, std::string_view fallback) {
    const Json& member = row_member(object, key);
    return member.is_string() ? member.as_string() : std::string(fallback);
}

std::optional<std::string> row_optional_text(const Json& object, std::string_view key) {
    const Json& member = row_member(object, key);
    return member.is_string() ? std::optional(member.as_string()) : std::nullopt;
}

bool row_flag(const Json& object, std::string_view key, bool fallback) {
    const Json& member = row_member(object, key);
    return member.is_bool() ? member.as_bool() : fallback;
}

std::int64_t row_integer(const Json& object, std::string_view key, std::int64_t fallback) {
    const Json& member = row_member(object, key);
    return member.kind() == Json::Kind::integer ? member.as_int64() : fallback;
}

std::vector<TokenId> row_ids(const Json& array) {
    std::vector<TokenId> ids;
    if (!array.is_array()) return ids;
    for (const Json& item : array.items()) {
        const bool fits = item.kind() == Json::Kind::integer && item.as_int64() >= 0 &&
                          item.as_int64() <= std::numeric_limits<std::int32_t>::max();
        ids.push_back(static_cast<TokenId>(fits ? item.as_int64() : -1));
    }
    return ids;
}

std::vector<PromptSegment> row_segments(const Json& row) {
    const std::string prompt = row_text(row, "prompt");
    std::vector<PromptSegment> segments;
    std::size_t done = 0;
    const auto text_until = [&](std::size_t end) {
        if (end > done) segments.push_back({false, prompt.substr(done, end - done)});
        done = end;
    };
    for (const Json& range : row_items(row, "special_ranges")) {
        const std::vector<TokenId> ends = row_ids(range);
        if (ends.size() != 2) break;
        const auto begin = static_cast<std::int64_t>(ends[0]);
        const auto end = static_cast<std::int64_t>(ends[1]);
        if (begin < static_cast<std::int64_t>(done) || end < begin ||
            end > static_cast<std::int64_t>(prompt.size()))
            break;
        text_until(static_cast<std::size_t>(begin));
        segments.push_back({true, prompt.substr(done, static_cast<std::size_t>(end) - done)});
        done = static_cast<std::size_t>(end);
    }
    text_until(prompt.size());
    return segments;
}

std::string marked_prompt(const std::vector<PromptSegment>& segments) {
    std::string text;
    for (const PromptSegment& segment : segments)
        text += segment.special ? "⟦" + segment.text + "⟧" : segment.text;
    return text;
}

std::vector<Tool> row_tools(const Json& object) {
    std::vector<Tool> tools;
    for (const Json& source : row_items(object, "tools")) {
        Tool& tool = tools.emplace_back();
        tool.name = row_text(source, "name");
        tool.description = row_optional_text(source, "description");
        if (const Json* parameters = source.find("parameters")) tool.parameters = *parameters;
        tool.strict = row_flag(source, "strict");
        tool.defer_loading = row_flag(source, "defer_loading");
    }
    return tools;
}

Message row_message(const Json& source, std::string_view image_spelling) {
    static constexpr std::array<std::string_view, 5> kRoles = {"system", "user", "assistant",
                                                               "tool", "latest_reminder"};
    Message message;
    const auto role = std::find(kRoles.begin(), kRoles.end(), row_text(source, "role"));
    if (role != kRoles.end()) message.role = static_cast<Role>(role - kRoles.begin());
    message.content = content_of(source, image_spelling);
    message.reasoning_content = row_optional_text(source, "reasoning_content");
    const auto text_at = [](const Json& call, std::size_t i) {
        const bool there = call.is_array() && i < call.items().size();
        return there && call.items()[i].is_string() ? call.items()[i].as_string() : std::string();
    };
    for (const Json& call : row_items(source, "tool_calls"))
        message.tool_calls.push_back({text_at(call, 0), text_at(call, 1), text_at(call, 2)});
    message.empty_tool_calls =
        row_member(source, "tool_calls").is_array() && message.tool_calls.empty();
    message.tool_call_id = row_text(source, "tool_call_id");
    message.tools = row_tools(source);
    message.prefix = row_flag(source, "prefix");
    return message;
}

Conversation row_conversation(const Json& lowered, std::string_view image_spelling) {
    Conversation conversation;
    for (const Json& message : row_items(lowered, "messages"))
        conversation.messages.push_back(row_message(message, image_spelling));
    conversation.thinking = row_flag(lowered, "thinking_mode", true);
    conversation.effort = effort_of(lowered);
    conversation.tools = row_tools(lowered);
    const std::string choice = row_text(lowered, "tool_choice");
    if (choice == "none") conversation.tool_choice = ToolChoice::none;
    if (choice == "required") conversation.tool_choice = ToolChoice::required;
    conversation.response_format = format_of(lowered);
    return conversation;
}

std::string row_body(const Json& row) {
    if (const Json* body = row.find("body")) return body->dump();
    if (row_has(row, "body_text")) return row_text(row, "body_text");
    return decode_base64(row_text(row, "body_base64"));
}

RenderOptions row_render_options(const Json& row, Dialect dialect) {
    RenderOptions options{.dialect = dialect};
    SpecialTokens& tokens = options.tokens;
    const std::map<std::string_view, std::string*> names = {
        {"bos", &tokens.begin_of_sentence},
        {"eos", &tokens.end_of_sentence},
        {"system", &tokens.system},
        {"user", &tokens.user},
        {"assistant", &tokens.assistant},
        {"thinking_start", &tokens.think_begin},
        {"thinking_end", &tokens.think_end},
        {"dsml", &tokens.dsml},
        {"image", &tokens.image},
    };
    for (const auto& [name, spelling] : row_members(row_member(row, "options"), "special_tokens")) {
        const auto known = names.find(name);
        if (known != names.end() && spelling.is_string()) *known->second = spelling.as_string();
    }
    return options;
}

LowerOptions row_lower_options(const Json& row) {
    LowerOptions lower;
    const Json& options = row_member(row, "options");
    lower.default_thinking = row_flag(options, "default_thinking_mode", true);
    if (row_text(options, "profile") == "open") lower.profile = Profile::open;
    if (row_text(options, "reasoning_content") == "reject")
        lower.missing_reasoning = MissingReasoning::reject;
    if (row_text(options, "responses_web_search") == "reject")
        lower.responses_web_search = ServerTools::reject;
    if (row_text(options, "messages_web_search") == "drop")
        lower.messages_web_search = ServerTools::drop;
    if (row_text(options, "dsml_recovery") == "orphan_invoke")
        lower.dsml_recovery = DsmlRecovery::orphan_invoke;
    lower.thinking_max_tokens =
        row_integer(options, "thinking_max_tokens_upper_bound", lower.thinking_max_tokens);
    lower.chat_max_tokens =
        row_integer(options, "non_thinking_max_tokens_upper_bound", lower.chat_max_tokens);
    if (row_has(options, "model_versions")) lower.models.clear();
    for (const std::string_view key : {"model_versions", "model_alias"})
        for (const auto& [name, version] : row_members(options, key))
            lower.models[name] = version == Json("v4") ? Dialect::v4 : Dialect::v41;
    return lower;
}

ParsingOptions row_parsing_options(const Json& row) {
    const Json& parsing = row_member(row, "parsing");
    ParsingOptions options{.parse_tool_calls = row_flag(parsing, "parse_tool_calls", true),
                           .starts_in_tool_calls = row_flag(parsing, "starts_in_tool_calls"),
                           .parse_json_output = row_flag(parsing, "parse_json_output")};
    const std::string stage = row_text(parsing, "thinking_initial_stage");
    if (stage == "reasoning_start") options.thinking_initial_stage = ThinkingStage::reasoning_start;
    if (stage == "reasoning_continuation")
        options.thinking_initial_stage = ThinkingStage::reasoning_continuation;
    if (stage == "content_continuation")
        options.thinking_initial_stage = ThinkingStage::content_continuation;
    for (const Json& stop : row_items(parsing, "stop_sequences"))
        if (stop.is_string()) options.stop_sequences.push_back(stop.as_string());
    const Json& special = row_member(row, "special_tokens");
    options.thinking_end = row_text(special, "thinking_end", options.thinking_end);
    options.dsml = row_text(special, "dsml", options.dsml);
    return options;
}

Result<LoweredRequest> row_request(const Json& row) {
    FATHOM_ASSIGN(const Protocol protocol, parse_protocol(row_text(row, "protocol", "chat")));
    return lower_request(protocol, row_body(row), row_lower_options(row));
}

}  // namespace fathom
