#include "base/formats.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"

namespace fathom {

namespace {

constexpr std::uint32_t kSignBit = 0x80000000u;
constexpr std::uint32_t kInfinityBits = 0x7f800000u;
constexpr std::uint32_t kMantissaMask = 0x007fffffu;
constexpr int kExponentBias = 127;
constexpr int kScaleIsNan = 255;  // UE8M0

constexpr std::uint32_t bits_of(float x) {
    return std::bit_cast<std::uint32_t>(x);
}

// 2^exponent for exponents whose power is a normal number.
constexpr float power_of_two(int exponent) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + kExponentBias) << 23);
}

constexpr std::array<float, 256> make_e4m3_table() {
    std::array<float, 256> table{};
    for (int code = 0; code < 256; ++code) {
        const int exponent = (code >> 3) & 15, mantissa = code & 7;
        float magnitude = exponent == 0
                              ? static_cast<float>(mantissa) * power_of_two(-9)
                              : static_cast<float>(8 + mantissa) * power_of_two(exponent - 10);
        if ((code & 0x7f) == 0x7f) magnitude = std::numeric_limits<float>::quiet_NaN();
        table[static_cast<std::size_t>(code)] = code < 128 ? magnitude : -magnitude;
    }
    return table;
}

constexpr std::array<float, 256> kE4m3Table = make_e4m3_table();
constexpr std::array<float, 16> kE2m1Table = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                              4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                              -2.0f, -3.0f, -4.0f, -6.0f};

// Both encoders are free of branches, so that the group loops vectorise.

inline std::uint8_t encode_e4m3(float x) {
    const std::uint32_t u = bits_of(x);
    const std::uint32_t sign = (u >> 24) & 0x80u;
    const std::uint32_t magnitude = u & ~kSignBit;
    const std::uint32_t clamped = std::min(magnitude, bits_of(448.0f));
    const std::uint32_t normal =
        ((clamped + 0x7ffffu + ((clamped >> 20) & 1u)) >> 20) - ((kExponentBias - 7) << 3);
    // Next to 2^14 a float's unit is 2^-9, the step of E4M3's subnormals: the addition rounds. A
    // denormal x gives 0 with or without DAZ.
    const std::uint32_t subnormal =
        bits_of(std::bit_cast<float>(clamped) + 16384.0f) - bits_of(16384.0f);
    const std::uint32_t code = sign | (clamped < bits_of(0.015625f) ? subnormal : normal);
    return static_cast<std::uint8_t>(magnitude > kInfinityBits ? 0x7fu : code);
}

inline std::uint8_t encode_e2m1(float x) {
    const std::uint32_t u = bits_of(x);
    const std::uint32_t magnitude = u & ~kSignBit;
    // Counts the midpoints passed; a tie passes when the code above is the even one.
    const std::uint32_t code =
        std::uint32_t{magnitude > bits_of(0.25f)} + std::uint32_t{magnitude >= bits_of(0.75f)} +
        std::uint32_t{magnitude > bits_of(1.25f)} + std::uint32_t{magnitude >= bits_of(1.75f)} +
        std::uint32_t{magnitude > bits_of(2.5f)} + std::uint32_t{magnitude >= bits_of(3.5f)} +
        std::uint32_t{magnitude > bits_of(5.0f)};
    return static_cast<std::uint8_t>(((u >> 28) & 8u) | code);
}

// Largest magnitude of a group, at least `floor`. Compared as bit patterns: exact for denormals
// whatever MXCSR says, and NaN counts as the largest.
inline float group_amax(const float* x, int n, float floor) {
    std::uint32_t amax = bits_of(floor);
    for (int i = 0; i < n; ++i)
        amax = std::max(amax, bits_of(x[i]) & ~kSignBit);
    return std::bit_cast<float>(amax);
}

// UE8M0 of a non-negative v; infinity and NaN give the NaN byte.
inline int encode_ue8m0(float v) {
    const std::uint32_t u = bits_of(v);
    const int byte = static_cast<int>(u >> 23) + ((u & kMantissaMask) != 0 ? 1 : 0);
    return std::min(byte, kScaleIsNan);
}

// value · 2^exponent with denormal results kept exact, for values of an element format.
float scale_code_value(float value, int exponent) {
    const std::uint32_t u = bits_of(value);
    const std::uint32_t sign = u & kSignBit, magnitude = u & ~kSignBit;
    if (magnitude == 0 || magnitude >= kInfinityBits) return value;
    const int biased = static_cast<int>(magnitude >> 23) + exponent;
    const std::uint32_t mantissa = magnitude & kMantissaMask;
    if (biased >= 255) return std::bit_cast<float>(sign | kInfinityBits);
    if (biased >= 1)
        return std::bit_cast<float>(sign | static_cast<std::uint32_t>(biased) << 23 | mantissa);
    // Element formats reach down to 2^-9 · 2^-127 with three mantissa bits: nothing is shifted out.
    return std::bit_cast<float>(sign | (mantissa | 0x00800000u) >> (1 - biased));
}

// x · 2^-exponent for a scale near the bottom of fp32's range, where x may be denormal.
float unscale_small(float x, int exponent) {
    const std::uint32_t u = bits_of(x);
    const std::uint32_t magnitude = u & ~kSignBit;
    if (magnitude > kMantissaMask) return x * power_of_two(-exponent);
    const float value = static_cast<float>(magnitude) * power_of_two(-149 - exponent);
    return (u & kSignBit) != 0 ? -value : value;
}

inline std::uint8_t pack_pair(std::uint8_t even, std::uint8_t odd) {
    return static_cast<std::uint8_t>(even | odd << 4);
}

// Scale bytes for which every non-zero finite code · 2^(byte-127) of both formats is normal.
constexpr bool scale_is_plain(int byte) {
    return byte >= 10 && byte <= 246;
}

void check_shape(std::size_t values, std::size_t codes, std::size_t codes_wanted,
                 std::size_t scales, int group) {
    const auto g = static_cast<std::size_t>(group);
    FATHOM_CHECK(values % g == 0, "values must fill whole groups");
    FATHOM_CHECK(codes == codes_wanted, "wrong number of code bytes");
    FATHOM_CHECK(scales == values / g, "wrong number of scales");
}

}  // namespace

std::uint8_t e4m3_from_float(float x) {
    return encode_e4m3(x);
}

float e4m3_to_float(std::uint8_t code) {
    return kE4m3Table[code];
}

std::uint8_t e2m1_from_float(float x) {
    return encode_e2m1(x);
}

float e2m1_to_float(std::uint8_t code) {
    return kE2m1Table[code & 15u];
}

std::uint8_t ue8m0_from_float(float v) {
    FATHOM_DCHECK(bits_of(v) - 1 < kInfinityBits - 1, "UE8M0 needs a positive finite number");
    return static_cast<std::uint8_t>(encode_ue8m0(v));
}

float ue8m0_to_float(std::uint8_t byte) {
    if (byte == 0) return std::bit_cast<float>(0x00400000u);
    if (byte == kScaleIsNan) return std::numeric_limits<float>::quiet_NaN();
    return std::bit_cast<float>(static_cast<std::uint32_t>(byte) << 23);
}

void quantise_q8(std::span<const float> x, std::span<std::uint8_t> codes,
                 std::span<std::uint8_t> scales) {
    check_shape(x.size(), codes.size(), x.size(), scales.size(), kQ8Group);
    constexpr float kReciprocal = 1.0f / 448.0f;
    for (std::size_t g = 0; g < scales.size(); ++g) {
        const float* in = x.data() + g * kQ8Group;
        std::uint8_t* out = codes.data() + g * kQ8Group;
        const int byte = encode_ue8m0(group_amax(in, kQ8Group, 1e-4f) * kReciprocal);
        scales[g] = static_cast<std::uint8_t>(byte);
        if (byte == kScaleIsNan) {
            std::fill_n(out, kQ8Group, std::uint8_t{0x7f});
            continue;
        }
        // Exact, as a division by a power of two is; finite input keeps byte within 105..247.
        const float inverse = power_of_two(kExponentBias - byte);
        for (int i = 0; i < kQ8Group; ++i)
            out[i] = encode_e4m3(in[i] * inverse);
    }
}

void dequantise_q8(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                   std::span<float> x) {
    check_shape(x.size(), codes.size(), x.size(), scales.size(), kQ8Group);
    for (std::size_t g = 0; g < scales.size(); ++g) {
        const std::uint8_t* in = codes.data() + g * kQ8Group;
        float* out = x.data() + g * kQ8Group;
        const int byte = scales[g];
        if (scale_is_plain(byte)) {
            const float scale = power_of_two(byte - kExponentBias);
            for (int i = 0; i < kQ8Group; ++i)
                out[i] = kE4m3Table[in[i]] * scale;
        } else if (byte == kScaleIsNan) {
            std::fill_n(out, kQ8Group, std::numeric_limits<float>::quiet_NaN());
        } else {
            for (int i = 0; i < kQ8Group; ++i)
                out[i] = scale_code_value(kE4m3Table[in[i]], byte - kExponentBias);
        }
    }
}

void quantise_main_kv(std::span<const float> x, std::span<std::uint8_t> packed,
                      std::span<std::uint8_t> scales) {
    check_shape(x.size(), packed.size(), x.size() / 2, scales.size(), kMainKvGroup);
    for (std::size_t g = 0; g < scales.size(); ++g) {
        const float* in = x.data() + g * kMainKvGroup;
        std::uint8_t* out = packed.data() + g * (kMainKvGroup / 2);
        // The floor is 6 · 2^-9: a group of zeros gets the smallest scale.
        scales[g] = encode_e4m3(group_amax(in, kMainKvGroup, 6.0f / 512.0f) / 6.0f);
        const float scale = kE4m3Table[scales[g]];
        for (int i = 0; i < kMainKvGroup; i += 2)
            out[i / 2] = pack_pair(encode_e2m1(in[i] / scale), encode_e2m1(in[i + 1] / scale));
    }
}

void dequantise_main_kv(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                        std::span<float> x) {
    check_shape(x.size(), packed.size(), x.size() / 2, scales.size(), kMainKvGroup);
    for (std::size_t g = 0; g < scales.size(); ++g) {
        const std::uint8_t* in = packed.data() + g * (kMainKvGroup / 2);
        float* out = x.data() + g * kMainKvGroup;
        const float scale = kE4m3Table[scales[g]];
        for (int i = 0; i < kMainKvGroup; i += 2) {
            out[i] = kE2m1Table[in[i / 2] & 15u] * scale;
            out[i + 1] = kE2m1Table[in[i / 2] >> 4] * scale;
        }
    }
}

void quantise_index(std::span<const float> x, std::span<std::uint8_t> packed,
                    std::span<std::uint8_t> scales) {
    check_shape(x.size(), packed.size(), x.size() / 2, scales.size(), kIndexGroup);
    constexpr float kReciprocal = 1.0f / 6.0f;
    constexpr float kFloor = 6.0f * std::numeric_limits<float>::min();
    // From this byte on a denormal x is below every midpoint, so flushing it changes nothing.
    constexpr int kDenormalsVanish = 8;
    for (std::size_t g = 0; g < scales.size(); ++g) {
        const float* in = x.data() + g * kIndexGroup;
        std::uint8_t* out = packed.data() + g * (kIndexGroup / 2);
        const int byte = encode_ue8m0(group_amax(in, kIndexGroup, kFloor) * kReciprocal);
        scales[g] = static_cast<std::uint8_t>(byte);
        if (byte == kScaleIsNan) {
            std::fill_n(out, kIndexGroup / 2, std::uint8_t{0});
        } else if (byte >= kDenormalsVanish) {
            const float inverse = power_of_two(kExponentBias - byte);  // byte is at most 253
            for (int i = 0; i < kIndexGroup; i += 2)
                out[i / 2] =
                    pack_pair(encode_e2m1(in[i] * inverse), encode_e2m1(in[i + 1] * inverse));
        } else {
            const int exponent = byte - kExponentBias;
            for (int i = 0; i < kIndexGroup; i += 2)
                out[i / 2] = pack_pair(encode_e2m1(unscale_small(in[i], exponent)),
                                       encode_e2m1(unscale_small(in[i + 1], exponent)));
        }
    }
}

void dequantise_index(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                      std::span<float> x) {
    check_shape(x.size(), packed.size(), x.size() / 2, scales.size(), kIndexGroup);
    for (std::size_t g = 0; g < scales.size(); ++g) {
        const std::uint8_t* in = packed.data() + g * (kIndexGroup / 2);
        float* out = x.data() + g * kIndexGroup;
        const int byte = scales[g];
        const int exponent = byte - kExponentBias;
        std::array<float, 16> scaled;
        for (std::size_t code = 0; code < scaled.size(); ++code)
            scaled[code] = byte == kScaleIsNan ? std::numeric_limits<float>::quiet_NaN()
                                               : scale_code_value(kE2m1Table[code], exponent);
        for (int i = 0; i < kIndexGroup; i += 2) {
            out[i] = scaled[in[i / 2] & 15u];
            out[i + 1] = scaled[in[i / 2] >> 4];
        }
    }
}

}  // namespace fathom
