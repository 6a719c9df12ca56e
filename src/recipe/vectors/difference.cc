#include "recipe/vectors/difference.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/utf8.h"

namespace fathom {
namespace {

constexpr std::size_t kShownBytesMax = 2000;

// Where the order of members says something.
bool is_ordered(std::string_view key) {
    return key == "parameters" || key == "response_schema";
}

bool is_float(std::string_view path) {
    return path.ends_with(".temperature") || path.ends_with(".top_p");
}

std::string shown(std::string_view text) {
    if (text.size() <= kShownBytesMax) return std::string(text);
    return std::string(text.substr(0, utf8_valid_bytes(text.substr(0, kShownBytesMax)))) + " …";
}

// At most 160 bytes from `at - 60` on, in whole characters.
std::string window(std::string_view text, std::size_t at) {
    std::size_t begin = std::min(at < 60 ? 0 : at - 60, text.size());
    const auto continues = [&](std::size_t i) {
        return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
    };
    while (continues(begin))
        ++begin;
    std::size_t end = std::min(begin + 160, text.size());
    while (continues(end))
        ++end;
    return fmt::format("{}{}{}", begin > 0 ? "… " : "", text.substr(begin, end - begin),
                       end < text.size() ? " …" : "");
}

std::string members_difference(const std::string& path, const Json& golden, const Json& ours) {
    for (const auto& [key, value] : golden.members()) {
        if (key == "prompt" || key == "special_ranges") continue;
        const Json* member = ours.find(key);
        if (member == nullptr)
            return fmt::format("{}.{}: missing, expected {}", path, key, shown(value.dump()));
        std::string difference = json_difference(path + "." + key, value, *member);
        if (!difference.empty()) return difference;
    }
    for (const auto& [key, value] : ours.members())
        if (golden.find(key) == nullptr)
            return fmt::format("{}.{}: not expected, got {}", path, key, shown(value.dump()));
    return "";
}

}  // namespace

std::string json_difference(const std::string& path, const Json& golden, const Json& ours) {
    const auto differ = [&] {
        return fmt::format("{}: expected {}\n  got {}", path.empty() ? "value" : path,
                           shown(golden.dump()), shown(ours.dump()));
    };
    if (is_float(path) && golden.is_number() && ours.is_number()) {
        const bool same =
            static_cast<float>(golden.as_double()) == static_cast<float>(ours.as_double());
        return same ? "" : differ();
    }
    const bool ordered = is_ordered(std::string_view(path).substr(path.rfind('.') + 1));
    if (golden.is_object() && ours.is_object() && !ordered)
        return members_difference(path, golden, ours);
    if (golden.is_array() && ours.is_array() && golden.items().size() == ours.items().size()) {
        for (std::size_t i = 0; i < golden.items().size(); ++i) {
            std::string difference =
                json_difference(fmt::format("{}[{}]", path, i), golden.items()[i], ours.items()[i]);
            if (!difference.empty()) return difference;
        }
        return "";
    }
    return golden == ours ? "" : differ();
}

std::string text_difference(std::string_view what, std::string_view golden, std::string_view ours) {
    if (golden == ours) return "";
    const auto at = static_cast<std::size_t>(
        std::mismatch(golden.begin(), golden.end(), ours.begin(), ours.end()).first -
        golden.begin());
    return fmt::format("{}, byte {}: expected {}\n  got {}", what, at, window(golden, at),
                       window(ours, at));
}

std::string lines_difference(std::string_view what, const std::vector<std::string>& golden,
                             const std::vector<std::string>& ours) {
    for (std::size_t i = 0; i < std::max(golden.size(), ours.size()); ++i) {
        const std::string_view expected =
            i < golden.size() ? std::string_view(golden[i]) : "nothing";
        const std::string_view got = i < ours.size() ? std::string_view(ours[i]) : "nothing";
        if (expected == got) continue;
        return fmt::format("{} {}: expected {}\n  got {}\n  behind {}", what, i, shown(expected),
                           shown(got), i > 0 ? shown(ours[i - 1]) : "nothing");
    }
    return "";
}

}  // namespace fathom
