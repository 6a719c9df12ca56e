// How PreTokenizer::Splitter cuts text: one class runs the patterns of the file as they are
// (regex_splitter.h), one does by hand what the release's patterns do (release_splitter.h).
#pragma once

#include <span>
#include <string_view>

namespace fathom {

// One owner; the contract is PreTokenizer::Splitter's.
class WordSplitter {
  public:
    virtual ~WordSplitter() = default;
    virtual void start(std::string_view text) = 0;
    virtual std::span<const std::string_view> next_words() = 0;
};

}  // namespace fathom
