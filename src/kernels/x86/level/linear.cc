#include "kernels/x86/level/formats.h"
#include "kernels/x86/level/functions.h"

#if defined(__AVX512BF16__)
#include "kernels/x86/level/linear_avx512.h"
#else
#include "kernels/x86/level/linear_avx2.h"
#endif

namespace fathom::x86::FATHOM_X86_LEVEL {

namespace {

// Calls f.operator()<R>(first row) over n rows in as few passes of at most kMax rows as there can
// be, of nearly equal height.
template <int kMax, class F>
inline void in_passes(std::int64_t n, const F& f) {
    std::int64_t first = 0;
    for (std::int64_t left = (n + kMax - 1) / kMax; left > 0; --left) {
        const std::int64_t rows = (n - first + left - 1) / left;
        const auto pass = [&]<int R>(const auto& self) {
            if (rows == R) {
                f.template operator()<R>(first, left == 1);
            } else if constexpr (R > 1) {
                self.template operator()<R - 1>(self);
            }
        };
        pass.template operator()<kMax>(pass);
        first += rows;
    }
}

std::int64_t panel_bytes(const PanelProduct& a) {
    switch (a.format) {
        case TileFormat::fp4:
            return a.tiles * kFp4TileBytes;
        case TileFormat::fp8:
            return a.tiles * kFp8TileBytes +
                   (a.tiles + kFp8TilesPerScales - 1) / kFp8TilesPerScales * kLineBytes;
        case TileFormat::bf16:
            return a.tiles * kBf16TileBytes;
    }
    return 0;
}

void clear(float* sums, std::int64_t rows) {
    for (std::int64_t i = 0; i < rows * kPanelRows; i += kLanes)
        store(sums + i, zero());
}

// The pass after this one reads the same panel, which is near by then.
const std::uint8_t* after_pass(const PanelProduct& a, bool last) {
    return last ? a.next : nullptr;
}

#if defined(__AVX512BF16__)

void direct_fp4(const PanelProduct& a) {
    in_passes<kFp4RowsMax>(a.rows, [&]<int R>(std::int64_t first, bool last) {
        const Ahead ahead(a.panel, panel_bytes(a), after_pass(a, last));
        float* sums = a.sums + first * kPanelRows;
        if constexpr (R <= 2) {
            direct_fp4_few<R>(a.panel, a.tiles, a.x + first, ahead, sums);
        } else {
            direct_fp4_some<R>(a.panel, a.tiles, a.x + first, ahead, sums);
        }
    });
}

void direct_fp8(const PanelProduct& a) {
    in_passes<kFp8RowsMax>(a.rows, [&]<int R>(std::int64_t first, bool last) {
        const Ahead ahead(a.panel, panel_bytes(a), after_pass(a, last));
        direct_fp8<R>(a.panel, a.tiles, a.x + first, ahead, a.sums + first * kPanelRows);
    });
}

// One block of tiles as bf16 tiles.
struct Block {
    const std::uint8_t* tiles = nullptr;
    bool folded = false;
};

bool may_fold(const PanelProduct& a, std::int64_t first, std::int64_t tiles) {
    if (!a.x_is_moderate) return false;
    if (a.format == TileFormat::fp4) {
        for (std::int64_t t = first; t < first + tiles; ++t) {
            const std::uint8_t* tile = a.panel + t * kFp4TileBytes;
            if (any_extreme_scale(load_line(tile + kFp4ScaleOffset))) return false;
        }
        return true;
    }
    for (std::int64_t t = first; t < first + tiles; ++t) {
        const std::uint8_t* bytes = fp8_scales(a.panel, t);
        for (int h = 0; h < 2; ++h)
            if (bytes[h] < kFoldedScaleMin || bytes[h] > kFoldedScaleMax) return false;
    }
    return true;
}

Block expand_block(const PanelProduct& a, std::int64_t first, std::int64_t tiles, std::uint8_t* out,
                   float* scales) {
    if (a.format == TileFormat::bf16) return {a.panel + first * kBf16TileBytes, true};
    const bool folded = may_fold(a, first, tiles);
    if (a.format == TileFormat::fp4) {
        const std::uint8_t* tile = a.panel + first * kFp4TileBytes;
        folded ? expand_fp4<true>(tile, tiles, out, scales)
               : expand_fp4<false>(tile, tiles, out, scales);
    } else {
        folded ? expand_fp8<true>(a.panel, first, tiles, out, scales)
               : expand_fp8<false>(a.panel, first, tiles, out, scales);
    }
    return {out, folded};
}

void blocked(const PanelProduct& a) {
    auto* const expanded = static_cast<std::uint8_t*>(a.scratch);
    auto* const scales = reinterpret_cast<float*>(expanded + kBlockTiles * kBf16TileBytes);
    const std::int64_t bytes = panel_bytes(a);
    const Ahead none(a.panel, bytes, nullptr);
    clear(a.sums, a.rows);
    const std::int64_t passes = (a.rows + kDenseRows - 1) / kDenseRows;
    for (std::int64_t first = 0; first < a.tiles; first += kBlockTiles) {
        const std::int64_t tiles = a.tiles - first < kBlockTiles ? a.tiles - first : kBlockTiles;
        const Block block = expand_block(a, first, tiles, expanded, scales);
        // While the rows are at work, the next block comes nearer, a slice each pass.
        const std::int64_t done = bytes * (first + tiles) / a.tiles;
        const bool end = first + tiles == a.tiles;
        const std::uint8_t* fetch = end ? a.next : a.panel + done;
        const std::int64_t lines = bytes * kBlockTiles / a.tiles / kLineBytes;
        const std::int64_t slice = fetch == nullptr ? 0 : (lines + passes - 1) / passes;
        in_passes<kDenseRows>(a.rows, [&]<int R>(std::int64_t row, bool) {
            for (std::int64_t i = 0; i < slice; ++i, fetch += kLineBytes)
                prefetch(fetch);
            float* sums = a.sums + row * kPanelRows;
            const std::int64_t k = first * kTileInputs;
            block.folded
                ? dense<R, false, false>(block.tiles, tiles, a.x + row, k, scales, none, sums)
                : dense<R, true, false>(block.tiles, tiles, a.x + row, k, scales, none, sums);
        });
    }
}

void product(const PanelProduct& a) {
    switch (a.format) {
        case TileFormat::fp4:
            return a.rows < kFp4ExpandRows ? direct_fp4(a) : blocked(a);
        case TileFormat::fp8:
            return a.rows < kFp8ExpandRows ? direct_fp8(a) : blocked(a);
        case TileFormat::bf16:
            break;
    }
    if (a.rows > kDenseRows) return blocked(a);
    clear(a.sums, a.rows);
    in_passes<kDenseRows>(a.rows, [&]<int R>(std::int64_t, bool) {
        const Ahead ahead(a.panel, panel_bytes(a), a.next);
        dense<R, false, true>(a.panel, a.tiles, a.x, 0, nullptr, ahead, a.sums);
    });
}

#else

constexpr std::int64_t kPartRows = 48;  // whose widened inputs of a block lie in scratch together

// Inputs [k, k + n) of the rows, widened; x[i] points to row i.
void widen_rows(const PanelProduct& a, std::int64_t first, std::int64_t rows, std::int64_t k,
                std::int64_t n, float* values, const float** x) {
    for (std::int64_t i = 0; i < rows; ++i) {
        widen(a.x[first + i] + k, n, values + i * n);
        x[i] = values + i * n;
    }
}

template <class Decoder>
void direct_rows(const Decoder& decoder, const PanelProduct& a) {
    auto* const values = static_cast<float*>(a.scratch);
    in_passes<kDirectRows>(a.rows, [&]<int R>(std::int64_t first, bool last) {
        const float* x[R];
        widen_rows(a, first, R, 0, a.tiles * kTileInputs, values, x);
        const Ahead ahead(a.panel, panel_bytes(a), after_pass(a, last));
        constexpr int kTogether = R == 1 ? Decoder::kTogether : R == 2 ? Decoder::kTogether / 2 : 1;
        direct<Decoder, R, kTogether>(decoder, a.panel, a.tiles, x, ahead,
                                      a.sums + first * kPanelRows);
    });
}

template <class Decoder>
void blocked(const Decoder& decoder, const PanelProduct& a) {
    auto* const weights = static_cast<float*>(a.scratch);
    float* const scales = weights + kBlockTiles * kTileFloats;
    float* const values = scales + kBlockTiles * kPanelRows;
    const float* x[kPartRows];
    clear(a.sums, a.rows);
    for (std::int64_t first = 0; first < a.tiles; first += kBlockTiles) {
        const std::int64_t tiles = a.tiles - first < kBlockTiles ? a.tiles - first : kBlockTiles;
        expand(decoder, a.panel, first, tiles, weights, scales);
        for (std::int64_t part = 0; part < a.rows; part += kPartRows) {
            const std::int64_t rows = a.rows - part < kPartRows ? a.rows - part : kPartRows;
            widen_rows(a, part, rows, first * kTileInputs, tiles * kTileInputs, values, x);
            for (int b = 0; b < kGroups; ++b) {
                in_passes<kDenseRows>(rows, [&]<int R>(std::int64_t row, bool) {
                    dense<R>(weights + b * kBlockTiles * kGroupTileFloats, tiles, x + row,
                             scales + b * kLanes, a.sums + (part + row) * kPanelRows + b * kLanes);
                });
            }
        }
    }
}

template <class Decoder>
void run(const PanelProduct& a) {
    const Decoder decoder;
    const bool fits = a.rows * a.tiles * kTileInputs * 4 <= kProductScratchBytes;
    a.rows <= kDirectRows&& fits ? direct_rows(decoder, a) : blocked(decoder, a);
}

void product(const PanelProduct& a) {
    switch (a.format) {
        case TileFormat::fp4:
            return run<Fp4Decoder>(a);
        case TileFormat::fp8:
            return run<Fp8Decoder>(a);
        case TileFormat::bf16:
            return run<Bf16Decoder>(a);
    }
}

#endif

// --------------------------------------------------------------------------------------- epilogues

bool is_moderate(const std::uint16_t* x, std::int64_t n) {
    constexpr std::uint16_t kLeast = (127 - 31) << 7, kMost = (127 + 40) << 7;
    // Doubled, the sign falls off; zeros wrap around to the top and are let through.
    std::uint16_t extreme = 0;
    for (std::int64_t k = 0; k < n; ++k) {
        const std::uint16_t magnitude = x[k] & 0x7fff;
        const bool fine = magnitude == 0 || (magnitude >= kLeast && magnitude <= kMost);
        extreme |= static_cast<std::uint16_t>(!fine);
    }
    return extreme == 0;
}

void store_sums(const PanelStore& a) {
    for (std::int64_t i = 0; i < a.rows; ++i) {
        const float* sums = a.sums + i * kPanelRows + a.first;
        if (!a.bf16) {
            float* y = static_cast<float*>(a.y) + i * a.stride;
            std::int64_t j = 0;
            for (; j + kLanes <= a.count; j += kLanes)
                store(y + j, load(sums + j));
            for (; j < a.count; ++j)
                y[j] = sums[j];
            continue;
        }
        std::uint16_t* y = static_cast<std::uint16_t*>(a.y) + i * a.stride;
        std::int64_t j = 0;
        for (; j + kLanes <= a.count; j += kLanes)
            store_bf16(y + j, load(sums + j));
        if (j == a.count) continue;
        float tail[kLanes] = {};
        std::uint16_t rounded[kLanes];
        for (std::int64_t k = j; k < a.count; ++k)
            tail[k - j] = sums[k];
        store_bf16(rounded, load(tail));
        for (; j < a.count; ++j)
            y[j] = rounded[j % kLanes];
    }
}

F16 round_to_bf16(F16 x) {
    return from_bits(shift_left<16>(bf16_bits(x)));
}

F16 inner_value(F16 gate, F16 up, const SwigluArgs& a, std::int64_t row) {
    F16 g = round_to_bf16(gate), u = round_to_bf16(up);
    if (a.limit > 0) {  // NaN stays
        const F16 high = all(a.limit), low = all(-a.limit);
        g = select(less(high, g), high, g);
        u = select(less(high, u), high, select(less(u, low), low, u));
    }
    F16 value = functions::silu(g) * u;
    if (a.weights != nullptr) value = value * all(a.weights[row]);
    return round_to_bf16(value);
}

void swiglu_q8(const SwigluArgs& a) {
    for (std::int64_t i = 0; i < a.rows; ++i) {
        const float* gate = a.sums + i * kPanelRows;
        const float* up = gate + kPanelRows / 2;
        const Pair16 q8 = q8_group({inner_value(load(gate), load(up), a, i),
                                    inner_value(load(gate + kLanes), load(up + kLanes), a, i)});
        store_bf16(a.t[i] + a.column, q8.a);
        store_bf16(a.t[i] + a.column + kLanes, q8.b);
    }
}

void add_rounded(const float* sums, std::int64_t n, const std::int32_t* rows, float* total) {
    for (std::int64_t i = 0; i < n; ++i) {
        float* to = total + rows[i] * kPanelRows;
        for (std::int64_t j = 0; j < kPanelRows; j += kLanes)
            store(to + j, load(to + j) + round_to_bf16(load(sums + i * kPanelRows + j)));
    }
}

void sum_parts(const std::uint16_t* const* parts, std::int64_t count, std::int64_t n,
               std::uint16_t* y) {
    std::int64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
        F16 sum = zero();
        for (std::int64_t s = 0; s < count; ++s)
            sum = sum + load_bf16(parts[s] + j);
        store_bf16(y + j, sum);
    }
    if (j == n) return;
    std::uint16_t in[kLanes] = {}, out[kLanes];
    F16 sum = zero();
    for (std::int64_t s = 0; s < count; ++s) {
        for (std::int64_t k = j; k < n; ++k)
            in[k - j] = parts[s][k];
        sum = sum + load_bf16(in);
    }
    store_bf16(out, sum);
    for (; j < n; ++j)
        y[j] = out[j % kLanes];
}

void router_scores(float* a, std::int64_t n, float temperature) {
    const auto score = [&](F16 x) { return sqrt(functions::softplus(x / all(temperature))); };
    std::int64_t j = 0;
    for (; j + kLanes <= n; j += kLanes)
        store(a + j, score(load(a + j)));
    if (j == n) return;
    float part[kLanes] = {};
    for (std::int64_t k = j; k < n; ++k)
        part[k - j] = a[k];
    store(part, score(load(part)));
    for (; j < n; ++j)
        a[j] = part[j % kLanes];
}

}  // namespace

const LinearKernels& linear_kernels() {
    static constexpr LinearKernels kKernels{.product = product,
                                            .is_moderate = is_moderate,
                                            .store = store_sums,
                                            .swiglu_q8 = swiglu_q8,
                                            .add_rounded = add_rounded,
                                            .sum_parts = sum_parts,
                                            .router_scores = router_scores};
    return kKernels;
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
