// Splits streamed output text into reasoning and content at the first `</think>` when the prompt
// opened a thinking section; holds back a partial marker. The full output parser (tool calls, JSON
// mode) is a later issue and will take this place. One owner.
#pragma once

#include <string>
#include <string_view>

namespace fathom {

class ThinkingSplitter {
  public:
    explicit ThinkingSplitter(bool starts_in_thinking) : thinking_(starts_in_thinking) {}

    struct Output {
        std::string reasoning;
        std::string content;
    };
    Output push(std::string_view text);
    Output finish();
    bool in_thinking() const { return thinking_; }

  private:
    bool thinking_;
    std::string held_;
};

}  // namespace fathom
