#include "recipe/thinking.h"

#include <utility>

#include "recipe/prompt.h"

namespace fathom {

ThinkingSplitter::ThinkingSplitter(bool starts_in_thinking)
    : thinking_(starts_in_thinking), marker_({std::string(kThinkEnd)}) {}

ThinkingSplitter::Output ThinkingSplitter::push(std::string_view text) {
    if (!thinking_) return {.reasoning = {}, .content = std::string(text)};
    StopStrings::Output found = marker_.push(text);
    Output output{.reasoning = std::move(found.text), .content = {}};
    if (found.stopped) {
        thinking_ = false;
        output.content = text.substr(text.size() - found.rest_bytes);
    }
    return output;
}

ThinkingSplitter::Output ThinkingSplitter::finish() {
    return {.reasoning = marker_.finish(), .content = {}};
}

}  // namespace fathom
