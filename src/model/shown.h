// Text from files as error messages show it: cut to a readable length at a whole UTF-8 character.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace fathom {

inline std::string_view cut_text(std::string_view text, std::size_t bytes_max) {
    if (text.size() <= bytes_max) return text;
    while (bytes_max > 0 && (static_cast<unsigned char>(text[bytes_max]) & 0xc0) == 0x80)
        --bytes_max;
    return text.substr(0, bytes_max);
}

// A name, quoted and with control characters escaped.
inline std::string shown_name(std::string_view name) {
    constexpr std::size_t kBytesMax = 120;
    const std::string_view cut = cut_text(name, kBytesMax);
    std::string out;
    append_json_string(out, cut);
    if (cut.size() < name.size()) out += "…";
    return out;
}

// A value, as JSON.
inline std::string shown_value(const Json& value) {
    constexpr std::size_t kBytesMax = 80;
    const std::string text = value.dump();
    const std::string_view cut = cut_text(text, kBytesMax);
    return std::string(cut) + (cut.size() < text.size() ? "…" : "");
}

}  // namespace fathom
