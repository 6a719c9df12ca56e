// The conversation model that all HTTP protocols are lowered to (recipe.md 2.1). What a request
// says in its own protocol becomes a list of messages, tools and a few switches; render_prompt
// (prompt.h) turns that into the text that the model reads.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace fathom {

// Text in which images stand at byte offsets, ascending; two may stand at the same one. The k-th
// offset is the k-th image of the message. An image is never spelled in `text`, so that typed text
// cannot become one.
struct MessageText {
    std::string text;
    std::vector<std::size_t> images;

    MessageText() = default;
    MessageText(std::string plain)
        : text(std::move(plain)) {}                  // NOLINT(google-explicit-constructor)
    MessageText(const char* plain) : text(plain) {}  // NOLINT(google-explicit-constructor)

    bool empty() const { return text.empty() && images.empty(); }
    void append(std::string_view plain) { text += plain; }
    void append(const std::string& plain) { text += plain; }
    void append(const char* plain) { text += plain; }
    void append(const MessageText& other) {
        for (const std::size_t offset : other.images)
            images.push_back(text.size() + offset);
        text += other.text;
    }
    void append_image() { images.push_back(text.size()); }
    friend bool operator==(const MessageText&, const MessageText&) = default;
};

enum class Role { system, user, assistant, tool, latest_reminder };
enum class Dialect { v4, v41 };
enum class ReasoningEffort { none, low, high, xhigh, max };  // none: not given

struct ToolCall {
    std::string id, name;
    std::string arguments;  // normally a JSON object, as text
};

struct Tool {
    std::string name;
    std::optional<std::string> description = {};
    std::optional<Json> parameters = {};  // a JSON schema
    std::optional<bool> strict = {};      // as the request has it; has no effect on the prompt
    bool defer_loading = false;  // not listed at the start; a system message announces it later
};
enum class ToolChoice { automatic, none, required };

struct Message {
    Role role = Role::user;
    MessageText content = {};  // of an assistant without images
    // Assistant only. Which of it is rendered: recipe.md 2.8.
    std::optional<std::string> reasoning_content = {};
    std::vector<ToolCall> tool_calls = {};  // assistant
    bool empty_tool_calls = false;          // assistant: a list without calls was given
    std::string tool_call_id = {};          // tool
    std::vector<Tool> tools = {};           // system: deferred tools that it announces
    bool prefix = false;                    // assistant, last message: to be continued (2.11)
};

// How the answer is to be formed. json_schema carries the schema, regex the expression.
enum class ResponseFormatKind { text, json_object, json_schema, regex };
struct ResponseFormat {
    ResponseFormatKind kind = ResponseFormatKind::text;
    Json schema = {};
    std::string regex = {};
};

struct Conversation {
    std::vector<Message> messages = {};
    bool thinking = true;
    ReasoningEffort effort = ReasoningEffort::none;  // has an effect only when thinking
    std::optional<int> effort_percent = {};          // 1..100, V4.1: instead of a name
    std::vector<Tool> tools = {};
    ToolChoice tool_choice = ToolChoice::automatic;
    ResponseFormat response_format = {};

    // Whether the prompt offers tools (recipe.md 2.2).
    bool has_tools() const { return !tools.empty() && tool_choice != ToolChoice::none; }
};

}  // namespace fathom
