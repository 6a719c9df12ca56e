// Finding patterns in streamed output (recipe.md 3.4). OutputPatterns holds the patterns that can
// end one stage of the parser, in order of preference; it is immutable and shared. A matcher is the
// place of one stream in them. Bytes are fed until one pattern is complete; at the end of a chunk
// partial() says how many of the last bytes may yet become a match, and everything before them is
// decided.
//
// The match that is complete first wins, and of two that end at one byte the first in the list: of
// "END" and "EN" the text "END" matches "EN". Amortised one step a byte and pattern
// (Knuth-Morris-Pratt), feeding allocates nothing, and bytes that can begin no pattern cost a table
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
        leading_newline,      // one line feed, only as the first byte after begin()
    };
    Kind kind = Kind::text;
    std::string text = {};  // not empty, unless leading_newline
};

class OutputPatterns {
  public:
    OutputPatterns() = default;  // none: nothing matches
    explicit OutputPatterns(const std::vector<OutputPattern>& patterns);

  private:
    friend class OutputMatcher;
    struct Pattern {
        OutputPattern::Kind kind = OutputPattern::Kind::text;
        std::string text;
        // border[i]: length of the longest proper prefix of text that ends its first i + 1 bytes.
        std::vector<std::size_t> border = {};

        // Bytes of the text that the input ends with after `byte`, if it ended with `matched`.
        std::size_t advance(std::size_t matched, char byte) const;
    };
    std::vector<Pattern> patterns_ = {};
    std::array<bool, 256> begins_ = {};  // bytes that may begin a match
    bool any_leading_ = false;
};

class OutputMatcher {
  public:
    // From here on these patterns are looked for, from the next byte on. They outlive that.
    void begin(const OutputPatterns& patterns);

    struct Scan {
        std::size_t fed = 0;  // bytes of the text that were read: all, or up to the end of a match
        int pattern = -1;     // index of the pattern that is complete
        std::size_t length = 0;  // bytes of the match; it may have begun in earlier texts
    };
    // After a match begin() must come before more is fed.
    Scan feed(std::string_view text);
    std::size_t partial() const;
    bool is_fresh() const { return is_first_; }  // nothing was fed since begin()

  private:
    // How far one pattern is.
    struct Progress {
        std::size_t matched = 0;   // bytes of its text that the input ends with
        std::size_t newlines = 0;  // line feeds right before those

        std::size_t length() const { return newlines + matched; }
    };
    // True when complete.
    static bool step(const OutputPatterns::Pattern& pattern, Progress& progress, char byte,
                     bool is_first);

    const OutputPatterns* patterns_ = nullptr;
    std::vector<Progress> progress_ = {};  // one a pattern
    bool is_first_ = true;                 // no byte was fed since begin()
    bool idle_ = true;                     // no pattern is partly matched
};

}  // namespace fathom
