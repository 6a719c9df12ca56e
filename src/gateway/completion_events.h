// Answers of OpenAI Completions: `text_completion` objects, whole or as payloads of a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/json.h"
#include "recipe/protocols/answer_builder.h"
#include "recipe/tokenizer.h"

namespace fathom {

struct CompletionAnswerOptions {
    bool include_usage = false;  // as of Chat
    std::int64_t choices = 1;
    bool top_logprobs = false;  // entries list the likeliest tokens beside their own
};

// As make_chat_answer.
std::unique_ptr<AnswerBuilder> make_completion_answer(AnswerSettings settings,
                                                      CompletionAnswerOptions options);

// Log probabilities of a whole answer, as Completions write them: {"tokens", "token_logprobs",
// "top_logprobs", "text_offset"}, or null without any. An offset counts the characters of the
// answer before the token. Of tokens that are shown alike in `top_logprobs` the most probable
// stands for all; without `with_top` it is null.
void write_completion_logprobs(JsonWriter& json, std::shared_ptr<const Tokenizer> tokenizer,
                               const std::vector<TokenLogprob>& logprobs, bool with_top);

}  // namespace fathom
