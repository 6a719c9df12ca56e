// Reads the rows of golden/recipe: conversations as they are after lowering, and prompts with their
// special ranges (the README there explains the fields).
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json_lines.h"
#include "recipe/prompt.h"

namespace fathom::testing {

// Splits a recorded prompt at its special ranges.
inline std::vector<PromptSegment> golden_segments(const Json& row) {
    const std::string& prompt = row.find("prompt")->as_string();
    std::vector<PromptSegment> segments;
    std::size_t done = 0;
    const auto text_until = [&](std::size_t end) {
        if (end > done) segments.push_back({false, prompt.substr(done, end - done)});
        done = end;
    };
    for (const Json& range : row.find("special_ranges")->items()) {
        text_until(static_cast<std::size_t>(range.items()[0].as_int64()));
        const auto end = static_cast<std::size_t>(range.items()[1].as_int64());
        segments.push_back({true, prompt.substr(done, end - done)});
        done = end;
    }
    text_until(prompt.size());
    return segments;
}

// For comparison and readable failures: a special token is set between ⟦ and ⟧.
inline std::string marked(const std::vector<PromptSegment>& segments) {
    std::string text;
    for (const PromptSegment& segment : segments)
        text += segment.special ? "⟦" + segment.text + "⟧" : segment.text;
    return text;
}

inline std::optional<std::string> optional_text(const Json& object, std::string_view key) {
    const Json* member = object.find(key);
    if (member == nullptr || !member->is_string()) return {};
    return member->as_string();
}

inline std::vector<Tool> tools_of(const Json& object) {
    std::vector<Tool> tools;
    const Json* list = object.find("tools");
    if (list == nullptr || !list->is_array()) return tools;
    for (const Json& source : list->items()) {
        Tool& tool = tools.emplace_back();
        tool.name = text_of(source, "name");
        tool.description = optional_text(source, "description");
        if (const Json* parameters = source.find("parameters")) tool.parameters = *parameters;
        tool.strict = flag_of(source, "strict");
        tool.defer_loading = flag_of(source, "defer_loading");
    }
    return tools;
}

// The recorded text spells images out. As many spellings as the message has images stand for them;
// further ones are text.
inline MessageText content_of(const Json& message, std::string_view image_spelling) {
    std::string rest = text_of(message, "content");
    std::size_t images = 0;
    if (const Json* count = message.find("images"))
        images = static_cast<std::size_t>(count->as_int64());
    if (const Json* sources = message.find("image_sources")) images = sources->items().size();
    MessageText content;
    for (; images > 0; --images) {
        const std::size_t at = rest.find(image_spelling);
        if (at == std::string::npos) break;
        content.append(std::string_view(rest).substr(0, at));
        content.append_image();
        rest.erase(0, at + image_spelling.size());
    }
    content.append(rest);
    return content;
}

inline Message message_of(const Json& source, std::string_view image_spelling) {
    static const std::vector<std::string> kRoles = {"system", "user", "assistant", "tool",
                                                    "latest_reminder"};
    Message message;
    const std::string role = text_of(source, "role");
    std::size_t index = 0;
    while (index < kRoles.size() && kRoles[index] != role)
        ++index;
    EXPECT_LT(index, kRoles.size()) << role;
    message.role = static_cast<Role>(index);
    message.content = content_of(source, image_spelling);
    message.reasoning_content = optional_text(source, "reasoning_content");
    if (const Json* calls = source.find("tool_calls"); calls != nullptr && calls->is_array()) {
        for (const Json& call : calls->items())
            message.tool_calls.push_back({call.items()[0].as_string(), call.items()[1].as_string(),
                                          call.items()[2].as_string()});
        message.empty_tool_calls = calls->items().empty();
    }
    message.tool_call_id = text_of(source, "tool_call_id");
    message.tools = tools_of(source);
    message.prefix = flag_of(source, "prefix");
    return message;
}

inline ReasoningEffort effort_of(const Json& lowered) {
    const std::string effort = text_of(lowered, "reasoning_effort");
    if (effort == "low") return ReasoningEffort::low;
    if (effort == "high") return ReasoningEffort::high;
    if (effort == "xhigh") return ReasoningEffort::xhigh;
    if (effort == "max") return ReasoningEffort::max;
    EXPECT_EQ(effort, "");
    return ReasoningEffort::none;
}

inline ResponseFormat response_format_of(const Json& lowered) {
    ResponseFormat format;
    const std::string kind = text_of(lowered, "response_format", "text");
    if (kind == "json_object") format.kind = ResponseFormatKind::json_object;
    if (const Json* schema = lowered.find("response_schema")) {
        format.kind = ResponseFormatKind::json_schema;
        format.schema = *schema;
    }
    if (const auto regex = optional_text(lowered, "response_regex")) {
        format.kind = ResponseFormatKind::regex;
        format.regex = *regex;
    }
    return format;
}

// `lowered`: the member "conversation" or "expect" of a row.
inline Conversation conversation_of(const Json& lowered,
                                    std::string_view image_spelling = kImageToken) {
    Conversation conversation;
    for (const Json& message : lowered.find("messages")->items())
        conversation.messages.push_back(message_of(message, image_spelling));
    conversation.thinking = flag_of(lowered, "thinking_mode", true);
    conversation.effort = effort_of(lowered);
    conversation.tools = tools_of(lowered);
    const std::string choice = text_of(lowered, "tool_choice", "auto");
    if (choice == "none") conversation.tool_choice = ToolChoice::none;
    if (choice == "required") conversation.tool_choice = ToolChoice::required;
    conversation.response_format = response_format_of(lowered);
    return conversation;
}

// The options of a row that concern rendering.
inline RenderOptions render_options_of(const Json& row, Dialect dialect) {
    RenderOptions options{.dialect = dialect};
    const Json* given = row.find("options");
    const Json* tokens = given == nullptr ? nullptr : given->find("special_tokens");
    if (tokens == nullptr) return options;
    const std::map<std::string, std::string*> names = {
        {"bos", &options.tokens.begin_of_sentence},
        {"eos", &options.tokens.end_of_sentence},
        {"system", &options.tokens.system},
        {"user", &options.tokens.user},
        {"assistant", &options.tokens.assistant},
        {"thinking_start", &options.tokens.think_begin},
        {"thinking_end", &options.tokens.think_end},
        {"dsml", &options.tokens.dsml},
        {"image", &options.tokens.image},
    };
    for (const auto& [name, spelling] : tokens->members())
        *names.at(name) = spelling.as_string();
    return options;
}

}  // namespace fathom::testing
