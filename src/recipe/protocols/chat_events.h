// Answers of OpenAI Chat Completions (recipe.md 4.3): `chat.completion.chunk` payloads, or one
// `chat.completion` object.
#pragma once

#include <cstdint>
#include <memory>

#include "recipe/protocols/answer_builder.h"

namespace fathom {

struct ChatAnswerOptions {
    bool include_usage = false;  // every chunk has the member `usage`; the last one has it anyway
    // Answers to the one prompt (`n`); events say by OutputEvent::choice whose they are. The usage,
    // with the output of all, comes with the end of the last one.
    std::int64_t choices = 1;
};

std::unique_ptr<AnswerBuilder> make_chat_answer(AnswerSettings settings, ChatAnswerOptions options);

}  // namespace fathom
