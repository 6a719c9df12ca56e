// The passes of logits.h against plain loops, bit for bit.
#include "kernels/logits.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "kernels/math.h"

namespace fathom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(std::int64_t size, std::uint64_t seed) {
    RandomStream random(seed);
    std::vector<float> logits;
    for (std::int64_t i = 0; i < size; ++i) {
        // Many ties, some infinities and numbers that are none.
        const std::uint64_t kind = random.next_below(40);
        const auto plain = static_cast<float>(random.next_below(200)) / 8 - 20;
        logits.push_back(kind == 0 ? -kInfinity : kind == 1 ? kNan : plain);
    }
    return logits;
}

struct Passes {
    LogitsPeak peak;
    std::vector<float> block_peaks, masses;
    std::vector<double> block_masses;
    double total = 0;
};

Passes run(const std::vector<float>& logits, float inverse_temperature) {
    Passes passes;
    const auto blocks =
        static_cast<std::size_t>(logits_blocks(static_cast<std::int64_t>(logits.size())));
    passes.block_peaks.resize(blocks);
    passes.block_masses.resize(blocks);
    passes.masses.resize(logits.size());
    passes.peak = logits_peak(logits, passes.block_peaks);
    if (passes.peak.value > -kInfinity)
        passes.total = logits_masses(logits, passes.peak.value, inverse_temperature, passes.masses,
                                     passes.block_masses);
    return passes;
}

TEST(LogitsPasses, EqualPlainLoops) {
    for (const std::int64_t size : {1, 2, 15, 16, 127, 128, 129, 300, 1000, 4096}) {
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
            const std::vector<float> logits = random_logits(size, seed);
            const float inverse = seed % 2 == 0 ? 1.0f : 1.7f;
            const Passes passes = run(logits, inverse);
            SCOPED_TRACE(::testing::Message() << size << " logits, seed " << seed);

            LogitsPeak peak{.id = 0, .value = -kInfinity, .has_nan = false};
            for (std::size_t i = 0; i < logits.size(); ++i) {
                if (std::isnan(logits[i])) peak.has_nan = true;
                if (!(logits[i] > peak.value)) continue;
                peak.value = logits[i];
                peak.id = static_cast<std::int64_t>(i);
            }
            EXPECT_EQ(passes.peak.id, peak.id);
            EXPECT_EQ(passes.peak.value, peak.value);
            EXPECT_EQ(passes.peak.has_nan, peak.has_nan);
            if (!(peak.value > -kInfinity)) continue;

            const float threshold = peak.value - 3;
            double total = 0, above = 0;
            for (std::size_t i = logits.size(); i-- > 0;) {  // any order: the sums are exact
                const float z = (logits[i] - peak.value) * inverse;
                const double mass =
                    std::isnan(z)
                        ? 0
                        : std::nearbyint(std::ldexp(static_cast<double>(math_exp(z)), 35)) *
                              0x1p-35;
                EXPECT_EQ(static_cast<double>(passes.masses[i]), mass);
                total += mass;
                if (logits[i] >= threshold) above += mass;
            }
            EXPECT_EQ(passes.total, total);
            EXPECT_EQ(std::accumulate(passes.block_masses.begin(), passes.block_masses.end(), 0.0),
                      total);
            EXPECT_EQ(logits_mass_from(logits, passes.masses, passes.block_peaks, threshold),
                      above);
        }
    }
}

TEST(LogitsPasses, SumsOfTheLargestVocabularyAreExact) {
    std::vector<float> logits(200'000, 1.0f);
    EXPECT_EQ(run(logits, 1.0f).total, 200'000.0);
    for (std::size_t i = 0; i < logits.size(); i += 2)
        logits[i] = -22.5f;  // masses of a few units of 2^-35
    const Passes passes = run(logits, 1.0f);
    const double small = static_cast<double>(passes.masses[0]);
    EXPECT_GT(small, 0);
    EXPECT_EQ(passes.total, 100'000.0 + 100'000.0 * small);
}

}  // namespace
}  // namespace fathom
