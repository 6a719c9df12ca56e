#include <cstddef>
#include <optional>

#include "recipe/images/image_resolver.h"

namespace fathom {

namespace {

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower_case(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        c = lower(c);
    return result;
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// What is no escape stays as it is.
std::string percent_decoded(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
        const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
        if (low < 0) {
            result.push_back(text[i]);
            continue;
        }
        result.push_back(static_cast<char>(high * 16 + low));
        i += 2;
    }
    return result;
}

int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Of text for which is_base64 holds.
std::string base64_decoded(std::string_view text) {
    std::string result;
    result.reserve(text.size() / 4 * 3 + 3);
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        const int digit = base64_digit(c);
        if (digit < 0) continue;  // white space, padding
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        result.push_back(static_cast<char>(bits >> count & 0xff));
    }
    return result;
}

}  // namespace

ImageResult<std::string> data_url_bytes(std::string_view url) {
    const std::size_t comma = url.find(',');
    constexpr std::string_view kScheme = "data:", kBase64 = ";base64";
    if (comma == std::string_view::npos || lower_case(url.substr(0, kScheme.size())) != kScheme)
        return image_error(ImageFault::invalid_data_url, "no data URL");
    std::string head = lower_case(url.substr(kScheme.size(), comma - kScheme.size()));
    const bool is_encoded = head.ends_with(kBase64);
    if (!head.starts_with("image/"))
        return image_error(ImageFault::unsupported_type, "a data URL of another type");
    std::string data = percent_decoded(url.substr(comma + 1));
    if (!is_encoded) return data;
    if (!is_base64(data)) return image_error(ImageFault::invalid_data_url, "no base64");
    return base64_decoded(data);
}

}  // namespace fathom
