#include "recipe/byte_alphabet.h"

#include <array>

#include "recipe/utf8_text.h"

namespace fathom {
namespace {

constexpr std::uint32_t kAlphabetEnd = 0x144;

constexpr bool stands_for_itself(std::uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

struct Alphabet {
    std::array<std::uint16_t, 256> code_point{};
    std::array<std::int16_t, kAlphabetEnd> byte{};  // -1: not in the alphabet
};

constexpr Alphabet make_alphabet() {
    Alphabet alphabet;
    alphabet.byte.fill(-1);
    std::uint16_t next = 0x100;
    for (std::uint16_t b = 0; b < 256; ++b) {
        const std::uint16_t c = stands_for_itself(b) ? b : next++;
        alphabet.code_point[b] = c;
        alphabet.byte[c] = static_cast<std::int16_t>(b);
    }
    return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string byte_spelling(std::uint8_t byte) {
    std::string out;
    append_utf8(out, kAlphabet.code_point[byte]);
    return out;
}

std::optional<std::string> spelled_bytes(std::string_view spelling) {
    std::string out;
    out.reserve(spelling.size());
    for (std::size_t at = 0; at < spelling.size();) {
        const Utf8Step step = utf8_step(spelling, at);
        if (step.code_point >= kAlphabetEnd || kAlphabet.byte[step.code_point] < 0) return {};
        out.push_back(static_cast<char>(kAlphabet.byte[step.code_point]));
        at += step.byte_count;
    }
    return out;
}

}  // namespace fathom
