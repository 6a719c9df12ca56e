// Stored rows as numbers: the decoders of KV and table rows, to fp32 or bf16.
#pragma once

#include "kernels/x86/cache_kernels.h"
#include "kernels/x86/level/ints.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

inline constexpr std::int64_t kGroup = 32;

// Scale bytes for which no non-zero code gives a denormal or an infinity.
inline bool scale_is_plain(int byte) {
    return byte >= 10 && byte <= 246;
}
inline float power_scale(int byte) {
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(byte << 23)));
}
inline bool all_plain(const std::uint8_t* scales, std::int64_t count) {
    bool plain = true;
    for (std::int64_t g = 0; g < count; ++g)
        plain &= scale_is_plain(scales[g]);
    return plain;
}

inline void put(float* out, F16 x) {
    store(out, x);
}
inline void put(std::uint16_t* out, F16 x) {  // exact
    store_bf16_result(out, x);
}

// Sixteen E4M3 codes as halves of IEEE's 16-bit format, 2^-8 of their values; NaN codes become
// finite numbers.
inline __m256i e4m3_halves(const std::uint8_t* p) {
    const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i magnitude = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)), 7);
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
    return _mm256_or_si256(magnitude, sign);
}

#if defined(__AVX512BF16__)

inline F16 halves_to_floats(__m256i x) {
    return {_mm512_cvtph_ps(x)};
}
// Sixteen E2M1 codes of eight bytes, element 2k in the low nibble.
inline F16 e2m1_numbers(const std::uint8_t* p) {
    const __m128i x = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i nibbles = _mm_unpacklo_epi8(x, _mm_srli_epi16(x, 4));
    const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f,
                                        -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    return {_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(nibbles), table)};
}

#else

inline F16 halves_to_floats(__m256i x) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(x)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))};
}
inline __m256 e2m1_of(__m256i nibbles) {  // bits above the nibble are ignored
    const __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(nibbles, _mm256_set1_epi32(8)), 28);
    return _mm256_or_ps(_mm256_permutevar8x32_ps(table, nibbles), _mm256_castsi256_ps(sign));
}
inline F16 e2m1_numbers(const std::uint8_t* p) {
    const __m128i x = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i nibbles = _mm_unpacklo_epi8(x, _mm_srli_epi16(x, 4));
    return {e2m1_of(_mm256_cvtepu8_epi32(nibbles)),
            e2m1_of(_mm256_cvtepu8_epi32(_mm_srli_si128(nibbles, 8)))};
}

#endif

// Sixteen E4M3 scales, NaN codes included.
inline F16 e4m3_scales(const std::uint8_t* p) {
    const I16 code = load_u8(p);
    const F16 x = halves_to_floats(e4m3_halves(p)) * all(256.0f);
    const M16 finite = less(code & all_i(0x7f), all_i(0x7f));
    return select(finite, x, from_bits(all_i(0x7fc00000)));
}

#if defined(__AVX512BF16__)

// One byte of the bf16 images of the 128 non-negative E4M3 codes.
struct E4m3Bytes {
    std::uint8_t low[128], high[128];
};
constexpr E4m3Bytes e4m3_bytes() {
    E4m3Bytes t{};
    for (int code = 0; code < 127; ++code) {
        int exponent = code >> 3, mantissa = code & 7;
        if (exponent == 0) {
            if (mantissa == 0) continue;
            exponent = 1;
            for (; mantissa < 8; mantissa *= 2)
                --exponent;
        }
        const int bf16 = (exponent + 120) << 7 | (mantissa & 7) << 4;
        t.low[code] = static_cast<std::uint8_t>(bf16 & 255);
        t.high[code] = static_cast<std::uint8_t>(bf16 >> 8);
    }
    return t;
}
inline constexpr E4m3Bytes kE4m3Bytes = e4m3_bytes();

inline bool decode_fp8(const std::uint8_t* values, const std::uint8_t* scales, std::int64_t n,
                       std::uint16_t* out) {
    const __m512i low0 = _mm512_loadu_si512(kE4m3Bytes.low);
    const __m512i low1 = _mm512_loadu_si512(kE4m3Bytes.low + 64);
    const __m512i high0 = _mm512_loadu_si512(kE4m3Bytes.high);
    const __m512i high1 = _mm512_loadu_si512(kE4m3Bytes.high + 64);
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const __m512i all_but_sign = _mm512_set1_epi8(0x7f);
    __mmask64 nan = 0;
    if (!all_plain(scales, n / kGroup)) return false;
    for (std::int64_t k = 0; k < n; k += 2 * kGroup) {
        const bool both = k + kGroup < n;
        const __m512i codes = _mm512_permutexvar_epi64(
            order, _mm512_maskz_loadu_epi8(both ? ~0ull : 0xffffffffull, values + k));
        nan |= _mm512_cmpeq_epi8_mask(_mm512_and_si512(codes, all_but_sign), all_but_sign);
        const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
        // high | (codes & 0x80)
        const __m512i high = _mm512_ternarylogic_epi32(
            _mm512_permutex2var_epi8(high0, codes, high1), codes, all_but_sign, 0xf4);
        for (int half = 0; half < (both ? 2 : 1); ++half) {
            const __m512i x =
                half == 0 ? _mm512_unpacklo_epi8(low, high) : _mm512_unpackhi_epi8(low, high);
            const int exponent = scales[k / kGroup + half] - 127;
            const __mmask32 some = _mm512_test_epi16_mask(x, _mm512_set1_epi16(0x7fff));
            const __m512i y = _mm512_mask_add_epi16(
                x, some, x, _mm512_set1_epi16(static_cast<short>(exponent * 128)));
            _mm512_storeu_si512(out + k + half * kGroup, y);
        }
    }
    return nan == 0;
}

// 32 codes of two groups of 16 with the scales in lanes 2·pair and 2·pair + 1 of `scales`.
inline void decode_fp4_pairs(const std::uint8_t* values, __m512 scale, std::uint16_t* out) {
    const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f,
                                        -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    const __m512i x =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
    const __m512 even = _mm512_mul_ps(_mm512_permutexvar_ps(x, table), scale);
    const __m512 odd = _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(x, 4), table), scale);
    const __m512i y = _mm512_mask_blend_epi16(
        0xaaaaaaaau, _mm512_srli_epi32(_mm512_castps_si512(even), 16), _mm512_castps_si512(odd));
    _mm512_storeu_si512(out, y);
}

inline void decode_main_fp4(const std::uint8_t* values, const std::uint8_t* scales, std::int64_t n,
                            std::uint16_t* out) {
    for (std::int64_t k = 0; k < n; k += 256) {  // sixteen scales
        const std::int64_t left = n - k < 256 ? n - k : 256;
        alignas(16) std::uint8_t part[16] = {};
        const std::uint8_t* codes = scales + k / 16;
        if (left < 256) {
            for (std::int64_t g = 0; g < left / 16; ++g)
                part[g] = codes[g];
            codes = part;
        }
        const __m512 s = e4m3_scales(codes).v;
        const __m512i step = _mm512_set1_epi32(2);
        __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
        for (std::int64_t j = 0; j < left; j += kGroup) {
            decode_fp4_pairs(values + (k + j) / 2, _mm512_permutexvar_ps(lane, s), out + k + j);
            lane = _mm512_add_epi32(lane, step);
        }
    }
}

inline bool decode_index_fp4(const std::uint8_t* values, const std::uint8_t* scales, std::int64_t n,
                             std::uint16_t* out) {
    if (!all_plain(scales, n / kGroup)) return false;
    for (std::int64_t k = 0; k < n; k += kGroup) {
        decode_fp4_pairs(values + k / 2, _mm512_set1_ps(power_scale(scales[k / kGroup])), out + k);
    }
    return true;
}

#endif

template <class T>
inline bool decode_fp8(const std::uint8_t* values, const std::uint8_t* scales, std::int64_t n,
                       T* out) {
    if (!all_plain(scales, n / kGroup)) return false;
    I16 largest_code = all_i(0);
    for (std::int64_t k = 0; k < n; k += kLanes) {
        largest_code = max(largest_code, load_u8(values + k) & all_i(0x7f));
        // 2^8 · 2^(byte − 127): byte + 8 is still a plain exponent.
        put(out + k,
            halves_to_floats(e4m3_halves(values + k)) * all(power_scale(scales[k / kGroup] + 8)));
    }
    return first(largest(largest_code)) < 0x7f;
}

template <class T>
inline void decode_main_fp4(const std::uint8_t* values, const std::uint8_t* scales, std::int64_t n,
                            T* out) {
    alignas(64) float s[kLanes];
    for (std::int64_t k = 0; k < n; k += kLanes) {
        const std::int64_t g = k / kLanes, left = n / kLanes - g;
        if (g % kLanes == 0) {
            std::uint8_t part[kLanes] = {};
            for (std::int64_t j = 0; j < left && j < kLanes; ++j)
                part[j] = scales[g + j];
            store(s, e4m3_scales(part));
        }
        put(out + k, e2m1_numbers(values + k / 2) * all(s[g % kLanes]));
    }
}

template <class T>
inline bool decode_index_fp4(const std::uint8_t* values, const std::uint8_t* scales, std::int64_t n,
                             T* out) {
    if (!all_plain(scales, n / kGroup)) return false;
    for (std::int64_t k = 0; k < n; k += kLanes) {
        put(out + k, e2m1_numbers(values + k / 2) * all(power_scale(scales[k / kGroup])));
    }
    return true;
}

template <class T>
inline bool decode_row(RowFormat format, const std::uint8_t* values, const std::uint8_t* scales,
                       std::int64_t n, T* out) {
    switch (format) {
        case RowFormat::fp8:
            return decode_fp8(values, scales, n, out);
        case RowFormat::main_fp4:
            decode_main_fp4(values, scales, n, out);
            return true;
        case RowFormat::index_fp4:
            return decode_index_fp4(values, scales, n, out);
        case RowFormat::bf16:
            break;
    }
    return false;
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
