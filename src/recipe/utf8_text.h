// Walking UTF-8 that may be damaged. Every place of the recipe that meets raw bytes (tokens end in
// the middle of characters; clients send anything) steps through them with utf8_step, so "what is
// one character" has one answer: the WHATWG decoder's, which replaces each maximal subpart of an
// ill-formed sequence by one U+FFFD. Well-formedness itself is base/utf8.h's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fathom {

struct Utf8Step {
    enum class Kind {
        character,   // a well-formed character
        ill_formed,  // a maximal ill-formed subpart
        incomplete,  // the text ends inside what may still become a character
    };
    Kind kind = Kind::character;
    std::uint8_t byte_count = 1;        // 1 to 4; bytes of the text this step covers
    std::uint32_t code_point = 0xFFFD;  // U+FFFD unless kind is character
};

// The step at byte `at` of `text`, at < text.size().
Utf8Step utf8_step(std::string_view text, std::size_t at);

// How many bytes at the end of `text` are the start of a character whose rest has not come yet: 0
// to 3. Looks at the last three bytes only.
std::size_t utf8_incomplete_tail(std::string_view text);

// Whether the text ends with a well-formed character other than U+FFFD, so that utf8_lossy of it
// does not end with U+FFFD. Looks at the last four bytes only.
bool utf8_ends_well(std::string_view text);

// UTF-8 with each maximal ill-formed subpart replaced by one U+FFFD (the WHATWG rule). An
// incomplete character at the end is ill-formed.
std::string utf8_lossy(std::string_view bytes);

// Appends one code point, which must be a Unicode scalar value.
void append_utf8(std::string& out, std::uint32_t code_point);

}  // namespace fathom
