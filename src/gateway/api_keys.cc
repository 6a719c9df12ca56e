#include "gateway/api_keys.h"

#include <algorithm>

namespace fathom {

namespace {

constexpr std::size_t kKeyBytesMax = 4096;

// Touches every byte of both whatever they hold: no early end, no data-dependent branch.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
    unsigned difference = a.size() == b.size() ? 0 : 1;
    const std::size_t size = std::min(a.size(), b.size());
    for (std::size_t i = 0; i < size; ++i)
        difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
    return difference == 0;
}

}  // namespace

Result<ApiKeys> ApiKeys::create(std::vector<std::string> keys) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const bool visible = std::all_of(keys[i].begin(), keys[i].end(),
                                         [](char c) { return c > ' ' && c < '\x7f'; });
        if (keys[i].empty() || keys[i].size() > kKeyBytesMax || !visible)
            return invalid_argument(
                "API key {} of {} is not usable: expected 1 to {} visible ASCII characters", i + 1,
                keys.size(), kKeyBytesMax);
    }
    return ApiKeys(std::move(keys));
}

std::string_view request_key(std::string_view authorization, std::string_view x_api_key) {
    if (authorization.empty()) return x_api_key;
    constexpr std::string_view kScheme = "bearer ";
    if (authorization.size() < kScheme.size()) return {};
    for (std::size_t i = 0; i < kScheme.size(); ++i) {
        const char c = authorization[i];
        if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != kScheme[i]) return {};
    }
    authorization.remove_prefix(kScheme.size());
    while (!authorization.empty() && authorization.front() == ' ')
        authorization.remove_prefix(1);
    return authorization;
}

std::optional<std::size_t> ApiKeys::place(std::string_view given) const {
    std::optional<std::size_t> place;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
        if (equal_in_constant_time(keys_[i], given)) place = i;
    }
    return place;
}

}  // namespace fathom
