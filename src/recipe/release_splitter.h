// The three patterns of the release (recipe.md 1.5) as one scanner. Numbers, CJK characters and the
// rest are told apart by the class of a character (character_classes.h), so the pieces that the
// first two patterns leave are runs of one kind, and the third pattern is matched within such a
// run.
//
// Gives the words that RegexSplitter gives for kReleasePatterns, several times as fast.
#pragma once

#include <array>
#include <string_view>

#include "recipe/character_classes.h"
#include "recipe/word_splitter.h"

namespace fathom {

// As the release's tokenizer.json has them: numbers in threes; CJK; words, symbols and white space.
inline constexpr std::array<std::string_view, 3> kReleasePatterns = {
    "\\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"};

class ReleaseSplitter final : public WordSplitter {
  public:
    ReleaseSplitter();

    void start(std::string_view text) override;
    std::span<const std::string_view> next_words() override;

  private:
    // A character: where the next one begins, and its class; class 0 and no step at the end.
    struct Step {
        const char* next;
        std::uint8_t bits;
    };

    Step step(const char* at) const;
    std::uint8_t ascii_class(char c) const { return ascii_[static_cast<unsigned char>(c)]; }
    const char* run_end(const char* at, std::uint8_t piece, std::uint8_t bits) const;
    const char* number_end(const char* at) const;
    const char* space_end(const char* at, std::uint8_t piece) const;
    const char* match_end(const char* at, Step first, std::uint8_t piece) const;
    const char* ascii_word_end(const char* at) const;
    const char* word_end(const char* at) const;

    const CharacterClasses& classes_;
    const std::uint8_t* ascii_;  // the classes of ASCII
    const char* at_ = nullptr;
    const char* end_ = nullptr;
    std::array<std::string_view, 256> words_;
};

}  // namespace fathom
