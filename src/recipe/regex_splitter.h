// Pre-tokenization by PCRE2, whatever the patterns.
//
// Files are written for Oniguruma (Ruby syntax). Patterns in which the two differ are refused
// instead of being matched almost right, and `\s` is spelled out, since PCRE2 counts U+180E as
// white space and Unicode does not.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "recipe/word_splitter.h"

namespace fathom {

// Unicode White_Space, as the inside of a character class of PCRE2.
inline constexpr std::string_view kWhiteSpaceClass =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

struct RegexPattern;  // compiled; immutable

// One pattern of a tokenizer.json. invalid_argument says what is wrong with it or not supported.
Result<std::shared_ptr<const RegexPattern>> compile_regex_pattern(std::string_view text);

class RegexSplitter final : public WordSplitter {
  public:
    // The patterns must outlive it.
    explicit RegexSplitter(std::span<const std::shared_ptr<const RegexPattern>> patterns);
    ~RegexSplitter() override;

    void start(std::string_view text) override;
    std::span<const std::string_view> next_words() override;  // all at once

  private:
    struct Matcher;
    std::span<const std::shared_ptr<const RegexPattern>> patterns_;
    std::unique_ptr<Matcher> matcher_;
    std::string_view text_;
    std::vector<std::string_view> pieces_;
    std::vector<std::string_view> cut_;
};

}  // namespace fathom
