// The conversation model that all HTTP protocols are lowered to (recipe.md 2.1), and its rendering
// to a prompt. This first part covers system, user and assistant turns with thinking on and off for
// V4.1; tools, images, V4 and the other protocols join here in a later issue.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "recipe/tokenizer.h"

namespace fathom {

enum class Role { system, user, assistant };
enum class ReasoningEffort { none, low, high, xhigh, max };

struct Message {
    Role role = Role::user;
    std::string content;
    std::optional<std::string> reasoning_content;  // assistant only; dropped without tools (2.8)
    bool prefix = false;  // assistant, last message: to be continued (2.11)
};

struct Conversation {
    std::vector<Message> messages;
    bool thinking = true;
    ReasoningEffort effort = ReasoningEffort::none;
};

// A rendered prompt is a list of segments: special tokens by their spelling, and plain text from
// which no special token can arise (recipe.md 1.6). Adjacent text is one segment.
struct PromptSegment {
    bool special = false;
    std::string text;
};

// recipe.md 2.2–2.4 for V4.1.
Result<std::vector<PromptSegment>> render_prompt(const Conversation& conversation);
std::string prompt_text(const std::vector<PromptSegment>& segments);
// invalid_argument when a special token is not in the added vocabulary.
Result<std::vector<TokenId>> encode_prompt(const std::vector<PromptSegment>& segments,
                                           const Tokenizer& tokenizer);

}  // namespace fathom
