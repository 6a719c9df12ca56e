#include "recipe/utf8.h"

#include <algorithm>

#include "base/check.h"

namespace fathom {
namespace {

struct Lead {
    int byte_count = 0;  // 0: never starts a character
    std::uint8_t second_min = 0x80;
    std::uint8_t second_max = 0xBF;
};

// Unicode 15.0, table 3-7: the second byte is what excludes overlong forms, surrogates and values
// above U+10FFFF.
Lead lead_of(std::uint8_t byte) {
    if (byte < 0x80) return {.byte_count = 1};
    if (byte < 0xC2) return {};
    if (byte < 0xE0) return {.byte_count = 2};
    if (byte == 0xE0) return {.byte_count = 3, .second_min = 0xA0};
    if (byte == 0xED) return {.byte_count = 3, .second_max = 0x9F};
    if (byte < 0xF0) return {.byte_count = 3};
    if (byte == 0xF0) return {.byte_count = 4, .second_min = 0x90};
    if (byte < 0xF4) return {.byte_count = 4};
    if (byte == 0xF4) return {.byte_count = 4, .second_max = 0x8F};
    return {};
}

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t at) {
    FATHOM_DCHECK(at < text.size());
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
    const Lead lead = lead_of(byte(at));
    if (lead.byte_count == 1) return {.code_point = byte(at)};
    if (lead.byte_count == 0) return {.kind = Utf8Step::Kind::ill_formed};

    std::uint32_t code_point = byte(at) & (0x7Fu >> lead.byte_count);
    for (int i = 1; i < lead.byte_count; ++i) {
        const auto covered = static_cast<std::uint8_t>(i);
        if (at + covered >= text.size()) {
            return {.kind = Utf8Step::Kind::incomplete, .byte_count = covered};
        }
        const std::uint8_t next = byte(at + covered);
        const std::uint8_t low = i == 1 ? lead.second_min : 0x80;
        const std::uint8_t high = i == 1 ? lead.second_max : 0xBF;
        if (next < low || next > high) {
            return {.kind = Utf8Step::Kind::ill_formed, .byte_count = covered};
        }
        code_point = (code_point << 6) | (next & 0x3Fu);
    }
    return {.byte_count = static_cast<std::uint8_t>(lead.byte_count), .code_point = code_point};
}

std::size_t utf8_incomplete_tail(std::string_view text) {
    for (std::size_t length = 1; length <= std::min<std::size_t>(3, text.size()); ++length) {
        const std::size_t at = text.size() - length;
        const auto byte = static_cast<std::uint8_t>(text[at]);
        if ((byte & 0xC0) == 0x80) continue;  // a continuation byte: the lead lies further left
        const Utf8Step step = utf8_step(text, at);
        return step.kind == Utf8Step::Kind::incomplete && step.byte_count == length ? length : 0;
    }
    return 0;
}

std::string utf8_lossy(std::string_view bytes) {
    std::string out;
    out.reserve(bytes.size());
    std::size_t copied = 0;
    for (std::size_t at = 0; at < bytes.size();) {
        const Utf8Step step = utf8_step(bytes, at);
        if (step.kind != Utf8Step::Kind::character) {
            out.append(bytes, copied, at - copied);
            append_utf8(out, 0xFFFD);
            copied = at + step.byte_count;
        }
        at += step.byte_count;
    }
    out.append(bytes, copied, bytes.size() - copied);
    return out;
}

void append_utf8(std::string& out, std::uint32_t code_point) {
    const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code_point < 0x80) {
        put(code_point);
    } else if (code_point < 0x800) {
        put(0xC0 | (code_point >> 6));
        put(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        put(0xE0 | (code_point >> 12));
        put(0x80 | ((code_point >> 6) & 0x3F));
        put(0x80 | (code_point & 0x3F));
    } else {
        put(0xF0 | (code_point >> 18));
        put(0x80 | ((code_point >> 12) & 0x3F));
        put(0x80 | ((code_point >> 6) & 0x3F));
        put(0x80 | (code_point & 0x3F));
    }
}

}  // namespace fathom
