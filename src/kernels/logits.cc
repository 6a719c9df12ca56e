#include "kernels/logits.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "kernels/functions.h"

namespace fathom {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kHalf = kLogitsBlock / 2;

// A block is folded by halves: loops of a fixed length over independent elements vectorise, and for
// peaks and exact sums every order is the same.
template <typename T, typename Combine>
T fold(T* x, Combine combine) {
    for (std::int64_t half = kHalf / 2; half >= 1; half /= 2)
        for (std::int64_t i = 0; i < half; ++i)
            x[i] = combine(x[i], x[i + half]);
    return x[0];
}

float greater(float a, float b) {
    return a > b ? a : b;
}

struct BlockPeak {
    float value = -kInfinity;
    bool has_nan = false;
};

BlockPeak block_peak(const float* x) {
    float best[kHalf], ordered[kHalf];
    for (std::int64_t i = 0; i < kHalf; ++i) {
        const float a = x[i] == x[i] ? x[i] : -kInfinity;
        const float b = x[i + kHalf] == x[i + kHalf] ? x[i + kHalf] : -kInfinity;
        best[i] = greater(a, b);
        ordered[i] = x[i] * 0.0f + x[i + kHalf] * 0.0f;  // NaN for infinities too
    }
    BlockPeak peak{.value = fold(best, greater), .has_nan = false};
    const float all = fold(ordered, [](float a, float b) { return a + b; });
    if (all == all) return peak;
    for (std::int64_t i = 0; i < kLogitsBlock; ++i)
        peak.has_nan |= !(x[i] == x[i]);
    return peak;
}

double sum_of(const float* masses) {
    double sums[kHalf];
    for (std::int64_t i = 0; i < kHalf; ++i)
        sums[i] = static_cast<double>(masses[i]) + static_cast<double>(masses[i + kHalf]);
    return fold(sums, [](double a, double b) { return a + b; });
}

void find_masses(const float* x, std::int64_t count, float peak, float inverse_temperature,
                 float* masses) {
    constexpr float kCoarse = 0x1p-12f;  // masses from here on, and sums with it, have the grid
    for (std::int64_t i = 0; i < count; ++i) {
        const float z = (x[i] - peak) * inverse_temperature;
        const float weight = functions::exp(z);
        const float rounded = (weight + kCoarse) - kCoarse;
        const float mass = weight < kCoarse ? rounded : weight;
        masses[i] = z == z ? mass : 0.0f;
    }
}

// Calls visit(first, count, block) for every block, the last of which may be short.
template <typename Visit>
void for_blocks(std::int64_t size, Visit visit) {
    for (std::int64_t start = 0, block = 0; start < size; start += kLogitsBlock, ++block)
        visit(start, std::min(kLogitsBlock, size - start), static_cast<std::size_t>(block));
}

std::int64_t size_of(std::span<const float> logits) {
    return static_cast<std::int64_t>(logits.size());
}

}  // namespace

LogitsPeak logits_peak(std::span<const float> logits, std::span<float> block_peaks) {
    const std::int64_t size = size_of(logits);
    FATHOM_CHECK(static_cast<std::int64_t>(block_peaks.size()) == logits_blocks(size));
    LogitsPeak peak{.id = 0, .value = -kInfinity, .has_nan = false};
    for_blocks(size, [&](std::int64_t start, std::int64_t count, std::size_t block) {
        const float* x = logits.data() + start;
        float padded[kLogitsBlock];
        if (count < kLogitsBlock) {
            std::fill(std::copy(x, x + count, padded), padded + kLogitsBlock, -kInfinity);
            x = padded;
        }
        const BlockPeak found = block_peak(x);
        block_peaks[block] = found.value;
        peak.has_nan |= found.has_nan;
        if (found.value > peak.value) {
            peak.value = found.value;
            peak.id = start;
        }
    });
    while (peak.value > -kInfinity && logits[static_cast<std::size_t>(peak.id)] != peak.value)
        ++peak.id;
    return peak;
}

double logits_masses(std::span<const float> logits, float peak, float inverse_temperature,
                     std::span<float> masses, std::span<double> block_masses) {
    const std::int64_t size = size_of(logits);
    FATHOM_CHECK(masses.size() == logits.size() &&
                 static_cast<std::int64_t>(block_masses.size()) == logits_blocks(size));
    double total = 0;
    for_blocks(size, [&](std::int64_t start, std::int64_t count, std::size_t block) {
        float* found = masses.data() + start;
        find_masses(logits.data() + start, count, peak, inverse_temperature, found);
        block_masses[block] =
            count == kLogitsBlock ? sum_of(found) : std::accumulate(found, found + count, 0.0);
        total += block_masses[block];
    });
    return total;
}

double logits_mass_from(std::span<const float> logits, std::span<const float> masses,
                        std::span<const float> block_peaks, float threshold) {
    double total = 0;
    for_blocks(size_of(logits), [&](std::int64_t start, std::int64_t count, std::size_t block) {
        if (block_peaks[block] < threshold) return;
        float counted[kLogitsBlock] = {};
        for (std::int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<std::size_t>(start + i);
            counted[i] = logits[at] >= threshold ? masses[at] : 0.0f;
        }
        total += sum_of(counted);
    });
    return total;
}

}  // namespace fathom
