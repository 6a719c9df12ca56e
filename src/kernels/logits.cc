#include "kernels/logits.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/functions.h"

namespace fathom {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kLanes = 16;
constexpr double kMassRounder = 0x1.8p17;  // a double beside it is a multiple of 2^-35

struct BlockPeak {
    float value = -kInfinity;
    bool has_nan = false;
};

BlockPeak block_peak(const float* x, std::int64_t count) {
    BlockPeak peak;
    if (count == kLogitsBlock) {
        float best[kLanes], unordered[kLanes];
        for (int lane = 0; lane < kLanes; ++lane) {
            best[lane] = -kInfinity;
            unordered[lane] = 0;
        }
        for (std::int64_t i = 0; i < kLogitsBlock; i += kLanes) {
            for (int lane = 0; lane < kLanes; ++lane) {
                const float value = x[i + lane];
                best[lane] = value > best[lane] ? value : best[lane];
                unordered[lane] = value == value ? unordered[lane] : 1.0f;
            }
        }
        for (int lane = 0; lane < kLanes; ++lane) {
            peak.value = best[lane] > peak.value ? best[lane] : peak.value;
            peak.has_nan |= unordered[lane] != 0;
        }
        return peak;
    }
    for (std::int64_t i = 0; i < count; ++i) {
        peak.value = x[i] > peak.value ? x[i] : peak.value;
        peak.has_nan |= !(x[i] == x[i]);
    }
    return peak;
}

double mass_of(float x, float peak, float inverse_temperature) {
    const float z = (x - peak) * inverse_temperature;
    const float weight = z == z ? functions::exp(z) : 0.0f;
    return (static_cast<double>(weight) + kMassRounder) - kMassRounder;
}

double block_masses_of(const float* x, std::int64_t count, float peak, float inverse_temperature,
                       float* masses) {
    double sums[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) {
            const double mass = mass_of(x[i + lane], peak, inverse_temperature);
            masses[i + lane] = static_cast<float>(mass);
            sums[lane] += mass;
        }
    }
    double sum = 0;
    for (; i < count; ++i) {
        const double mass = mass_of(x[i], peak, inverse_temperature);
        masses[i] = static_cast<float>(mass);
        sum += mass;
    }
    for (const double lane : sums)
        sum += lane;
    return sum;
}

double block_mass_from(const float* x, const float* masses, std::int64_t count, float threshold) {
    double sums[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane)
            sums[lane] += static_cast<double>(x[i + lane] >= threshold ? masses[i + lane] : 0.0f);
    }
    double sum = 0;
    for (; i < count; ++i)
        sum += static_cast<double>(x[i] >= threshold ? masses[i] : 0.0f);
    for (const double lane : sums)
        sum += lane;
    return sum;
}

std::int64_t size_of(std::span<const float> logits) {
    return static_cast<std::int64_t>(logits.size());
}

}  // namespace

LogitsPeak logits_peak(std::span<const float> logits, std::span<float> block_peaks) {
    const std::int64_t size = size_of(logits);
    FATHOM_CHECK(static_cast<std::int64_t>(block_peaks.size()) == logits_blocks(size));
    LogitsPeak peak{.id = 0, .value = -kInfinity, .has_nan = false};
    for (std::int64_t start = 0; start < size; start += kLogitsBlock) {
        const BlockPeak block =
            block_peak(logits.data() + start, std::min(kLogitsBlock, size - start));
        block_peaks[static_cast<std::size_t>(start / kLogitsBlock)] = block.value;
        peak.has_nan |= block.has_nan;
        if (block.value > peak.value) {
            peak.value = block.value;
            peak.id = start;
        }
    }
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
    for (std::int64_t start = 0; start < size; start += kLogitsBlock) {
        const double sum =
            block_masses_of(logits.data() + start, std::min(kLogitsBlock, size - start), peak,
                            inverse_temperature, masses.data() + start);
        block_masses[static_cast<std::size_t>(start / kLogitsBlock)] = sum;
        total += sum;
    }
    return total;
}

double logits_mass_from(std::span<const float> logits, std::span<const float> masses,
                        std::span<const float> block_peaks, float threshold) {
    const std::int64_t size = size_of(logits);
    double total = 0;
    for (std::int64_t start = 0; start < size; start += kLogitsBlock) {
        if (block_peaks[static_cast<std::size_t>(start / kLogitsBlock)] < threshold) continue;
        total += block_mass_from(logits.data() + start, masses.data() + start,
                                 std::min(kLogitsBlock, size - start), threshold);
    }
    return total;
}

}  // namespace fathom
