// The pre-tokenizer of a tokenizer.json (recipe.md 1.5): a sequence of regular expressions. Each
// cuts every piece that the one before it left into its matches and the gaps between them, so no
// look-ahead sees past a piece. The words that remain are what BPE works on.
//
// The release's patterns are known by their text and cut by a scanner written by hand; any others
// are run by PCRE2. Both give the same words: character classes are those of the installed PCRE2.
// The same patterns written in another way, each in a group (?:…) say, are run by PCRE2, which is
// how the scanner is tested and measured.
//
// PreTokenizer is immutable and shared by all threads. A PreTokenizer::Splitter holds what one
// thread needs to match and has one owner.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

class WordSplitter;
struct RegexPattern;

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

        // Begins with `text`, which must be well-formed UTF-8 and live until the last word is used.
        void start(std::string_view text);
        // The next words in order, some at a time, and none at the end; all together they are the
        // text. The words point into the text; the span is good until the next call.
        //
        // Time is linear in the text for the release's patterns. A pattern that backtracks without
        // end is stopped after a fixed number of steps and leaves the rest of its piece uncut.
        std::span<const std::string_view> next_words();

      private:
        std::unique_ptr<WordSplitter> splitter_;
    };

  private:
    bool is_release_ = false;
    // Empty for the release. Shared: copies of this are cheap.
    std::vector<std::shared_ptr<const RegexPattern>> patterns_;
};

}  // namespace fathom
