// Finding patterns in streamed output (recipe.md 3.4). A matcher holds the patterns that can end
// one stage of the parser, in order of preference. Bytes are fed until one pattern is complete; at
// the end of a chunk partial() says how many of the last bytes may yet become a match, and
// everything before them is decided.
//
// The match that is complete first wins, and of two that end at one byte the first in the list: of
// "END" and "EN" the text "END" matches "EN". Amortised one step a byte and pattern
// (Knuth-Morris-Pratt), nothing is allocated, and bytes that can begin no pattern cost a table
// look-up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom {

struct OutputPattern {
    enum class Kind {
        text,                 // exactly `text`
        text_after_newlines,  // `text` and all line feeds right before it
        leading_newline,      // one line feed, only as the first byte after reset()
    };
    Kind kind = Kind::text;
    std::string text = {};  // not empty, unless leading_newline
};

class OutputMatcher {
  public:
    OutputMatcher() = default;  // matches nothing
    explicit OutputMatcher(const std::vector<OutputPattern>& patterns);

    struct Scan {
        std::size_t fed = 0;  // bytes of the text that were read: all, or up to the end of a match
        int pattern = -1;     // index of the pattern that is complete
        std::size_t length = 0;  // bytes of the match; it may have begun in earlier texts
    };
    // After a match the matcher must be reset before it is fed again.
    Scan feed(std::string_view text);
    std::size_t partial() const;
    bool is_fresh() const { return is_first_; }  // nothing was fed since reset()
    void reset();

  private:
    struct Pattern {
        OutputPattern::Kind kind = OutputPattern::Kind::text;
        std::string text;
        // border[i]: length of the longest proper prefix of text that ends its first i + 1 bytes.
        std::vector<std::size_t> border = {};
        std::size_t matched = 0;   // bytes of text that the input ends with
        std::size_t newlines = 0;  // line feeds right before those

        std::size_t length() const { return newlines + matched; }
        void advance(char byte);
        bool feed(char byte, bool is_first);  // true when complete
    };
    std::vector<Pattern> patterns_ = {};
    std::array<bool, 256> begins_ = {};  // bytes that may begin a match
    bool any_leading_ = false;
    bool is_first_ = true;  // no byte was fed since reset()
    bool idle_ = true;      // no pattern is partly matched
};

}  // namespace fathom
