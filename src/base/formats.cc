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

// Both encoders are free of branches and use signed 32-bit integers alone, so that the group loops
// vectorise on every x86-64.

constexpr std::int32_t magnitude_of(float x) {
    return static_cast<std::int32_t>(bits_of(x) & ~kSignBit);
}

// a < b ? yes : no for non-negative a and b, from the sign of the difference: a comparison would
// come back as a branch.
constexpr std::int32_t if_below(std::int32_t a, std::int32_t b, std::int32_t yes, std::int32_t no) {
    return no ^ ((yes ^ no) & ((a - b) >> 31));
}

inline std::int32_t encode_e4m3(float x) {
    const std::int32_t sign = static_cast<std::int32_t>(bits_of(x) >> 24 & 0x80u);
    const std::int32_t magnitude = magnitude_of(x);
    const std::int32_t clamped =
        if_below(magnitude, magnitude_of(448.0f), magnitude, magnitude_of(448.0f));
    const std::int32_t normal =
        ((clamped + 0x7ffff + ((clamped >> 20) & 1)) >> 20) - ((kExponentBias - 7) << 3);
    // Next to 2^14 a float's unit is 2^-9, the step of E4M3's subnormals: the addition rounds. A
    // denormal x gives 0 with or without DAZ.
    const std::int32_t subnormal =
        std::bit_cast<std::int32_t>(std::bit_cast<float>(clamped) + 16384.0f) -
        magnitude_of(16384.0f);
    const std::int32_t code = sign | if_below(clamped, magnitude_of(0x1p-6f), subnormal, normal);
    return if_below(static_cast<std::int32_t>(kInfinityBits), magnitude, 0x7f, code);
}

inline std::int32_t encode_e2m1(float x) {
    const std::int32_t magnitude = magnitude_of(x);
    // Counts the midpoints passed; a tie passes when the code above is the even one.
    const std::int32_t code = std::int32_t{magnitude > magnitude_of(0.25f)} +
                              std::int32_t{magnitude >= magnitude_of(0.75f)} +
                              std::int32_t{magnitude > magnitude_of(1.25f)} +
                              std::int32_t{magnitude >= magnitude_of(1.75f)} +
                              std::int32_t{magnitude > magnitude_of(2.5f)} +
                              std::int32_t{magnitude >= magnitude_of(3.5f)} +
                              std::int32_t{magnitude > magnitude_of(5.0f)};
    return static_cast<std::int32_t>(bits_of(x) >> 28 & 8u) | code;
}

// Codes of one group, through a local array: bytes may alias anything, which would keep the
// compiler from vectorising the encoding itself.
template <int kGroup, typename Encode>
inline std::array<std::int32_t, kGroup> encode_group(const float* x, Encode encode) {
    std::array<std::int32_t, kGroup> codes;
    for (std::size_t i = 0; i < kGroup; ++i)
        codes[i] = encode(x[i]);
    return codes;
}

// Element 2k goes into the low nibble.
template <std::size_t kGroup>
inline void store_packed(const std::array<std::int32_t, kGroup>& codes, std::uint8_t* out) {
    for (std::size_t i = 0; i < kGroup; i += 2)
        out[i / 2] = static_cast<std::uint8_t>(codes[i] | codes[i + 1] << 4);
}

// Largest magnitude of a group, at least `floor`. Compared as bit patterns: exact for denormals
// whatever MXCSR says, and NaN counts as the largest.
template <int kGroup>
inline float group_amax(const float* x, float floor) {
    std::int32_t amax = magnitude_of(floor);
    for (int i = 0; i < kGroup; ++i)
        amax = std::max(amax, magnitude_of(x[i]));
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
    return static_cast<std::uint8_t>(encode_e4m3(x));
}

float e4m3_to_float(std::uint8_t code) {
    return kE4m3Table[code];
}

std::uint8_t e2m1_from_float(float x) {
    return static_cast<std::uint8_t>(encode_e2m1(x));
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
        const int byte = encode_ue8m0(group_amax<kQ8Group>(in, 1e-4f) * kReciprocal);
        scales[g] = static_cast<std::uint8_t>(byte);
        if (byte == kScaleIsNan) {
            std::fill_n(out, kQ8Group, std::uint8_t{0x7f});
            continue;
        }
        // Exact, as a division by a power of two is; finite input keeps byte within 105..247.
        const float inverse = power_of_two(kExponentBias - byte);
        const auto group =
            encode_group<kQ8Group>(in, [=](float v) { return encode_e4m3(v * inverse); });
        for (std::size_t i = 0; i < kQ8Group; ++i)
            out[i] = static_cast<std::uint8_t>(group[i]);
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
        scales[g] = e4m3_from_float(group_amax<kMainKvGroup>(in, 6.0f / 512.0f) / 6.0f);
        const float scale = kE4m3Table[scales[g]];
        store_packed(
            encode_group<kMainKvGroup>(in, [=](float v) { return encode_e2m1(v / scale); }), out);
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
        const int byte = encode_ue8m0(group_amax<kIndexGroup>(in, kFloor) * kReciprocal);
        scales[g] = static_cast<std::uint8_t>(byte);
        if (byte == kScaleIsNan) {
            std::fill_n(out, kIndexGroup / 2, std::uint8_t{0});
        } else if (byte >= kDenormalsVanish) {
            const float inverse = power_of_two(kExponentBias - byte);  // byte is at most 253
            store_packed(
                encode_group<kIndexGroup>(in, [=](float v) { return encode_e2m1(v * inverse); }),
                out);
        } else {
            const int exponent = byte - kExponentBias;
            store_packed(encode_group<kIndexGroup>(
                             in, [=](float v) { return encode_e2m1(unscale_small(v, exponent)); }),
                         out);
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
