#include "engine/types.h"

#include <array>

#include "base/random.h"

namespace fathom {

namespace {

constexpr std::array<PrefillMode, 4> kModes = {PrefillMode::exact, PrefillMode::tail,
                                               PrefillMode::masked, PrefillMode::halo};

}  // namespace

std::uint64_t choice_seed(std::uint64_t seed, std::int64_t choice) {
    if (choice == 0) return seed;
    const auto bits = random_bits({.seed = seed,
                                   .purpose = RandomPurpose::choice_seed,
                                   .index = static_cast<std::uint64_t>(choice)});
    return (std::uint64_t{bits[1]} << 32 | bits[0]) >> 1;
}

const char* prefill_mode_name(PrefillMode mode) {
    switch (mode) {
        case PrefillMode::exact:
            return "exact";
        case PrefillMode::tail:
            return "tail";
        case PrefillMode::masked:
            return "masked";
        case PrefillMode::halo:
            return "halo";
    }
    return "unknown";
}

Result<PrefillMode> parse_prefill_mode(const std::string& name) {
    for (const PrefillMode mode : kModes)
        if (name == prefill_mode_name(mode)) return mode;
    return invalid_argument(
        "prefill mode \"{}\" is unknown; it must be exact, tail, masked or halo", name);
}

const char* finish_reason_name(FinishReason reason) {
    switch (reason) {
        case FinishReason::none:
            return "none";
        case FinishReason::stop_token:
            return "stop_token";
        case FinishReason::length:
            return "length";
        case FinishReason::cancelled:
            return "cancelled";
        case FinishReason::deadline:
            return "deadline";
        case FinishReason::error:
            return "error";
    }
    return "unknown";
}

}  // namespace fathom
