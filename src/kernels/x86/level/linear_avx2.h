// Panel products with fp32 multiply-adds: the two steps that VDPBF16PS takes for a pair are two
// FMAs, the odd element first, and MXCSR flushes denormals as it does. The inputs are widened once
// a call; the codes become pairs of bf16 by byte lookups, a pair two floats by a shift and a mask.
//
// Few rows decode in registers, 8 rows × 8 inputs at a time; more rows expand a block of tiles to
// floats once and run a 16-output × 6-row kernel over it.
#pragma once

#include "kernels/x86/level/prefetch.h"
#include "kernels/x86/level/vec.h"
#include "kernels/x86/linear_kernels.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

inline constexpr int kGroups = 4;      // row groups of a panel
inline constexpr int kDirectRows = 4;  // of a direct pass
inline constexpr int kDenseRows = 6;
inline constexpr std::int64_t kBlockTiles = 8;  // expanded at a time: 64 KiB
inline constexpr std::int64_t kGroupTileFloats = kTileInputs * kLanes;
inline constexpr std::int64_t kTileFloats = kGroups * kGroupTileFloats;

inline __m256i load_half(const std::uint8_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m256i twice(__m128i x) {
    return _mm256_broadcastsi128_si256(x);
}
inline __m256 even_of(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
inline __m256 odd_of(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
}

// A decoder of one format: the bf16 images of 8 rows of a line, two to a 32-bit lane, from which
// weight() makes the floats of input k; and the scales of a row group in a tile. kInputs is how
// many inputs a line holds, kTogether how many row groups one row is multiplied with at a time, so
// that there are enough chains and registers.

class Fp4Decoder {
  public:
    static constexpr int kInputs = 8;
    static constexpr int kTogether = 4;
    static constexpr std::int64_t kTileBytes = kFp4TileBytes;

    Fp4Decoder()
        : low_(twice(
              _mm_setr_epi8(0, 0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64))),
          high_(twice(_mm_setr_epi8(0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, -128, -65, -65,
                                    -65, -64, -64, -64, -64))) {}

    static const std::uint8_t* tile(const std::uint8_t* panel, std::int64_t t) {
        return panel + t * kFp4TileBytes;
    }
    static const std::uint8_t* line(const std::uint8_t* tile, int l, int b) {
        return tile + (kGroups * l + b) * kLineBytes;
    }
    static F16 scales(const std::uint8_t* panel, std::int64_t t, int b) {
        const std::uint8_t* p = tile(panel, t) + kFp4ScaleOffset + b * kLanes;
        const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
        return {scale(_mm256_cvtepu8_epi32(bytes)),
                scale(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
    }
    // Word 0 of a lane's bytes in `words` is input k, word 1 input k + 4: see weight().
    void decode(__m256i codes, __m256i (&words)[4]) const {
        const __m256i nibble = _mm256_set1_epi8(15);
        const __m256i part[2] = {_mm256_and_si256(codes, nibble),
                                 _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble)};
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
            const __m256i low = _mm256_shuffle_epi8(low_, part[i]);
            const __m256i high = _mm256_shuffle_epi8(high_, part[i]);
            // Rows 0, 1 and 2, 3 of a 128-bit lane: even inputs in one 32-bit lane, odd in the
            // next.
            const __m256 a = _mm256_castsi256_ps(_mm256_unpacklo_epi8(low, high));
            const __m256 b = _mm256_castsi256_ps(_mm256_unpackhi_epi8(low, high));
            words[2 * i] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
            words[2 * i + 1] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
        }
    }
    static __m256 weight(const __m256i (&words)[4], int k) {
        return k < 4 ? even_of(words[k]) : odd_of(words[k - 4]);
    }

  private:
    static __m256 scale(__m256i bytes) {
        const __m256i nan = _mm256_cmpeq_epi32(bytes, _mm256_set1_epi32(255));
        const __m256i quiet = _mm256_and_si256(nan, _mm256_set1_epi32(0x00400000));
        return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(bytes, 23), quiet));
    }

    __m256i low_, high_;  // bytes of the bf16 images
};

class Fp8Decoder {
  public:
    static constexpr int kInputs = 4;
    static constexpr int kTogether = 2;
    static constexpr std::int64_t kTileBytes = kFp8TileBytes;

    static const std::uint8_t* tile(const std::uint8_t* panel, std::int64_t t) {
        return panel + t / kFp8TilesPerScales * kFp8ChunkBytes + kLineBytes +
               t % kFp8TilesPerScales * kFp8TileBytes;
    }
    static const std::uint8_t* line(const std::uint8_t* tile, int l, int b) {
        return tile + (16 * (b / 2) + 2 * l + b % 2) * kLineBytes;
    }
    static F16 scales(const std::uint8_t* panel, std::int64_t t, int b) {
        const std::uint8_t byte =
            panel[t / kFp8TilesPerScales * kFp8ChunkBytes + t % kFp8TilesPerScales * 2 + b / 2];
        const std::uint32_t bits =
            byte == 255 ? 0x7fc00000u : static_cast<std::uint32_t>(byte) << 23;
        float scale;
        __builtin_memcpy(&scale, &bits, sizeof scale);
        return all(scale);
    }
    // Normal codes: high byte s·128 + 60 + e/2, low byte (e%2, mantissa)·16. For e = 0 both are
    // corrected by tables of the mantissa; the NaN code gets an exponent of ones.
    void decode(__m256i codes, __m256i (&pairs)[2]) const {
        const __m256i all_but_sign = _mm256_set1_epi8(0x7f);
        // A lookup takes the low four bits of an index, and gives zero where its top bit is set.
        const __m256i magnitude = _mm256_and_si256(codes, all_but_sign);
        const __m256i first = _mm256_and_si256(_mm256_srli_epi16(codes, 4), _mm256_set1_epi8(15));
        const __m256i normal = _mm256_cmpgt_epi8(magnitude, _mm256_set1_epi8(7));
        const __m256i mantissa = _mm256_or_si256(magnitude, normal);
        const __m256i nan = _mm256_cmpeq_epi8(magnitude, all_but_sign);
        const __m256i low = _mm256_xor_si256(_mm256_shuffle_epi8(low_, magnitude),
                                             _mm256_shuffle_epi8(fix_low_, mantissa));
        const __m256i high =
            _mm256_or_si256(nan, _mm256_xor_si256(_mm256_shuffle_epi8(high_, first),
                                                  _mm256_shuffle_epi8(fix_high_, mantissa)));
        pairs[0] = _mm256_unpacklo_epi8(low, high);
        pairs[1] = _mm256_unpackhi_epi8(low, high);
    }
    static __m256 weight(const __m256i (&pairs)[2], int k) {
        return k % 2 == 0 ? even_of(pairs[k / 2]) : odd_of(pairs[k / 2]);
    }

  private:
    const __m256i low_ = twice(
        _mm_setr_epi8(0, 16, 32, 48, 64, 80, 96, 112, -128, -112, -96, -80, -64, -48, -32, -16));
    const __m256i high_ = twice(
        _mm_setr_epi8(60, 61, 62, 63, 64, 65, 66, 67, -68, -67, -66, -65, -64, -63, -62, -61));
    // Of mantissas 0..7: what turns 60 and m·16 into the bytes of m·2^-9.
    const __m256i fix_low_ =
        twice(_mm_setr_epi8(0, 16, -96, -16, 64, 112, 32, 16, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i fix_high_ = twice(_mm_setr_epi8(60, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
};

class Bf16Decoder {
  public:
    static constexpr int kInputs = 2;
    static constexpr int kTogether = 4;
    static constexpr std::int64_t kTileBytes = kBf16TileBytes;

    static const std::uint8_t* tile(const std::uint8_t* panel, std::int64_t t) {
        return panel + t * kBf16TileBytes;
    }
    static const std::uint8_t* line(const std::uint8_t* tile, int l, int b) {
        return tile + (kGroups * l + b) * kLineBytes;
    }
    static F16 scales(const std::uint8_t*, std::int64_t, int) { return all(1.0f); }
    void decode(__m256i codes, __m256i (&pairs)[1]) const { pairs[0] = codes; }
    static __m256 weight(const __m256i (&pairs)[1], int k) {
        return k == 0 ? even_of(pairs[0]) : odd_of(pairs[0]);
    }
};

inline void widen(const std::uint16_t* x, std::int64_t n, float* out) {
    for (std::int64_t k = 0; k < n; k += kLanes)
        store(out + k, load_bf16(x + k));
}

// Up to four rows: G row groups at a time, so that 2·R·G chains hide the latency. x[r] has
// tiles·32 floats.
template <class Decoder, int R, int G>
inline void direct(const Decoder& decoder, const std::uint8_t* panel, std::int64_t tiles,
                   const float* const* x, Ahead ahead, float* sums) {
    constexpr int kInputs = Decoder::kInputs;
    for (int i = 0; i < R * kGroups; ++i)
        store(sums + i * kLanes, zero());
    for (std::int64_t t = 0; t < tiles; ++t) {
        const std::uint8_t* tile = Decoder::tile(panel, t);
        for (int first = 0; first < kGroups; first += G) {
            F16 sum[R][G];
            for (auto& row : sum)
                for (auto& s : row)
                    s = zero();
            for (int l = 0; l < kTileInputs / kInputs; ++l) {
#pragma GCC unroll 4
                for (int g = 0; g < G; ++g) {
                    const std::uint8_t* line = Decoder::line(tile, l, first + g);
                    prefetch(ahead.of(line));
#pragma GCC unroll 2
                    for (int half = 0; half < 2; ++half) {
                        __m256i v[kInputs / 2];
                        decoder.decode(load_half(line + half * 32), v);
                        const std::int64_t first_input = t * kTileInputs + l * kInputs;
#pragma GCC unroll 4
                        for (int p = 0; p < kInputs; p += 2) {
                            const __m256 odd = Decoder::weight(v, p + 1);
                            const __m256 even = Decoder::weight(v, p);
#pragma GCC unroll 4
                            for (int r = 0; r < R; ++r) {
                                const float* in = x[r] + first_input + p;
                                __m256& s = half == 0 ? sum[r][g].a : sum[r][g].b;
                                s = _mm256_fmadd_ps(_mm256_broadcast_ss(in + 1), odd, s);
                                s = _mm256_fmadd_ps(_mm256_broadcast_ss(in), even, s);
                            }
                        }
                    }
                }
            }
#pragma GCC unroll 4
            for (int g = 0; g < G; ++g) {
                const F16 scale = Decoder::scales(panel, t, first + g);
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) {
                    float* acc = sums + r * kPanelRows + (first + g) * kLanes;
                    store(acc, fma(sum[r][g], scale, load(acc)));
                }
            }
        }
    }
}

// Tiles [first, first + tiles) as floats, out[group][tile][input][16], and their scales.
template <class Decoder>
inline void expand(const Decoder& decoder, const std::uint8_t* panel, std::int64_t first,
                   std::int64_t tiles, float* out, float* scales) {
    constexpr int kInputs = Decoder::kInputs;
    for (std::int64_t t = 0; t < tiles; ++t) {
        const std::uint8_t* tile = Decoder::tile(panel, first + t);
        for (int b = 0; b < kGroups; ++b) {
            store(scales + t * kPanelRows + b * kLanes, Decoder::scales(panel, first + t, b));
            float* to = out + (b * kBlockTiles + t) * kGroupTileFloats;
            for (int l = 0; l < kTileInputs / kInputs; ++l) {
                const std::uint8_t* line = Decoder::line(tile, l, b);
#pragma GCC unroll 2
                for (int half = 0; half < 2; ++half) {
                    __m256i v[kInputs / 2];
                    decoder.decode(load_half(line + half * 32), v);
#pragma GCC unroll 8
                    for (int k = 0; k < kInputs; ++k) {
                        _mm256_store_ps(to + (l * kInputs + k) * kLanes + half * 8,
                                        Decoder::weight(v, k));
                    }
                }
            }
        }
    }
}

// sums[r·64 ..] += one row group's product of an expanded block with R rows.
template <int R>
inline void dense(const float* w, std::int64_t tiles, const float* const* x, const float* scales,
                  float* sums) {
    for (std::int64_t t = 0; t < tiles; ++t, w += kGroupTileFloats) {
        __m256 sum[R][2];
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
            sum[r][0] = sum[r][1] = _mm256_setzero_ps();
#pragma GCC unroll 4
        for (std::int64_t k = 0; k < kTileInputs; ++k) {
            const std::int64_t i = k ^ 1;  // the odd one of a pair first
            const __m256 w0 = _mm256_load_ps(w + i * kLanes);
            const __m256 w1 = _mm256_load_ps(w + i * kLanes + 8);
#pragma GCC unroll 6
            for (int r = 0; r < R; ++r) {
                const __m256 in = _mm256_broadcast_ss(x[r] + t * kTileInputs + i);
                sum[r][0] = _mm256_fmadd_ps(in, w0, sum[r][0]);
                sum[r][1] = _mm256_fmadd_ps(in, w1, sum[r][1]);
            }
        }
        const F16 scale = load(scales + t * kPanelRows);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            float* acc = sums + r * kPanelRows;
            store(acc, fma({sum[r][0], sum[r][1]}, scale, load(acc)));
        }
    }
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
