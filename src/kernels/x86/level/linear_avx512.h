// Panel products with VDPBF16PS, which is one step of N1: the odd element of a pair first, every
// step rounded to nearest even, denormals flushed.
//
// Three ways through a panel, all with the same bits. Few rows decode the codes in registers
// (`direct_*`), line by line. Many rows expand a block of tiles to bf16 once (`expand_*`) and run a
// 64-output × 6-row kernel over it (`dense`), which is also the direct way of bf16 weights.
#pragma once

#include "kernels/x86/level/prefetch.h"
#include "kernels/x86/level/vec.h"
#include "kernels/x86/linear_kernels.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

inline constexpr int kGroups = 4;      // row groups of a panel
inline constexpr int kFp4RowsMax = 5;  // of one direct pass
inline constexpr int kFp8RowsMax = 8;
inline constexpr int kDenseRows = 6;
inline constexpr std::int64_t kBlockTiles = 8;  // expanded at a time: 32 KiB
// Rows from which on the expanded block is worth it.
inline constexpr std::int64_t kFp4ExpandRows = kFoldRows, kFp8ExpandRows = 30;

inline __m512 dot(__m512 sum, __m512i w, __m512i x) {
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
}
inline __m512i load_line(const std::uint8_t* p) {
    return _mm512_load_si512(p);
}
inline __m512i broadcast_pair(const std::uint16_t* x) {
    std::int32_t pair;
    __builtin_memcpy(&pair, x, sizeof pair);
    return _mm512_set1_epi32(pair);
}
// Keeps the compiler from moving running sums into registers, of which there are none left: they
// would be spilled, and the group sums with them.
inline void memory_barrier() {
    asm volatile("" ::: "memory");
}

// ------------------------------------------------------------------------------------------ scales

// UE8M0 bytes of 16 rows as numbers; byte 0 gives +0, which is what the denormal 2^-127 counts as.
inline __m512 scales_of(__m128i bytes, bool has_nan) {
    const __m512i wide = _mm512_cvtepu8_epi32(bytes);
    __m512i bits = _mm512_slli_epi32(wide, 23);
    if (__builtin_expect(has_nan, 0)) {
        const __mmask16 nan = _mm512_cmpeq_epi32_mask(wide, _mm512_set1_epi32(255));
        bits = _mm512_mask_mov_epi32(bits, nan, _mm512_set1_epi32(0x7fc00000));
    }
    return _mm512_castsi512_ps(bits);
}
inline bool any_nan_scale(__m512i bytes) {
    return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(-1)) != 0;
}
// Scale bytes that may be multiplied into weights (linear_kernels.h, is_moderate).
inline constexpr std::uint8_t kFoldedScaleMin = 48, kFoldedScaleMax = 190;
inline bool any_extreme_scale(__m512i bytes) {
    const __m512i offset = _mm512_sub_epi8(bytes, _mm512_set1_epi8(kFoldedScaleMin));
    constexpr char kRange = static_cast<char>(kFoldedScaleMax - kFoldedScaleMin);
    return _mm512_cmpgt_epu8_mask(offset, _mm512_set1_epi8(kRange)) != 0;
}
inline float fp8_scale(std::uint8_t byte) {
    const std::uint32_t bits = byte == 255 ? 0x7fc00000u : static_cast<std::uint32_t>(byte) << 23;
    float scale;
    __builtin_memcpy(&scale, &bits, sizeof scale);
    return scale;
}
inline const std::uint8_t* fp8_tile(const std::uint8_t* panel, std::int64_t t) {
    return panel + t / kFp8TilesPerScales * kFp8ChunkBytes + kLineBytes +
           t % kFp8TilesPerScales * kFp8TileBytes;
}
inline const std::uint8_t* fp8_scales(const std::uint8_t* panel, std::int64_t t) {
    return panel + t / kFp8TilesPerScales * kFp8ChunkBytes + t % kFp8TilesPerScales * 2;
}

// --------------------------------------------------------------------------------------------- fp4

// bf16 images of the sixteen codes, twice: bit 4 of an index does not matter, so none is masked.
alignas(64) inline constexpr std::uint16_t kFp4Table[32] = {
    0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80,
    0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0, 0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040,
    0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};

// The four pair operands of a line.
inline void decode_fp4(__m512i line, __m512i table, __m512i (&w)[4]) {
    w[0] = _mm512_permutexvar_epi16(line, table);
    w[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(line, 4), table);
    w[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(line, 8), table);
    w[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(line, 12), table);
}

// One or two rows: everything in registers; the chains of successive tiles overlap.
template <int R>
inline void direct_fp4_few(const std::uint8_t* panel, std::int64_t tiles,
                           const std::uint16_t* const* x, Ahead ahead, float* sums) {
    const __m512i table = _mm512_load_si512(kFp4Table);
    __m512 acc[R][kGroups];
    for (auto& row : acc)
        for (auto& a : row)
            a = _mm512_setzero_ps();
    for (std::int64_t t = 0; t < tiles; ++t) {
        const std::uint8_t* tile = panel + t * kFp4TileBytes;
        const std::uint8_t* fetch = ahead.of(tile);
        __m512 sum[R][kGroups];
        for (auto& row : sum)
            for (auto& s : row)
                s = _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int l = 0; l < 4; ++l) {
            __m512i pairs[R][4];
#pragma GCC unroll 2
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
                for (int s = 0; s < 4; ++s)
                    pairs[r][s] = broadcast_pair(x[r] + t * kTileInputs + 8 * l + 2 * s);
#pragma GCC unroll 4
            for (int b = 0; b < kGroups; ++b) {
                __m512i w[4];
                decode_fp4(load_line(tile + (4 * l + b) * kLineBytes), table, w);
                prefetch(fetch + (4 * l + b) * kLineBytes);
#pragma GCC unroll 2
                for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
                    for (int s = 0; s < 4; ++s)
                        sum[r][b] = dot(sum[r][b], w[s], pairs[r][s]);
            }
        }
        prefetch(fetch + kFp4ScaleOffset);
        const bool nan = any_nan_scale(load_line(tile + kFp4ScaleOffset));
#pragma GCC unroll 4
        for (int b = 0; b < kGroups; ++b) {
            const auto* bytes = reinterpret_cast<const __m128i*>(tile + kFp4ScaleOffset) + b;
            const __m512 scale = scales_of(_mm_load_si128(bytes), nan);
#pragma GCC unroll 2
            for (int r = 0; r < R; ++r)
                acc[r][b] = _mm512_fmadd_ps(sum[r][b], scale, acc[r][b]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int b = 0; b < kGroups; ++b)
            _mm512_storeu_ps(sums + r * kPanelRows + b * kLanes, acc[r][b]);
}

// Three to five rows: running sums in memory, two lines decoded at a time so that a broadcast
// serves two of them.
template <int R>
inline void direct_fp4_some(const std::uint8_t* panel, std::int64_t tiles,
                            const std::uint16_t* const* x, Ahead ahead, float* sums) {
    const __m512i table = _mm512_load_si512(kFp4Table);
    for (int i = 0; i < R * kGroups; ++i)
        _mm512_storeu_ps(sums + i * kLanes, _mm512_setzero_ps());
    for (std::int64_t t = 0; t < tiles; ++t) {
        const std::uint8_t* tile = panel + t * kFp4TileBytes;
        const std::uint8_t* fetch = ahead.of(tile);
        __m512 sum[R][kGroups];
        for (auto& row : sum)
            for (auto& s : row)
                s = _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int l = 0; l < 4; ++l) {
#pragma GCC unroll 2
            for (int b = 0; b < kGroups; b += 2) {
                __m512i w[2][4];
                decode_fp4(load_line(tile + (4 * l + b) * kLineBytes), table, w[0]);
                prefetch(fetch + (4 * l + b) * kLineBytes);
                decode_fp4(load_line(tile + (4 * l + b + 1) * kLineBytes), table, w[1]);
                prefetch(fetch + (4 * l + b + 1) * kLineBytes);
#pragma GCC unroll 4
                for (int s = 0; s < 4; ++s)
#pragma GCC unroll 5
                    for (int r = 0; r < R; ++r) {
                        const __m512i pair = broadcast_pair(x[r] + t * kTileInputs + 8 * l + 2 * s);
                        sum[r][b] = dot(sum[r][b], w[0][s], pair);
                        sum[r][b + 1] = dot(sum[r][b + 1], w[1][s], pair);
                    }
            }
        }
        prefetch(fetch + kFp4ScaleOffset);
        const bool nan = any_nan_scale(load_line(tile + kFp4ScaleOffset));
        memory_barrier();
#pragma GCC unroll 4
        for (int b = 0; b < kGroups; ++b) {
            const auto* bytes = reinterpret_cast<const __m128i*>(tile + kFp4ScaleOffset) + b;
            const __m512 scale = scales_of(_mm_load_si128(bytes), nan);
#pragma GCC unroll 5
            for (int r = 0; r < R; ++r) {
                float* acc = sums + r * kPanelRows + b * kLanes;
                _mm512_storeu_ps(acc, _mm512_fmadd_ps(sum[r][b], scale, _mm512_loadu_ps(acc)));
            }
        }
        memory_barrier();
    }
}

// Tiles as bf16 tiles at `out`. Folded weights are multiplied by their scales; else the scales go
// to `scales`, 64 a tile.
template <bool kFolded>
inline void expand_fp4(const std::uint8_t* tile, std::int64_t tiles, std::uint8_t* out,
                       float* scales) {
    const __m512i table = _mm512_load_si512(kFp4Table);
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    for (std::int64_t t = 0; t < tiles; ++t, tile += kFp4TileBytes, out += kBf16TileBytes) {
        const auto* bytes = reinterpret_cast<const __m128i*>(tile + kFp4ScaleOffset);
        const bool nan = !kFolded && any_nan_scale(load_line(tile + kFp4ScaleOffset));
        __m512i exponents[kGroups];
#pragma GCC unroll 4
        for (int b = 0; b < kGroups; ++b) {
            if constexpr (kFolded) {  // of both halves of a lane
                const __m512i e = _mm512_sub_epi32(_mm512_cvtepu8_epi32(_mm_load_si128(bytes + b)),
                                                   _mm512_set1_epi32(127));
                exponents[b] = _mm512_mask_mov_epi16(_mm512_slli_epi32(e, 23), 0x55555555,
                                                     _mm512_slli_epi32(e, 7));
            } else {
                _mm512_storeu_ps(scales + t * kPanelRows + b * kLanes,
                                 scales_of(_mm_load_si128(bytes + b), nan));
            }
        }
        for (int l = 0; l < 4; ++l) {
#pragma GCC unroll 4
            for (int b = 0; b < kGroups; ++b) {
                __m512i w[4];
                decode_fp4(load_line(tile + (4 * l + b) * kLineBytes), table, w);
#pragma GCC unroll 4
                for (int s = 0; s < 4; ++s) {
                    if constexpr (kFolded) {
                        const __mmask32 not_zero = _mm512_test_epi16_mask(w[s], magnitude);
                        w[s] = _mm512_mask_add_epi16(w[s], not_zero, w[s], exponents[b]);
                    }
                    _mm512_store_si512(out + ((4 * l + s) * kGroups + b) * kLineBytes, w[s]);
                }
            }
        }
    }
}

// --------------------------------------------------------------------------------------------- fp8

// bf16 images of the non-negative E4M3 codes.
struct Fp8Words {
    alignas(64) std::uint16_t of[128];
};
inline constexpr Fp8Words kFp8Words = [] {
    Fp8Words words{};
    for (int code = 0; code < 128; ++code) {
        const int exponent = code >> 3, mantissa = code & 7;
        int bits = (exponent + 120) << 7 | mantissa << 4;
        if (exponent == 0) {  // mantissa · 2^-9, its highest bit becoming the hidden one
            const int top = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;
            bits = mantissa == 0 ? 0 : (118 + top) << 7 | ((mantissa << (7 - top)) & 0x7f);
        }
        words.of[code] = static_cast<std::uint16_t>(code == 127 ? 0x7fc0 : bits);
    }
    return words;
}();
inline constexpr std::uint32_t kFp8PlainFirst = 0xfffffffe;  // neither zero (code 0) ...
inline constexpr std::uint32_t kFp8PlainLast = 0x7fffffff;   // ... nor NaN (code 127)

struct ByteIndices {
    alignas(64) std::uint8_t of[64];
};
inline constexpr ByteIndices kEvenBytes = [] {
    ByteIndices even{};
    for (int i = 0; i < 64; ++i)
        even.of[i] = static_cast<std::uint8_t>(2 * i);
    return even;
}();

struct Fp8Tables {
    __m512i low[2], high[2];  // bytes of the words
};

// Lookup tables of the words, times 2^exponent.
inline Fp8Tables fp8_tables(int exponent) {
    const __m512i even = _mm512_load_si512(kEvenBytes.of);
    const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi8(1));
    const __m512i add = _mm512_set1_epi16(static_cast<short>(exponent * 128));
    __m512i words[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
        words[i] = _mm512_load_si512(kFp8Words.of + 32 * i);
    words[0] = _mm512_mask_add_epi16(words[0], kFp8PlainFirst, words[0], add);
    words[1] = _mm512_add_epi16(words[1], add);
    words[2] = _mm512_add_epi16(words[2], add);
    words[3] = _mm512_mask_add_epi16(words[3], kFp8PlainLast, words[3], add);
    Fp8Tables tables;
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        tables.low[i] = _mm512_permutex2var_epi8(words[2 * i], even, words[2 * i + 1]);
        tables.high[i] = _mm512_permutex2var_epi8(words[2 * i], odd, words[2 * i + 1]);
    }
    return tables;
}

// The two pair operands of a line. The lookups ignore the sign bit; it goes into the high byte.
inline void decode_fp8(__m512i line, const Fp8Tables& tables, __m512i (&w)[2]) {
    const __m512i low = _mm512_permutex2var_epi8(tables.low[0], line, tables.low[1]);
    const __m512i magnitude = _mm512_permutex2var_epi8(tables.high[0], line, tables.high[1]);
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, line, _mm512_set1_epi8(-128), kOrAnd);
    w[0] = _mm512_unpacklo_epi8(low, high);
    w[1] = _mm512_unpackhi_epi8(low, high);
}

// The 32 rows of half a tile for R inputs: sum[r][b].
template <int R>
inline void half_tile_fp8(const std::uint8_t* half, const std::uint8_t* fetch,
                          const Fp8Tables& tables, const std::uint16_t* const* x, std::int64_t k,
                          __m512 (&sum)[R][2]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int l = 0; l < 8; ++l) {
        __m512i w[2][2];
        decode_fp8(load_line(half + 2 * l * kLineBytes), tables, w[0]);
        prefetch(fetch + 2 * l * kLineBytes);
        decode_fp8(load_line(half + (2 * l + 1) * kLineBytes), tables, w[1]);
        prefetch(fetch + (2 * l + 1) * kLineBytes);
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s)
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const __m512i pair = broadcast_pair(x[r] + k + 4 * l + 2 * s);
                sum[r][0] = dot(sum[r][0], w[0][s], pair);
                sum[r][1] = dot(sum[r][1], w[1][s], pair);
            }
    }
}

template <int R>
inline void direct_fp8(const std::uint8_t* panel, std::int64_t tiles, const std::uint16_t* const* x,
                       Ahead ahead, float* sums) {
    const Fp8Tables tables = fp8_tables(0);
    for (int i = 0; i < R * kGroups; ++i)
        _mm512_storeu_ps(sums + i * kLanes, _mm512_setzero_ps());
    for (std::int64_t t = 0; t < tiles; ++t) {
        const std::uint8_t* tile = fp8_tile(panel, t);
        const std::uint8_t* scales = fp8_scales(panel, t);
        const std::uint8_t* fetch = ahead.of(tile);
        for (int h = 0; h < 2; ++h) {
            __m512 sum[R][2];
            half_tile_fp8<R>(tile + h * 1024, fetch + h * 1024, tables, x, t * kTileInputs, sum);
            const __m512 scale = _mm512_set1_ps(fp8_scale(scales[h]));
            memory_barrier();
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
                for (int b = 0; b < 2; ++b) {
                    float* acc = sums + r * kPanelRows + (2 * h + b) * kLanes;
                    _mm512_storeu_ps(acc, _mm512_fmadd_ps(sum[r][b], scale, _mm512_loadu_ps(acc)));
                }
            memory_barrier();
        }
    }
}

template <bool kFolded>
inline void expand_fp8(const std::uint8_t* panel, std::int64_t first, std::int64_t tiles,
                       std::uint8_t* out, float* scales) {
    Fp8Tables tables = fp8_tables(0);
    for (std::int64_t t = 0; t < tiles; ++t, out += kBf16TileBytes) {
        const std::uint8_t* tile = fp8_tile(panel, first + t);
        const std::uint8_t* bytes = fp8_scales(panel, first + t);
        for (int h = 0; h < 2; ++h) {
            if constexpr (kFolded) {
                tables = fp8_tables(bytes[h] - 127);
            } else {
                const __m512 scale = _mm512_set1_ps(fp8_scale(bytes[h]));
                _mm512_storeu_ps(scales + t * kPanelRows + 2 * h * kLanes, scale);
                _mm512_storeu_ps(scales + t * kPanelRows + (2 * h + 1) * kLanes, scale);
            }
#pragma GCC unroll 4
            for (int l = 0; l < 8; ++l)
#pragma GCC unroll 2
                for (int b = 0; b < 2; ++b) {
                    __m512i w[2];
                    decode_fp8(load_line(tile + (16 * h + 2 * l + b) * kLineBytes), tables, w);
                    std::uint8_t* line = out + (2 * l * kGroups + 2 * h + b) * kLineBytes;
                    _mm512_store_si512(line, w[0]);
                    _mm512_store_si512(line + kGroups * kLineBytes, w[1]);
                }
        }
    }
}

// ------------------------------------------------------------------------------------------- dense

// sums[r] += the product of bf16 tiles with R rows from input k on. With kScaled a group's sum is
// multiplied by its row's scale. `fetch` runs along `tile`; null fetches nothing.
template <int R, bool kScaled, bool kFetch>
inline void dense(const std::uint8_t* tile, std::int64_t tiles, const std::uint16_t* const* x,
                  std::int64_t k, const float* scales, Ahead ahead, float* sums) {
    for (std::int64_t t = 0; t < tiles; ++t, tile += kBf16TileBytes, k += kTileInputs) {
        const std::uint8_t* fetch = kFetch ? ahead.of(tile) : nullptr;
        __m512 sum[R][kGroups];
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
            for (int b = 0; b < kGroups; ++b)
                sum[r][b] = _mm512_setzero_ps();
#pragma GCC unroll 16
        for (int p = 0; p < 16; ++p) {
            __m512i w[kGroups];
#pragma GCC unroll 4
            for (int b = 0; b < kGroups; ++b) {
                w[b] = load_line(tile + (p * kGroups + b) * kLineBytes);
                if constexpr (kFetch) prefetch(fetch + (p * kGroups + b) * kLineBytes);
            }
#pragma GCC unroll 6
            for (int r = 0; r < R; ++r) {
                const __m512i pair = broadcast_pair(x[r] + k + 2 * p);
#pragma GCC unroll 4
                for (int b = 0; b < kGroups; ++b)
                    sum[r][b] = dot(sum[r][b], w[b], pair);
            }
        }
        memory_barrier();
#pragma GCC unroll 4
        for (int b = 0; b < kGroups; ++b) {
            __m512 scale = _mm512_setzero_ps();
            if constexpr (kScaled) scale = _mm512_loadu_ps(scales + t * kPanelRows + b * kLanes);
#pragma GCC unroll 6
            for (int r = 0; r < R; ++r) {
                float* acc = sums + r * kPanelRows + b * kLanes;
                const __m512 old = _mm512_loadu_ps(acc);
                _mm512_storeu_ps(acc, kScaled ? _mm512_fmadd_ps(sum[r][b], scale, old)
                                              : _mm512_add_ps(old, sum[r][b]));
            }
        }
        memory_barrier();
    }
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
