// Stop strings over streamed text: finds the first stop string however the text is cut, and holds
// back text that could still become one. Works on bytes. One owner.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fathom {

class StopStrings {
  public:
    explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

    struct Output {
        std::string
            text;  // safe to show; never contains a stop string or part of one that may grow
        bool stopped = false;  // a stop string was found; text ends right before it
        std::string matched;
    };
    Output push(std::string_view text);
    std::string finish();  // the held-back text when the stream ends without a match

  private:
    std::vector<std::string> stops_;
    std::string held_;
    bool stopped_ = false;
};

}  // namespace fathom
