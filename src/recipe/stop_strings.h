// Stop strings over streamed text: finds the first stop string however the text is cut, and holds
// back text that could still become one. Works on bytes. One owner.
//
// "First" is the one that ends first; of two that end at the same byte, the one listed first
// (recipe.md 3.4). Of the stops "END" and "EN" the text "END" stops at "EN".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fathom {

class StopStrings {
  public:
    // Empty stop strings are ignored (recipe.md 3.2).
    explicit StopStrings(const std::vector<std::string>& stops);

    struct Output {
        // Safe to show; never contains a stop string or part of one that may grow. If the stop
        // strings and the whole text are UTF-8, it ends between characters wherever the text was
        // cut between characters.
        std::string text;
        bool stopped = false;  // a stop string was found; text ends right before it
        std::string matched;
        std::size_t rest_bytes = 0;  // of the pushed text, how many bytes come after the match
    };
    // After a stop everything is swallowed: further calls return no text and stopped again.
    Output push(std::string_view text);
    std::string finish();  // the held-back text when the stream ends without a match

  private:
    // Knuth-Morris-Pratt: border[i] is the length of the longest proper prefix of the stop that is
    // a suffix of its first i + 1 bytes; matched is how much of the stop the text now ends with.
    struct Matcher {
        std::string stop;
        std::vector<std::size_t> border;
        std::size_t matched = 0;

        bool feed(char byte);  // true when the stop is complete
    };
    std::vector<Matcher> matchers_;
    std::string held_;
    std::string stopped_by_;  // empty: not stopped
};

}  // namespace fathom
