#include "recipe/utf8_text.h"

#include <algorithm>

#include "base/check.h"
#include "base/utf8.h"

namespace fathom {

Utf8Step utf8_step(std::string_view text, std::size_t at) {
    FATHOM_DCHECK(at < text.size());
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
    const std::uint8_t lead = byte(at);
    if (lead < 0x80) return {.code_point = lead};
    const int sequence = utf8_sequence(text.substr(at));
    if (sequence < 0) {
        const auto covered = static_cast<std::uint8_t>(-sequence);
        const bool may_grow = at + covered == text.size() && lead >= 0xC2 && lead <= 0xF4;
        return {.kind = may_grow ? Utf8Step::Kind::incomplete : Utf8Step::Kind::ill_formed,
                .byte_count = covered};
    }
    const auto count = static_cast<std::uint8_t>(sequence);
    std::uint32_t code_point = lead & (0x7Fu >> count);
    for (std::size_t i = 1; i < count; ++i)
        code_point = (code_point << 6) | (byte(at + i) & 0x3Fu);
    return {.byte_count = count, .code_point = code_point};
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

bool utf8_ends_well(std::string_view text) {
    for (std::size_t length = 1; length <= std::min<std::size_t>(4, text.size()); ++length) {
        const std::size_t at = text.size() - length;
        if ((static_cast<std::uint8_t>(text[at]) & 0xC0) == 0x80) continue;
        // A byte that continues nothing begins a step whatever stands before it.
        const Utf8Step step = utf8_step(text, at);
        return step.byte_count == length && step.code_point != 0xFFFD;
    }
    return false;
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
