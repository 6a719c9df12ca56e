#include "base/random.h"

#include <bit>
#include <cmath>

#include "base/check.h"

namespace fathom {

namespace {

// Constants of Philox4x32 and of its Weyl key sequence (Salmon et al., SC'11, section 4.3).
constexpr std::uint32_t kMultiplier0 = 0xd2511f53u, kMultiplier1 = 0xcd9e8d57u;
constexpr std::uint32_t kWeyl0 = 0x9e3779b9u, kWeyl1 = 0xbb67ae85u;
constexpr int kRounds = 10;

double uniform_from_bits(const std::array<std::uint32_t, 4>& bits) {
    const std::uint64_t word = static_cast<std::uint64_t>(bits[1]) << 32 | bits[0];
    return static_cast<double>(word >> 11) * 0x1p-53;
}

// Natural logarithm of a positive normal number from basic operations alone, good to about 1e-15:
// libm's last bit differs between versions and CPUs, and generated data must not.
double portable_log(double x) {
    constexpr double kLn2 = 0.693147180559945309417;
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
    const int exponent = static_cast<int>(bits >> 52) - 1023;
    const double mantissa =
        std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
    const double s = (mantissa - 1.0) / (mantissa + 1.0);  // below 1/3
    const double s2 = s * s;
    double sum = 0;
    for (int k = 31; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return 2.0 * s * sum + exponent * kLn2;
}

}  // namespace

// Counter words: index low, index high, block, purpose. Key words: seed low, seed high.
std::array<std::uint32_t, 4> random_bits(const RandomKey& key) {
    std::array<std::uint32_t, 4> c = {static_cast<std::uint32_t>(key.index),
                                      static_cast<std::uint32_t>(key.index >> 32), key.block,
                                      static_cast<std::uint32_t>(key.purpose)};
    std::uint32_t k0 = static_cast<std::uint32_t>(key.seed);
    std::uint32_t k1 = static_cast<std::uint32_t>(key.seed >> 32);
    for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t p0 = static_cast<std::uint64_t>(kMultiplier0) * c[0];
        const std::uint64_t p1 = static_cast<std::uint64_t>(kMultiplier1) * c[2];
        c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
             static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
        k0 += kWeyl0;
        k1 += kWeyl1;
    }
    return c;
}

double random_uniform(const RandomKey& key) {
    return uniform_from_bits(random_bits(key));
}

std::uint64_t RandomStream::next_u64() {
    const auto bits = random_bits(key_);
    ++key_.index;
    return static_cast<std::uint64_t>(bits[1]) << 32 | bits[0];
}

std::uint64_t RandomStream::next_below(std::uint64_t bound) {
    FATHOM_CHECK(bound > 0);
    // The first 2^64 mod bound values would favour small results.
    const std::uint64_t unfair = (0 - bound) % bound;
    std::uint64_t word = next_u64();
    while (word < unfair)
        word = next_u64();
    return word % bound;
}

double RandomStream::next_uniform() {
    return uniform_from_bits(random_bits({key_.seed, key_.purpose, key_.index++, key_.block}));
}

// Marsaglia's polar method; the second value of each pair is not kept, so the state stays the
// index.
double RandomStream::next_normal() {
    while (true) {
        const double u = 2.0 * next_uniform() - 1.0;
        const double v = 2.0 * next_uniform() - 1.0;
        const double s = u * u + v * v;
        if (s > 0.0 && s < 1.0) return u * std::sqrt(-2.0 * portable_log(s) / s);
    }
}

}  // namespace fathom
