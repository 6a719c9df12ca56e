// Splits streamed output text into reasoning and content at the first `</think>` when the prompt
// opened a thinking section; holds back a partial marker. The text is otherwise passed on byte for
// byte: reasoning, the marker and content joined are the output. Without a marker all text is
// reasoning. One owner.
#pragma once

#include <string>
#include <string_view>

#include "recipe/stop_strings.h"

namespace fathom {

class ThinkingSplitter {
  public:
    explicit ThinkingSplitter(bool starts_in_thinking);

    struct Output {
        std::string reasoning;
        std::string content;
    };
    Output push(std::string_view text);
    Output finish();  // a partial marker that the end of the stream left over

  private:
    bool thinking_;
    StopStrings marker_;
};

}  // namespace fathom
