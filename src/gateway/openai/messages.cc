#include "gateway/openai/messages.h"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "gateway/openai/fields.h"

namespace fathom {

namespace {

Result<Role> parse_role(const Json& message, const std::string& path) {
    FATHOM_ASSIGN(const std::optional<std::string> name, string_field(message, "role"));
    if (!name) return invalid_argument("invalid request body: {}: missing field `role`", path);
    if (*name == "system" || *name == "developer") return Role::system;
    if (*name == "user") return Role::user;
    if (*name == "assistant") return Role::assistant;
    if (*name == "tool" || *name == "latest_reminder")
        return not_supported(fmt::format("{}: role `{}` is", path, *name));
    return invalid_argument(
        "invalid request body: {}.role: unknown variant `{}`, expected one of `system`, "
        "`developer`, "
        "`user`, `assistant`",
        path, *name);
}

Result<std::string> parse_part(const Json& part, const std::string& path) {
    if (!part.is_object()) return wrong_kind(path, "an object", part);
    FATHOM_ASSIGN(const std::optional<std::string> type, string_field(part, "type"));
    if (!type) return invalid_argument("invalid request body: {}: missing field `type`", path);
    if (*type != "text")
        return not_supported(fmt::format("{}: content of type `{}` is", path, *type));
    FATHOM_ASSIGN(std::optional<std::string> text, string_field(part, "text"));
    if (!text) return invalid_argument("invalid request body: {}: missing field `text`", path);
    return std::move(*text);
}

// A string, or a list of text parts; nothing when absent or null.
Result<std::optional<std::string>> parse_content(const Json& message, const std::string& path) {
    const Json* content = field(message, "content");
    if (content == nullptr) return std::optional<std::string>();
    if (content->is_string()) return std::optional<std::string>(content->as_string());
    if (!content->is_array())
        return wrong_kind(path + ".content", "a string or an array", *content);
    std::string joined;
    for (std::size_t i = 0; i < content->items().size(); ++i) {
        FATHOM_ASSIGN(const std::string text,
                      parse_part(content->items()[i], fmt::format("{}.content[{}]", path, i)));
        if (i > 0) joined += "\n\n";
        joined += text;
    }
    return std::optional<std::string>(std::move(joined));
}

Result<Message> parse_message(const Json& source, const std::string& path) {
    if (!source.is_object()) return wrong_kind(path, "an object", source);
    Message message;
    FATHOM_ASSIGN(message.role, parse_role(source, path));
    FATHOM_RETURN_IF_ERROR(string_field(source, "name").status());  // not used
    FATHOM_ASSIGN(std::optional<std::string> content, parse_content(source, path));
    if (message.role == Role::assistant) {
        const Json* calls = field(source, "tool_calls");
        if (calls != nullptr) return not_supported(path + ": `tool_calls` are");
        if (!content)
            return invalid_argument("Invalid assistant message: content or tool_calls must be set");
        FATHOM_ASSIGN(message.reasoning_content, string_field(source, "reasoning_content"));
        FATHOM_ASSIGN(const std::optional<bool> prefix, bool_field(source, "prefix"));
        message.prefix = prefix.value_or(false);
    } else if (!content) {
        return invalid_argument("invalid request body: {}: missing field `content`", path);
    }
    message.content = std::move(*content);
    return message;
}

}  // namespace

Result<std::vector<Message>> parse_messages(const Json& messages) {
    std::vector<Message> parsed;
    for (std::size_t i = 0; i < messages.items().size(); ++i) {
        FATHOM_ASSIGN(Message message,
                      parse_message(messages.items()[i], fmt::format("messages[{}]", i)));
        if (message.prefix && i + 1 != messages.items().size())
            return invalid_argument(
                "Invalid completion message: prefix set true with message which is not final "
                "message or message role is not assistant");
        if (message.role == Role::system && message.content.empty()) continue;
        parsed.push_back(std::move(message));
    }
    if (parsed.empty()) return invalid_argument("Empty input messages");
    return parsed;
}

}  // namespace fathom
