#include "recipe/character_classes.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "recipe/regex_splitter.h"
#include "recipe/utf8_text.h"

namespace fathom {
namespace {

constexpr std::uint32_t kCodePointsEnd = 0x110000;

constexpr bool is_surrogate(std::uint32_t c) {
    return c >= 0xD800 && c < 0xE000;
}

// Sets `bit` for every code point that the class `[members]` of PCRE2 holds.
void add_class(std::string_view members, std::uint8_t bit, const std::string& all_characters,
               std::vector<std::uint8_t>& classes) {
    // Runs inside and outside alternate, so that no place is tried in vain.
    const std::string pattern = fmt::format("[{0}]+|([^{0}]+)", members);
    int error_code = 0;
    std::size_t error_at = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_UTF | PCRE2_UCP, &error_code, &error_at, nullptr);
    FATHOM_CHECK(code != nullptr, pattern);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    pcre2_match_data* data = pcre2_match_data_create(2, nullptr);
    FATHOM_CHECK(data != nullptr, "out of memory");
    std::uint32_t code_point = 0;
    for (std::size_t at = 0; at < all_characters.size();) {
        const int groups =
            pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(all_characters.data()),
                        all_characters.size(), at, PCRE2_NO_UTF_CHECK, data, nullptr);
        const std::size_t* range = pcre2_get_ovector_pointer(data);
        FATHOM_CHECK(groups > 0 && range[0] == at && range[1] > at);
        for (; at < range[1]; at += utf8_step(all_characters, at).byte_count, ++code_point) {
            if (code_point == 0xD800) code_point = 0xE000;
            if (groups == 1) classes[code_point] |= bit;
        }
    }
    pcre2_match_data_free(data);
    pcre2_code_free(code);
}

std::vector<std::uint8_t> classes_of_all() {
    std::string all_characters;
    all_characters.reserve(std::size_t{4} * kCodePointsEnd);
    for (std::uint32_t c = 0; c < kCodePointsEnd; ++c)
        if (!is_surrogate(c)) append_utf8(all_characters, c);
    std::vector<std::uint8_t> classes(kCodePointsEnd);
    using Classes = CharacterClasses;
    add_class("\\p{L}\\p{M}", Classes::kWord, all_characters, classes);
    add_class("\\p{P}\\p{S}", Classes::kSymbol, all_characters, classes);
    add_class("\\p{N}", Classes::kNumber, all_characters, classes);
    add_class(kWhiteSpaceClass, Classes::kSpace, all_characters, classes);
    for (std::uint32_t c = 0x3040; c <= 0x9FA5; ++c)
        if (c <= 0x30FF || c >= 0x4E00) classes[c] |= Classes::kCjk;
    for (const char c : {'\r', '\n'})
        classes[static_cast<unsigned char>(c)] |= Classes::kNewline;
    for (std::uint32_t c = 0; c < 0x80; ++c)
        if ((classes[c] & Classes::kSymbol) != 0) classes[c] |= Classes::kAsciiPunct;
    // Numbers are cut out first.
    for (std::uint8_t& bits : classes)
        if ((bits & Classes::kNumber) != 0) bits = Classes::kNumber;
    return classes;
}

}  // namespace

const CharacterClasses& CharacterClasses::instance() {
    static const CharacterClasses kInstance;
    return kInstance;
}

CharacterClasses::CharacterClasses() {
    const std::vector<std::uint8_t> classes = classes_of_all();
    for (std::size_t b = 0; b < block_of_.size(); ++b) {
        Block block;
        std::copy_n(classes.begin() + static_cast<std::ptrdiff_t>(b * block.size()), block.size(),
                    block.begin());
        const auto same = std::find(blocks_.begin(), blocks_.end(), block);
        block_of_[b] = static_cast<std::uint16_t>(same - blocks_.begin());
        if (same == blocks_.end()) blocks_.push_back(block);
    }
}

}  // namespace fathom
