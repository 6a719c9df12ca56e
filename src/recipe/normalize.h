// The messages of a conversation in the order and grouping in which a prompt shows them
// (recipe.md 2.2, steps 1 to 4, and the place of the header of step 5).
#pragma once

#include <cstddef>
#include <vector>

#include "recipe/conversation.h"

namespace fathom {

// One message of the prompt. Joined messages are one turn; what has no part in the prompt (the
// deferred tools of V4's system messages) is gone.
struct Turn {
    Message message;
    // The number of each image of message.content in the order of the conversation, from 0 on:
    // turns move, so the prompt may show them in another order.
    std::vector<std::size_t> image_numbers;
};

// Where the prompt has a header (tools in effect, an answer format with text), the first turn is a
// system message, inserted with empty content if need be.
std::vector<Turn> normalize_messages(const Conversation& conversation, Dialect dialect);

// Whether text is appended to the first system message.
bool has_prompt_header(const Conversation& conversation);

}  // namespace fathom
