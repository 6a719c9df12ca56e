// Rendering a conversation to a prompt, and the prompt to ids (recipe.md 2).
//
// A prompt is a list of segments: special tokens by their spelling, and plain text from which no
// special token can arise (1.6). Adjacent text is one segment; none is empty. All text of the
// request is plain, except that the grounding marks (<｜ref｜>, <｜box｜>, …) in assistant content
// and reasoning are special: the model wrote them as tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "recipe/conversation.h"
#include "recipe/tokenizer.h"

namespace fathom {

// The special tokens that a prompt of system, user and assistant turns is made of, by their
// spelling; their ids come from the tokenizer's added tokens.
inline constexpr std::string_view kBeginOfSentence = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystemToken = "<｜System｜>";
inline constexpr std::string_view kUserToken = "<｜User｜>";
inline constexpr std::string_view kAssistantToken = "<｜Assistant｜>";
inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";

struct PromptSegment {
    bool special = false;
    std::string text;

    friend bool operator==(const PromptSegment&, const PromptSegment&) = default;
};

// recipe.md 2.2–2.4, 2.8 and 2.11 for V4.1. invalid_argument when an assistant message with prefix
// is not the last.
Result<std::vector<PromptSegment>> render_prompt(const Conversation& conversation);

// The prompt as one string, for people and logs. It must not be encoded: what was text could become
// a special token.
std::string prompt_text(const std::vector<PromptSegment>& segments);

// invalid_argument when a special token is not in the added vocabulary.
Result<std::vector<TokenId>> encode_prompt(const std::vector<PromptSegment>& segments,
                                           const Tokenizer& tokenizer);

}  // namespace fathom
