// Reads rows of recorded results: one JSON object a line. Rows come from files that anybody may
// have written, so members are looked for, never taken for granted: what is absent or of another
// kind reads as nothing, and the comparison that follows says what is missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "recipe/conversation.h"
#include "recipe/parsing_options.h"
#include "recipe/prompt.h"
#include "recipe/protocols/lower_options.h"
#include "recipe/protocols/lowered_request.h"
#include "recipe/recipe.h"

namespace fathom {

// The member, or null.
const Json& row_member(const Json& object, std::string_view key);
bool row_has(const Json& object, std::string_view key);
const Json::Array& row_items(const Json& object, std::string_view key);
const Json::Object& row_members(const Json& object, std::string_view key);
std::string row_text(const Json& object, std::string_view key, std::string_view fallback = {});
std::optional<std::string> row_optional_text(const Json& object, std::string_view key);
bool row_flag(const Json& object, std::string_view key, bool fallback = false);
std::int64_t row_integer(const Json& object, std::string_view key, std::int64_t fallback = 0);
// Integers outside the range of ids become the id -1, which no vocabulary has.
std::vector<TokenId> row_ids(const Json& array);

// A recorded prompt, split at its special ranges. Ranges that are not ascending or not inside the
// prompt end the splitting.
std::vector<PromptSegment> row_segments(const Json& row);
// For comparison and readable differences: a special token is set between ⟦ and ⟧.
std::string marked_prompt(const std::vector<PromptSegment>& segments);

std::vector<Tool> row_tools(const Json& object);  // its `tools`
Message row_message(const Json& message, std::string_view image_spelling);
// A lowered conversation, as the member "conversation" or "expect" of a row has it. The recorded
// texts spell images out: as many spellings as the message has images stand for them.
Conversation row_conversation(const Json& lowered, std::string_view image_spelling);

// The request: `body` compact, `body_text` as it is, or `body_base64`.
std::string row_body(const Json& row);
// The row's `options`, as far as they concern rendering, and lowering.
RenderOptions row_render_options(const Json& row, Dialect dialect);
LowerOptions row_lower_options(const Json& row);
// The row's `parsing` and the spellings that concern it.
ParsingOptions row_parsing_options(const Json& row);

// The row's request of the row's protocol (Chat where none is named), lowered with its options.
Result<LoweredRequest> row_request(const Json& row);

}  // namespace fathom
