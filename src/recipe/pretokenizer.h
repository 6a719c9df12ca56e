// The pre-tokenizer of a tokenizer.json (recipe.md 1.5): a sequence of regular expressions. Each
// cuts every piece that the one before it left into its matches and the gaps between them, so no
// look-ahead sees past a piece. The words that remain are what BPE works on.
//
// The files are written for Oniguruma (Ruby syntax); PCRE2 runs them. Patterns in which the two
// differ are refused at load instead of being matched almost right, and `\s` is spelled out, since
// PCRE2 counts U+180E as white space and Unicode does not.
//
// PreTokenizer is immutable and shared by all threads. A PreTokenizer::Splitter holds what one
// thread needs to match (JIT stack, match data, work lists) and has one owner.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

class PreTokenizer {
  public:
    // `where` starts each message, e.g. "DIR/tokenizer.json: pre_tokenizer"; the index of the
    // pattern at fault is added to it.
    static Result<PreTokenizer> make(std::span<const std::string> patterns, std::string_view where);

    class Splitter {
      public:
        explicit Splitter(const PreTokenizer& pre_tokenizer);  // which must outlive it
        ~Splitter();
        Splitter(const Splitter&) = delete;
        Splitter& operator=(const Splitter&) = delete;

        // The words of `text` in order; together they are the text. `text` must be well-formed
        // UTF-8. The words point into `text`; the vector is good until the next call.
        //
        // Time is linear in the text for the release's patterns. A pattern that backtracks without
        // end is stopped after kMatchLimit steps and leaves the rest of its piece uncut.
        const std::vector<std::string_view>& split(std::string_view text);

      private:
        struct Matcher;
        const PreTokenizer& pre_tokenizer_;
        std::unique_ptr<Matcher> matcher_;
        std::vector<std::string_view> pieces_;
        std::vector<std::string_view> cut_;
    };

  private:
    struct Pattern;
    std::vector<std::shared_ptr<const Pattern>> patterns_;  // shared: copies of this are cheap
};

}  // namespace fathom
