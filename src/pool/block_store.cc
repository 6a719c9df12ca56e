#include "pool/block_store.h"

#include <xxhash.h>

#include <array>
#include <cstring>

#include <fmt/core.h>

namespace fathom {

namespace {

constexpr std::array<std::string_view, kTrafficClasses> kClassNames = {"agent", "chatbot", "system",
                                                                       "ephemeral"};

}  // namespace

std::string_view traffic_class_name(TrafficClass traffic_class) {
    return kClassNames[static_cast<std::size_t>(traffic_class)];
}

Result<TrafficClass> parse_traffic_class(std::string_view name) {
    for (std::size_t i = 0; i < kClassNames.size(); ++i) {
        if (kClassNames[i] == name) return static_cast<TrafficClass>(i);
    }
    return Status(
        StatusCode::invalid_argument,
        fmt::format("traffic class '{}' is none of agent, chatbot, system, ephemeral", name));
}

std::string_view get_status_name(GetStatus status) {
    constexpr std::array<std::string_view, 6> kNames = {"hit",     "miss",     "corrupt",
                                                        "timeout", "io_error", "cancelled"};
    return kNames[static_cast<std::size_t>(status)];
}

std::string_view put_outcome_name(PutOutcome outcome) {
    constexpr std::array<std::string_view, 10> kNames = {
        "stored", "exists", "renewed", "in_flight", "busy",
        "full",   "quota",  "timeout", "cancelled", "failed"};
    return kNames[static_cast<std::size_t>(outcome)];
}

std::array<std::uint8_t, 16> payload_digest(const std::uint8_t* payload, std::int64_t bytes) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(payload, static_cast<std::size_t>(bytes)));
    std::array<std::uint8_t, 16> digest{};
    std::memcpy(digest.data(), canonical.digest, digest.size());
    return digest;
}

}  // namespace fathom
