// How long a block of each traffic class lives (kvpool.md 6). Expiry is fixed when a block is
// written. Stores that delete whole segments round the time of writing up to the end of its bucket,
// so a block lives its TTL and at most one bucket more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "pool/block_store.h"

namespace fathom {

struct ClassLife {
    std::int64_t ttl_ms = 0;
    std::int64_t bucket_ms = 0;
};

inline constexpr std::int64_t kMinuteMs = 60'000;
inline constexpr std::int64_t kHourMs = 60 * kMinuteMs;
inline constexpr std::int64_t kDayMs = 24 * kHourMs;

inline constexpr std::array<ClassLife, kTrafficClasses> kClassLives = {{
    {.ttl_ms = 3 * kDayMs, .bucket_ms = kHourMs},      // agent
    {.ttl_ms = 7 * kDayMs, .bucket_ms = 6 * kHourMs},  // chatbot
    {.ttl_ms = 7 * kDayMs, .bucket_ms = 6 * kHourMs},  // system
    {.ttl_ms = kHourMs, .bucket_ms = 5 * kMinuteMs},   // ephemeral
}};

constexpr const ClassLife& class_life(TrafficClass traffic_class) {
    return kClassLives[static_cast<std::size_t>(traffic_class)];
}

// The first moment of the bucket that a block written at `unix_ms` (not negative) belongs to.
constexpr std::int64_t bucket_start_ms(const ClassLife& life, std::int64_t unix_ms) {
    return unix_ms / life.bucket_ms * life.bucket_ms;
}

// When what lies in a bucket ends.
constexpr std::int64_t bucket_expiry_ms(const ClassLife& life, std::int64_t bucket_start) {
    return bucket_start + life.bucket_ms + life.ttl_ms;
}

}  // namespace fathom
