// Answers in OpenAI's shapes (recipe.md 4.3), in the reference's order of fields. Pure text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gateway/generation.h"
#include "gateway/openai/request.h"

namespace fathom {

struct AnswerHead {
    ApiKind kind = ApiKind::chat;
    std::string id;            // a UUID
    std::int64_t created = 0;  // Unix seconds
    std::string model;         // as the request named it
    std::string fingerprint;   // system_fingerprint
    bool thinking = false;     // chat: deltas name both texts, one of them null
    bool include_usage = false;
};

// Server-sent events of a streamed answer, appended to `out`:
//   append_start, append_delta …, append_last, append_done. Usage stands in the last chunk, beside
// finish_reason; with include_usage the chunks before it carry "usage": null.
void append_start(std::string& out, const AnswerHead& head);
void append_delta(std::string& out, const AnswerHead& head, const GenerationDelta& delta);
void append_last(std::string& out, const AnswerHead& head, const GenerationResult& result);
void append_done(std::string& out);
// A failure after the stream began: an error event; no append_done may follow.
void append_stream_error(std::string& out, const Status& status);
inline constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";

// The body of an answer that is not streamed; `text` holds all deltas, joined.
std::string complete_answer(const AnswerHead& head, const GenerationDelta& text,
                            const GenerationResult& result);

// GET /v1/models and /v1/models/{id}.
std::string model_json(std::string_view name, std::int64_t created, std::int64_t context_tokens);
std::string models_json(const std::vector<std::string>& names, std::int64_t created,
                        std::int64_t context_tokens);

}  // namespace fathom
