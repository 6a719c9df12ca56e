#include "recipe/protocols/custom_tool_input.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "recipe/utf8_text.h"

namespace fathom {

namespace {

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

// The code unit of `\uXXXX` at the start of `text`, if it is one.
std::optional<std::uint32_t> code_unit(std::string_view text) {
    if (text.size() < 6 || !text.starts_with("\\u")) return {};
    std::uint32_t unit = 0;
    for (const char c : text.substr(2, 4)) {
        unit <<= 4;
        if (c >= '0' && c <= '9') {
            unit |= static_cast<std::uint32_t>(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            unit |= static_cast<std::uint32_t>(c - 'a' + 10);
        } else if (c >= 'A' && c <= 'F') {
            unit |= static_cast<std::uint32_t>(c - 'A' + 10);
        } else {
            return {};
        }
    }
    return unit;
}

// Whether more text could make `text`, which is short, the start of a `\uXXXX`.
bool may_become_unit(std::string_view text) {
    constexpr std::string_view kForm = "\\u";
    return text.size() < 6 && kForm.substr(0, text.size()) == text.substr(0, 2);
}

}  // namespace

std::string CustomToolInput::push(std::string_view arguments) {
    std::string out;
    if (state_ == State::closed) return out;
    if (state_ == State::verbatim) return std::string(arguments);
    held_ += arguments;
    if (state_ == State::opening) open(out);
    if (state_ == State::text) decode(out);
    return out;
}

// Matches the tokens before the text, with white space before each.
void CustomToolInput::open(std::string& out) {
    std::size_t at = 0;
    for (const std::string_view token : {"{", "\"input\"", ":", "\""}) {
        while (at < held_.size() && is_space(held_[at]))
            ++at;
        const std::string_view rest = std::string_view(held_).substr(at);
        if (!rest.starts_with(token)) {
            if (token.starts_with(rest)) return;  // so far it fits
            state_ = State::verbatim;
            out.swap(held_);
            return;
        }
        at += token.size();
    }
    state_ = State::text;
    held_.erase(0, at);
}

void CustomToolInput::decode(std::string& out) {
    const std::string input = std::move(held_);
    held_.clear();
    std::string_view rest = input;
    while (!rest.empty()) {
        const std::size_t plain = std::min(rest.find_first_of("\"\\"), rest.size());
        out += rest.substr(0, plain);
        rest.remove_prefix(plain);
        if (rest.empty()) return;
        if (rest[0] == '"') {
            state_ = State::closed;
            return;
        }
        const std::size_t length = decode_escape(rest, out);
        if (length == 0) {
            held_ = rest;
            return;
        }
        rest.remove_prefix(length);
    }
}

// Decodes the escape at the start of `text`. Gives its length, or 0 while it is incomplete.
std::size_t CustomToolInput::decode_escape(std::string_view text, std::string& out) {
    if (text.size() < 2) return 0;
    constexpr std::string_view kNames = "bfnrt\"\\/";
    constexpr std::string_view kValues = "\b\f\n\r\t\"\\/";
    if (text[1] != 'u') {
        const std::size_t index = kNames.find(text[1]);
        if (index == std::string_view::npos) {
            out += '\\';  // no escape of JSON: stays as it is
            return 1;
        }
        out += kValues[index];
        return 2;
    }
    const auto unit = code_unit(text);
    if (!unit) {
        if (may_become_unit(text)) return 0;
        out += '\\';
        return 1;
    }
    constexpr std::uint32_t kReplacement = 0xFFFD;
    const bool high = *unit >= 0xD800 && *unit < 0xDC00;
    const bool low = *unit >= 0xDC00 && *unit < 0xE000;
    if (!high) {
        append_utf8(out, low ? kReplacement : *unit);
        return 6;
    }
    const std::string_view after = text.substr(6);
    if (may_become_unit(after)) return 0;
    const auto second = code_unit(after);
    if (!second || *second < 0xDC00 || *second >= 0xE000) {
        append_utf8(out, kReplacement);
        return 6;
    }
    append_utf8(out, 0x10000 + ((*unit - 0xD800) << 10) + (*second - 0xDC00));
    return 12;
}

}  // namespace fathom
