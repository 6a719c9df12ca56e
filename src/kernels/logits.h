// The passes over a whole vocabulary that drawing a token needs (engine/sampler.h). A row of logits
// is seen as blocks of kLogitsBlock ids, so that what follows a pass can skip the blocks that do
// not matter. Pure; any thread. NaN counts as −inf everywhere.
//
// A token's mass is exp((logit − peak) · inverse_temperature), each step in fp32 (math.h), rounded
// to a multiple of 2^-35, ties to even. So sums of masses in double are exact, and equal in any
// order, as long as they stay below 2^18, which is more than the largest vocabulary; masses from
// 2^-12 on are fp32 values as they are.
#pragma once

#include <cstdint>
#include <span>

namespace fathom {

inline constexpr std::int64_t kLogitsBlock = 128;

constexpr std::int64_t logits_blocks(std::int64_t vocab) {
    return (vocab + kLogitsBlock - 1) / kLogitsBlock;
}

struct LogitsPeak {
    std::int64_t id = 0;  // of the greatest logit, the lowest among equals; 0 when all are −inf
    float value = 0;
    bool has_nan = false;
};

// `block_peaks` receives the greatest logit of each of the logits_blocks(logits.size()) blocks.
LogitsPeak logits_peak(std::span<const float> logits, std::span<float> block_peaks);

// Writes every token's mass and every block's sum; returns the sum of all. `peak` is finite and the
// greatest logit, inverse_temperature positive.
double logits_masses(std::span<const float> logits, float peak, float inverse_temperature,
                     std::span<float> masses, std::span<double> block_masses);

// The sum of the masses whose logit is at least `threshold`.
double logits_mass_from(std::span<const float> logits, std::span<const float> masses,
                        std::span<const float> block_peaks, float threshold);

}  // namespace fathom
