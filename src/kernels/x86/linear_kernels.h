// Packed panels and the kernels on them, one table a level. Plain structs and pointers only: level/
// includes this.
//
// A panel is 64 output rows. It is a sequence of tiles of 32 inputs, K ascending, nothing between
// them but the scales of fp8, every part a multiple of 64 bytes, so that a panel is one linear
// stream (cpu-kernels.md section 5). Row groups b = 0..3 are rows 16b..16b+15.
//
//   fp4   1088 bytes: 16 lines of codes, then 64 scale bytes in row order. Line 4l + b: in 32-bit
//         lane i, row 16b + i, inputs 8l..8l+7: the even ones in the nibbles of the low half,
//         lowest first, the odd ones in the high half.
//   fp8   2048 bytes: two halves of 32 rows, each under one scale. Line 16h + 2l + b of half h:
//         rows 32h + 16b + 4q + r, inputs 4l..4l+3: 128-bit lane q holds inputs 0, 1 of its four
//         rows, then inputs 2, 3. One line of scales goes before every 32 tiles: byte 2t + h.
//   bf16  4096 bytes: line 4p + b: in 32-bit lane i, row 16b + i, inputs 2p (low half) and 2p+1.
#pragma once

#include <cstdint>

namespace fathom::x86 {

enum class TileFormat : std::uint8_t { fp4, fp8, bf16 };

inline constexpr std::int64_t kPanelRows = 64;
inline constexpr std::int64_t kTileInputs = 32;
inline constexpr std::int64_t kLineBytes = 64;
inline constexpr std::int64_t kFp4TileBytes = 1088;
inline constexpr std::int64_t kFp4ScaleOffset = 1024;
inline constexpr std::int64_t kFp8TileBytes = 2048;
inline constexpr std::int64_t kFp8TilesPerScales = 32;
inline constexpr std::int64_t kFp8ChunkBytes = kLineBytes + kFp8TilesPerScales * kFp8TileBytes;
inline constexpr std::int64_t kBf16TileBytes = 4096;

// Rows that one call of LinearKernels::product takes at most.
inline constexpr std::int64_t kProductRowsMax = 240;
// From so many rows on, x_is_moderate may save time.
inline constexpr std::int64_t kFoldRows = 18;
// What it needs as scratch.
inline constexpr std::int64_t kProductScratchBytes = std::int64_t{512} << 10;

struct PanelProduct {
    TileFormat format = TileFormat::bf16;
    const std::uint8_t* panel = nullptr;
    std::int64_t tiles = 0;
    const std::uint16_t* const* x = nullptr;  // `rows` rows of tiles·32 bf16 numbers
    std::int64_t rows = 0;
    bool x_is_moderate = false;          // LinearKernels::is_moderate of every row
    const std::uint8_t* next = nullptr;  // the panel that the thread reads after this one, or null
    float* sums = nullptr;               // out [rows][64], N1
    void* scratch = nullptr;             // kProductScratchBytes, 64-byte aligned
};

// Where the outputs of a panel go: columns [first, first + count) of the panel to row i of y at
// column 0 of `y`.
struct PanelStore {
    const float* sums = nullptr;  // [rows][64]
    std::int64_t rows = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;
    void* y = nullptr;
    std::int64_t stride = 0;  // in elements
    bool bf16 = true;         // else fp32
};

struct SwigluArgs {
    const float* sums = nullptr;  // [rows][64]: 32 gate columns, then the 32 up columns beside them
    std::int64_t rows = 0;
    const float* weights = nullptr;  // [rows], or null for none
    float limit = 0;
    std::uint16_t* const* t = nullptr;  // row i's 32 columns begin at t[i] + column
    std::int64_t column = 0;
};

struct LinearKernels {
    void (*product)(const PanelProduct& args);
    // Every number is zero or within [2^-31, 2^40]: then weights under scales of 2^-79 to 2^63 may
    // be multiplied by their scale beforehand (N1a). In a product of such numbers with E4M3 codes
    // nothing is below 2^-47, so that no sum, scaled or not, is denormal or overflows.
    bool (*is_moderate)(const std::uint16_t* x, std::int64_t n);
    void (*store)(const PanelStore& args);
    // The inner vector of an expert (ops.h, gate_up), real mode.
    void (*swiglu_q8)(const SwigluArgs& args);
    // total[rows[i]·64 ..] += sums[i·64 ..] rounded to bf16.
    void (*add_rounded)(const float* sums, std::int64_t n, const std::int32_t* rows, float* total);
    // y = Σ_s parts[s] in order from +0, n bf16 columns.
    void (*sum_parts)(const std::uint16_t* const* parts, std::int64_t count, std::int64_t n,
                      std::uint16_t* y);
    // a = sqrt(softplus(a / temperature)), n numbers.
    void (*router_scores)(float* a, std::int64_t n, float temperature);
};

namespace avx2 {
const LinearKernels& linear_kernels();
}
namespace avx512 {
const LinearKernels& linear_kernels();
}

}  // namespace fathom::x86
