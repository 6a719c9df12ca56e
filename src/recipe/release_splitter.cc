#include "recipe/release_splitter.h"

#include <bit>
#include <cstring>

namespace fathom {
namespace {

using Classes = CharacterClasses;

// What tells the pieces apart that the first two patterns leave; none of them for the rest.
constexpr std::uint8_t kPieceBits = Classes::kNumber | Classes::kCjk;

constexpr bool is_ascii(char c) {
    return static_cast<unsigned char>(c) < 0x80;
}
constexpr bool is_ascii_letter(char c) {
    return static_cast<unsigned char>((c | 0x20) - 'a') < 26;
}

// Eight bytes a step: most words end within one, which costs no branch that depends on where.
const char* ascii_letters_end(const char* at, const char* end) {
    static_assert(std::endian::native == std::endian::little);
    constexpr std::uint64_t kEach = 0x0101010101010101u;
    constexpr std::uint64_t kTop = 0x80 * kEach;
    while (end - at >= 8) {
        std::uint64_t eight;
        std::memcpy(&eight, at, sizeof(eight));
        const std::uint64_t lower = (eight | 0x20 * kEach) & ~kTop;
        const std::uint64_t from_a = lower + (0x80 - 'a') * kEach;
        const std::uint64_t beyond_z = lower + (0x80 - 'z' - 1) * kEach;
        const std::uint64_t others = ~(from_a & ~beyond_z & ~eight) & kTop;
        if (others != 0) return at + std::countr_zero(others) / 8;
        at += 8;
    }
    while (at < end && is_ascii_letter(*at))
        ++at;
    return at;
}

}  // namespace

ReleaseSplitter::ReleaseSplitter()
    : classes_(CharacterClasses::instance()), ascii_(classes_.of_first_256().data()) {}

void ReleaseSplitter::start(std::string_view text) {
    at_ = text.data();
    end_ = text.data() + text.size();
}

std::span<const std::string_view> ReleaseSplitter::next_words() {
    std::size_t count = 0;
    const char* at = at_;
    while (at < end_ && count < words_.size()) {
        const char* const end = word_end(at);
        words_[count++] = {at, static_cast<std::size_t>(end - at)};
        at = end;
    }
    at_ = at;
    return {words_.data(), count};
}

// The text is well-formed, which is what this relies on.
ReleaseSplitter::Step ReleaseSplitter::step(const char* at) const {
    if (at == end_) return {at, 0};
    const auto byte = [at](int i) {
        return static_cast<std::uint32_t>(static_cast<unsigned char>(at[i]));
    };
    const std::uint32_t lead = byte(0);
    if (lead < 0x80) return {at + 1, ascii_class(*at)};
    if (lead < 0xE0) return {at + 2, classes_.of((lead & 0x1F) << 6 | (byte(1) & 0x3F))};
    if (lead < 0xF0) {
        return {at + 3,
                classes_.of((lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F))};
    }
    return {at + 4, classes_.of((lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 |
                                (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F))};
}

// The end of the run of characters of the piece that have one of `bits`.
const char* ReleaseSplitter::run_end(const char* at, std::uint8_t piece, std::uint8_t bits) const {
    for (;;) {
        // Most are ASCII, where only numbers are not of the piece 0, and those have no other bit.
        while (at < end_ && is_ascii(*at)) {
            if (piece != 0 || (ascii_class(*at) & bits) == 0) return at;
            ++at;
        }
        const Step s = step(at);
        if ((s.bits & kPieceBits) != piece || (s.bits & bits) == 0) return at;
        at = s.next;
    }
}

// \p{N}{1,3}
const char* ReleaseSplitter::number_end(const char* at) const {
    for (int i = 0; i < 3; ++i) {
        const Step s = step(at);
        if ((s.bits & Classes::kNumber) == 0) break;
        at = s.next;
    }
    return at;
}

// \s*[\r\n]+ | \s+(?!\S) | \s+ at white space: the run up to its last CR or LF; without one, all of
// it at the end of the piece, and elsewhere all but the last character if there are two.
const char* ReleaseSplitter::space_end(const char* at, std::uint8_t piece) const {
    const char* newline_end = nullptr;
    const char* last = at;
    const char* const begin = at;
    Step s = step(at);
    do {
        last = at;
        at = s.next;
        if ((s.bits & Classes::kNewline) != 0) newline_end = at;
        s = step(at);
    } while ((s.bits & kPieceBits) == piece && (s.bits & Classes::kSpace) != 0);
    if (newline_end != nullptr) return newline_end;
    const bool piece_ends = at == end_ || (s.bits & kPieceBits) != piece;
    return piece_ends || last == begin ? at : last;
}

// Where the third pattern's match at `at` ends, null if it has none. `first` is the step at `at`.
const char* ReleaseSplitter::match_end(const char* at, Step first, std::uint8_t piece) const {
    if ((first.bits & Classes::kAsciiPunct) != 0) {
        const char* const end = ascii_letters_end(first.next, end_);
        if (end != first.next) return end;
    }
    if ((first.bits & Classes::kWord) != 0) return run_end(first.next, piece, Classes::kWord);
    if ((first.bits & (Classes::kSymbol | Classes::kNewline)) == 0) {
        const char* const end = run_end(first.next, piece, Classes::kWord);
        if (end != first.next) return end;
    }
    const char* const symbols = *at == ' ' ? first.next : at;
    const char* const symbols_end = run_end(symbols, piece, Classes::kSymbol);
    if (symbols_end != symbols) return run_end(symbols_end, piece, Classes::kNewline);
    return (first.bits & Classes::kSpace) != 0 ? space_end(at, piece) : nullptr;
}

// A letter of ASCII, or what may stand before letters, and the letters behind it; null where there
// is no such word or more to look at.
const char* ReleaseSplitter::ascii_word_end(const char* at) const {
    if (!is_ascii(*at)) return nullptr;
    const std::uint8_t bits = ascii_class(*at);
    if ((bits & (Classes::kNumber | Classes::kNewline)) != 0) return nullptr;
    const char* const end = ascii_letters_end(at + 1, end_);
    if (end == at + 1 && (bits & Classes::kWord) == 0) return nullptr;
    // Behind punctuation the letters of ASCII alone are taken, elsewhere all letters and marks.
    if ((bits & Classes::kAsciiPunct) != 0 || end == end_ || is_ascii(*end)) return end;
    return run_end(end, 0, Classes::kWord);
}

const char* ReleaseSplitter::word_end(const char* at) const {
    if (const char* const end = ascii_word_end(at)) return end;
    Step s = step(at);
    if ((s.bits & Classes::kNumber) != 0) return number_end(at);
    const std::uint8_t piece = s.bits & kPieceBits;
    if (const char* const end = match_end(at, s, piece)) return end;
    // A gap: up to the next match or the end of the piece.
    do {
        at = s.next;
        s = step(at);
    } while (at != end_ && (s.bits & kPieceBits) == piece && match_end(at, s, piece) == nullptr);
    return at;
}

}  // namespace fathom
