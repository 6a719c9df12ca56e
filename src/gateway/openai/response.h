// Answers in OpenAI's shapes (recipe.md 4.3), in the reference's order of fields. Pure text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
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
    std::int64_t choices = 1;
    std::int64_t logprobs = -1;  // SamplingParams::logprobs
    bool logprobs_processed = false;
};

// Server-sent events of a streamed answer, appended to `out`: append_start, then append_delta … and
// append_end of every choice, append_done. The end of the last choice gives the result: usage and
// anchors come beside its finish_reason; with include_usage the chunks before it carry
// "usage": null.
void append_start(std::string& out, const AnswerHead& head);
void append_delta(std::string& out, const AnswerHead& head, const GenerationDelta& delta);
void append_end(std::string& out, const AnswerHead& head, std::int64_t choice,
                GenerationFinish finish, const GenerationResult* last);
void append_done(std::string& out);
// A failure after the stream began: an error event; no append_done may follow.
void append_stream_error(std::string& out, const Status& status);
inline constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";

// The body of an answer that is not streamed; `texts` holds the deltas of each choice, joined.
std::string complete_answer(const AnswerHead& head, const std::vector<GenerationDelta>& texts,
                            const GenerationResult& result);

// The object `logprobs` of a choice or chunk, or null when none were asked for or there is none.
// Chat: {"content": [{"token", "logprob", "bytes", "top_logprobs"} …]}, for reasoning beside it or
// instead "reasoning_content". Completion: {"tokens", "token_logprobs", "top_logprobs",
// "text_offset"}. "mode" says which distribution: raw or processed. A token is shown by its own
// text; bytes that are no whole character by themselves as \xc3.
void write_logprobs(JsonWriter& json, const AnswerHead& head, const GenerationDelta& delta);
std::string shown_token(std::string_view bytes);

// GET /v1/models and /v1/models/{id}.
std::string model_json(std::string_view name, std::int64_t created, std::int64_t context_tokens);
std::string models_json(const std::vector<std::string>& names, std::int64_t created,
                        std::int64_t context_tokens);

}  // namespace fathom
