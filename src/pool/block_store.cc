#include "pool/block_store.h"

#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // the same digest, with what the processor has
#endif

#include <array>
#include <cstring>

namespace fathom {

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
