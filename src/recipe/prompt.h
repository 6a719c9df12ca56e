// Rendering a conversation to a prompt, and the prompt to ids (recipe.md 2).
//
// A prompt is a list of segments: special tokens by their spelling, and plain text from which no
// special token can arise (1.6). Adjacent text is one segment; none is empty. All text of the
// request is plain, except that the grounding marks (<｜ref｜>, <｜box｜>, …) in assistant content
// and reasoning are special: the model wrote them as tokens.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "recipe/conversation.h"
#include "recipe/special_tokens.h"
#include "recipe/tokenizer.h"

namespace fathom {

struct PromptSegment {
    bool special = false;
    std::string text;
    // Of an image's token: which image of the conversation it is, counted over all messages in the
    // order of the request, from 0 on.
    std::optional<std::size_t> image = {};

    friend bool operator==(const PromptSegment&, const PromptSegment&) = default;
};

// How V4 states the effort: as its checkpoints since 31 July 2026 expect it, or as the earlier ones
// do. A checkpoint does not say which it is.
enum class EffortDialect { v4_0731, v4_original };

// Which reasoning of earlier answers the prompt shows (2.8): that of conversations with tools in
// effect; all; or, without tools, what follows the last user turn.
enum class HistoryReasoning { drop_without_tools, keep, official };

// Whether special tokens that are spelled out in the text of a request stay text.
enum class ContentSpecials { plain, recognize };

struct RenderOptions {
    Dialect dialect = Dialect::v41;
    EffortDialect effort_dialect = EffortDialect::v4_0731;
    HistoryReasoning history_reasoning = HistoryReasoning::drop_without_tools;
    SpecialTokens tokens = {};
};

// recipe.md 2.2 to 2.9 and 2.11. invalid_argument when an assistant message with prefix is not the
// last. Images of a V4 conversation get their token too; who lowers a request for V4 writes text in
// their place.
Result<std::vector<PromptSegment>> render_prompt(const Conversation& conversation,
                                                 const RenderOptions& options = {});

// A text to be filled in between `prompt` and `suffix` (2.12); without suffix a text to be
// continued. The template is that of the family's earlier models; for this one it is not confirmed.
std::vector<PromptSegment> render_completion_prompt(std::string_view prompt,
                                                    const std::optional<std::string>& suffix,
                                                    const SpecialTokens& tokens = {});

// The prompt as one string, for people and logs. It must not be encoded: what was text could become
// a special token.
std::string prompt_text(const std::vector<PromptSegment>& segments);

// invalid_argument when a special token is not in the added vocabulary. With `recognize` the text
// of the request can become special tokens too; that is for comparison with old logs.
Result<std::vector<TokenId>> encode_prompt(const std::vector<PromptSegment>& segments,
                                           const Tokenizer& tokenizer,
                                           ContentSpecials specials = ContentSpecials::plain);

}  // namespace fathom
