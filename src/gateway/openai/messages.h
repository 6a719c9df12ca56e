// Chat messages to a conversation (recipe.md 4.2, 4.3). Used by request.cc.
#pragma once

#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "recipe/prompt.h"

namespace fathom {

// `messages` as received, an array. Texts of one content list are joined with "\n\n"; `developer`
// is `system`; empty system messages are dropped.
Result<std::vector<Message>> parse_messages(const Json& messages);

}  // namespace fathom
