#include "sim/sim_random.h"

#include <cmath>

#include "base/check.h"
#include "base/random.h"

namespace fathom {
namespace {

// A permutation of 64-bit words whose outputs for consecutive inputs look independent (the
// finaliser of SplitMix64, Steele et al., OOPSLA 2014). Philox would be as good and takes five
// times as long, which a simulator with a draw or two per event notices.
std::uint64_t scramble(std::uint64_t word) {
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    return word ^ word >> 31;
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

}  // namespace

SimRandom::SimRandom(std::uint64_t seed, std::uint64_t entity, SimPurpose purpose) {
    const auto bits = random_bits({.seed = seed,
                                   .purpose = RandomPurpose::test_data,  // never a token's
                                   .index = entity,
                                   .block = static_cast<std::uint32_t>(purpose)});
    key_ = static_cast<std::uint64_t>(bits[1]) << 32 | bits[0];
}

std::uint64_t SimRandom::next_u64() {
    return scramble(key_ + kGolden * ++counter_);
}

double SimRandom::uniform() {
    return static_cast<double>(next_u64() >> 11) * 0x1p-53;
}

std::int64_t SimRandom::below(std::int64_t bound) {
    FATHOM_CHECK(bound >= 1);
    // Uneven by less than bound / 2^53, far below what a simulation resolves.
    return static_cast<std::int64_t>(uniform() * static_cast<double>(bound));
}

// Marsaglia's polar method; the second value of a pair is dropped so that the state is a counter.
double SimRandom::normal() {
    while (true) {
        const double u = 2.0 * uniform() - 1.0, v = 2.0 * uniform() - 1.0;
        const double s = u * u + v * v;
        if (s > 0.0 && s < 1.0) return u * std::sqrt(-2.0 * std::log(s) / s);
    }
}

double SimRandom::exponential(double mean) {
    return -mean * std::log(1.0 - uniform());
}

double SimRandom::log_normal(double median, double sigma) {
    return median * std::exp(sigma * normal());
}

}  // namespace fathom
