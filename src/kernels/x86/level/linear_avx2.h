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

// A decoder of one format: 8 rows of a line as floats, inputs ascending, and the scales of a row
// group in a tile. kInputs is how many inputs a line holds.

class Fp4Decoder {
  public:
    static constexpr int kInputs = 8;
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
    void decode(__m256i codes, __m256 (&w)[8]) const {
        const __m256i nibble = _mm256_set1_epi8(15);
        const __m256i part[2] = {_mm256_and_si256(codes, nibble),
                                 _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble)};
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
            const __m256i low = _mm256_shuffle_epi8(low_, part[i]);
            const __m256i high = _mm256_shuffle_epi8(high_, part[i]);
            // Pairs 0 and 1 come from the low bytes of the halves, 2 and 3 from the high ones.
            const __m256i first = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi16(0xff)),
                                                  _mm256_slli_epi16(high, 8));
            const __m256i second = _mm256_or_si256(
                _mm256_srli_epi16(low, 8), _mm256_andnot_si256(_mm256_set1_epi16(0xff), high));
            w[2 * i] = even_of(first);
            w[2 * i + 1] = odd_of(first);
            w[2 * i + 4] = even_of(second);
            w[2 * i + 5] = odd_of(second);
        }
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
    void decode(__m256i codes, __m256 (&w)[4]) const {
        const __m256i nibble = _mm256_set1_epi8(15);
        const __m256i last = _mm256_and_si256(codes, nibble);
        const __m256i first = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
        __m256i low = _mm256_shuffle_epi8(low_, last);
        __m256i high = _mm256_shuffle_epi8(high_, first);
        const __m256i normal = _mm256_cmpgt_epi8(_mm256_and_si256(codes, _mm256_set1_epi8(0x78)),
                                                 _mm256_setzero_si256());
        const __m256i subnormal = _mm256_or_si256(last, normal);  // else looks up zero
        low = _mm256_xor_si256(low, _mm256_shuffle_epi8(fix_low_, subnormal));
        high = _mm256_xor_si256(high, _mm256_shuffle_epi8(fix_high_, subnormal));
        const __m256i magnitude = _mm256_set1_epi8(0x7f);
        high =
            _mm256_or_si256(high, _mm256_cmpeq_epi8(_mm256_and_si256(codes, magnitude), magnitude));
        const __m256i pairs[2] = {_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)};
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
            w[2 * i] = even_of(pairs[i]);
            w[2 * i + 1] = odd_of(pairs[i]);
        }
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
    static constexpr std::int64_t kTileBytes = kBf16TileBytes;

    static const std::uint8_t* tile(const std::uint8_t* panel, std::int64_t t) {
        return panel + t * kBf16TileBytes;
    }
    static const std::uint8_t* line(const std::uint8_t* tile, int l, int b) {
        return tile + (kGroups * l + b) * kLineBytes;
    }
    static F16 scales(const std::uint8_t*, std::int64_t, int) { return all(1.0f); }
    void decode(__m256i codes, __m256 (&w)[2]) const {
        w[0] = even_of(codes);
        w[1] = odd_of(codes);
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
                        __m256 w[kInputs];
                        decoder.decode(load_half(line + half * 32), w);
#pragma GCC unroll 4
                        for (int r = 0; r < R; ++r) {
                            const float* in = x[r] + t * kTileInputs + l * kInputs;
                            __m256& s = half == 0 ? sum[r][g].a : sum[r][g].b;
#pragma GCC unroll 4
                            for (int k = 0; k < kInputs; k += 2) {
                                s = _mm256_fmadd_ps(_mm256_broadcast_ss(in + k + 1), w[k + 1], s);
                                s = _mm256_fmadd_ps(_mm256_broadcast_ss(in + k), w[k], s);
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
                    __m256 w[kInputs];
                    decoder.decode(load_half(line + half * 32), w);
#pragma GCC unroll 8
                    for (int k = 0; k < kInputs; ++k)
                        _mm256_store_ps(to + (l * kInputs + k) * kLanes + half * 8, w[k]);
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
