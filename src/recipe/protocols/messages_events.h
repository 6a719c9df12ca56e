// Answers of Anthropic Messages (recipe.md 4.4): an event stream of content blocks, or one message
// object. Log probabilities are not part of the protocol.
#pragma once

#include <memory>

#include "recipe/protocols/answer_builder.h"

namespace fathom {

std::unique_ptr<AnswerBuilder> make_messages_answer(AnswerSettings settings);

}  // namespace fathom
