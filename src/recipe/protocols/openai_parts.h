// Parts of answers that Chat Completions and Completions share (recipe.md 4.3).
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"
#include "recipe/output_parser.h"

namespace fathom {

// "stop", "length", "tool_calls" or "content_filter".
const char* chat_finish_reason(OutputFinish finish);

// What an answer came to, all its choices together.
struct AnswerCounts {
    std::int64_t completion_tokens = 0;
    std::optional<std::int64_t> reasoning_tokens = {};
    std::int64_t ended = 0;  // choices

    void add(const OutputEvent& finish);
};

// The usage object, as a value.
void write_chat_usage(JsonWriter& writer, const ReadyChunk& prompt, const AnswerCounts& counts);
// The member system_fingerprint.
void write_fingerprint(JsonWriter& writer, const ReadyChunk& prompt);

}  // namespace fathom
