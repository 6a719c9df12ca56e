// Element formats of the checkpoint, the activations and the caches, and their quantisers,
// bit-exact to the vendor's (model.md 4.1–4.3; golden/kernels/scalar_formats and group_quantisers).
//
//   bf16    upper half of an fp32, round to nearest even
//   E4M3    1-4-3 bits, finite only (max 448, smallest subnormal 2^-9), saturating
//   E2M1    0 .5 1 1.5 2 3 4 6, bit 3 is the sign, ties to the even code
//   UE8M0   byte b stands for 2^(b-127); rounding is always up
//
// Group quantisers take fp32 values (which hold bf16 numbers in the model's real arithmetic) and
// give codes plus one scale a group; value = code · scale, exact in bf16. All functions are pure
// and any thread may call them. They do not depend on the FTZ/DAZ bits of MXCSR: work is done on
// bit patterns or on values that cannot be denormal.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace fathom {

// -------------------------------------------------------------------------------- scalar formats

struct Bf16 {
    std::uint16_t bits = 0;
    friend bool operator==(Bf16, Bf16) = default;
};

// Round to nearest even; NaN stays NaN (quieted), infinities stay.
inline Bf16 bf16_from_float(float x) {
    std::uint32_t u = std::bit_cast<std::uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
    return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
inline float bf16_to_float(Bf16 x) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
inline float round_to_bf16(float x) {
    return bf16_to_float(bf16_from_float(x));
}

std::uint8_t e4m3_from_float(float x);   // saturates to ±448; NaN gives 0x7f
float e4m3_to_float(std::uint8_t code);  // codes 0x7f and 0xff are NaN
std::uint8_t e2m1_from_float(float x);   // 0..15; clamps to ±6
float e2m1_to_float(std::uint8_t code);  // uses the low four bits
// The byte for a positive v, rounded up to the next power of two; v must be a positive finite
// number.
std::uint8_t ue8m0_from_float(float v);
float ue8m0_to_float(std::uint8_t byte);  // byte 0 gives 2^-127 (a denormal), 255 gives NaN

// ------------------------------------------------------------------------------- group quantisers

inline constexpr int kQ8Group = 32;      // Q8 activations and window KV rows
inline constexpr int kMainKvGroup = 16;  // FP4 main KV, E4M3 scale
inline constexpr int kIndexGroup = 32;   // MXFP4 index keys and queries, UE8M0 scale

// Q8 (model.md 4.2): amax = max(|x|, 1e-4); s = 2^ceil(log2(amax · fp32(1/448))); code = E4M3(x/s).
// x.size() must be a multiple of 32; codes as long as x; one scale byte a group.
void quantise_q8(std::span<const float> x, std::span<std::uint8_t> codes,
                 std::span<std::uint8_t> scales);
void dequantise_q8(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                   std::span<float> x);

// Main KV (model.md 4.3): groups of 16, s = E4M3(max(amax, 6·2^-9) / 6), code = E2M1(x / s), true
// divisions. packed holds two codes a byte, element 2k in the low nibble; scales are E4M3 codes.
void quantise_main_kv(std::span<const float> x, std::span<std::uint8_t> packed,
                      std::span<std::uint8_t> scales);
void dequantise_main_kv(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                        std::span<float> x);

// Index keys and queries (model.md 4.3): groups of 32, s = 2^ceil(log2(max(amax,
// 6·2^-126)·fp32(1/6))).
void quantise_index(std::span<const float> x, std::span<std::uint8_t> packed,
                    std::span<std::uint8_t> scales);
void dequantise_index(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                      std::span<float> x);

}  // namespace fathom
