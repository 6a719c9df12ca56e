// Prompts as the encoding scripts write them that are published with the weights (recipe.md 2.10),
// for evaluations that are to be compared with the published ones. They differ from render_prompt:
// tools and formats belong to messages, tasks ask for one special answer, the turn of the assistant
// is opened by the message before it, and no turn is opened after an answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "recipe/conversation.h"
#include "recipe/prompt.h"

namespace fathom {

enum class OfficialRole { system, developer, user, assistant, tool, latest_reminder };

// What a message asks for instead of an answer.
enum class OfficialTask { none, action, query, authority, domain, title, read_url };

struct OfficialMessage {
    OfficialRole role = OfficialRole::user;
    MessageText content = {};
    std::optional<std::string> reasoning_content = {};  // assistant
    std::vector<ToolCall> tool_calls = {};              // assistant
    std::string tool_call_id = {};                      // tool
    std::vector<Json> tools = {};              // system, developer: objects, written as they are
    std::optional<Json> response_format = {};  // system, developer: any JSON
    OfficialTask task = OfficialTask::none;
    bool without_end = false;  // assistant: no end-of-sentence token
};

struct OfficialConversation {
    std::vector<OfficialMessage> messages = {};
    bool thinking = true;
    ReasoningEffort effort = ReasoningEffort::none;
    std::optional<int> effort_percent = {};  // 1..100, V4.1
    // Leaves out reasoning before the last user message, unless some message has tools.
    bool drop_thinking = true;
};

// `options` gives dialect, effort dialect and spellings; history_reasoning has no effect.
// invalid_argument for a developer message in V4.1, which has no such role.
Result<std::vector<PromptSegment>> render_official_prompt(const OfficialConversation& conversation,
                                                          const RenderOptions& options);

}  // namespace fathom
