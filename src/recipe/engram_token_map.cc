#include "recipe/engram_token_map.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::uint32_t kSpaceMark = 0xE000;
constexpr std::string_view kReplacementCharacter = "\uFFFD";

std::string utf8proc_form(std::string_view text, int options) {
    utf8proc_uint8_t* raw = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                     static_cast<utf8proc_ssize_t>(text.size()), &raw,
                     static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(raw, &std::free);
    FATHOM_CHECK(size >= 0, "the text is not well-formed UTF-8");
    return {reinterpret_cast<const char*>(owned.get()), static_cast<std::size_t>(size)};
}

bool is_mark(std::uint32_t code_point) {
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
            return true;
        default:
            return false;
    }
}

// The Unicode property White_Space.
bool is_white_space(std::uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

bool is_collapsed(std::uint32_t c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

}  // namespace

std::string engram_normalise(std::string_view text) {
    const std::string decomposed =
        utf8proc_form(utf8proc_form(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT), UTF8PROC_DECOMPOSE);
    std::u32string folded;
    for (std::size_t at = 0; at < decomposed.size();) {
        const Utf8Step step = utf8_step(decomposed, at);
        at += step.byte_count;
        if (is_mark(step.code_point)) continue;
        const char32_t lower =
            static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(step.code_point)));
        if (!is_collapsed(lower)) {
            folded.push_back(lower);
        } else if (folded.empty() || folded.back() != U' ') {
            folded.push_back(U' ');
        }
    }
    if (folded == U" ") return " ";

    std::size_t begin = 0;
    std::size_t end = folded.size();
    while (begin < end && is_white_space(folded[begin]))
        ++begin;
    while (begin < end && is_white_space(folded[end - 1]))
        --end;
    std::string out;
    for (; begin < end; ++begin) {
        append_utf8(out, folded[begin] == kSpaceMark ? U' ' : folded[begin]);
    }
    return out;
}

EngramTokenMap make_engram_token_map(const Tokenizer& tokenizer, std::int64_t vocab_size) {
    EngramTokenMap result;
    result.map.reserve(static_cast<std::size_t>(vocab_size));
    std::unordered_map<std::string, std::int32_t> numbers;
    for (std::int64_t i = 0; i < vocab_size; ++i) {
        const std::array<TokenId, 1> id = {static_cast<TokenId>(i)};
        std::string key = tokenizer.decode(id);
        if (key.find(kReplacementCharacter) != std::string::npos) {
            key = tokenizer.spelling(id[0]);
        } else if (std::string normalised = engram_normalise(key); !normalised.empty()) {
            key = std::move(normalised);
        }
        const auto next = static_cast<std::int32_t>(numbers.size());
        result.map.push_back(numbers.try_emplace(std::move(key), next).first->second);
    }
    result.distinct = static_cast<std::int64_t>(numbers.size());
    return result;
}

}  // namespace fathom
