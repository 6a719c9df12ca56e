// What the release's pre-tokenizer asks of a character, as bits. The tables are made by asking the
// installed PCRE2 for every code point, so that a scanner agrees with it whatever Unicode version
// it knows. Some 10 ms at first use, 60 KB; immutable then; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace fathom {

class CharacterClasses {
  public:
    enum : std::uint8_t {
        kWord = 1,         // \p{L} or \p{M}
        kSymbol = 2,       // \p{P} or \p{S}
        kSpace = 4,        // White_Space
        kNewline = 8,      // CR or LF, which are white space too
        kAsciiPunct = 16,  // the 32 of ASCII, which are symbols too
        kNumber = 32,      // \p{N}; no other bit with it
        kCjk = 64,         // U+4E00-9FA5, U+3040-30FF
    };

    static const CharacterClasses& instance();

    const std::array<std::uint8_t, 256>& of_first_256() const { return blocks_.front(); }
    std::uint8_t of(std::uint32_t code_point) const {
        return blocks_[block_of_[code_point >> 8]][code_point & 0xFF];
    }

  private:
    using Block = std::array<std::uint8_t, 256>;
    CharacterClasses();

    std::vector<Block> blocks_;  // distinct ones; the first is that of ASCII
    std::array<std::uint16_t, 0x1100> block_of_{};
};

}  // namespace fathom
