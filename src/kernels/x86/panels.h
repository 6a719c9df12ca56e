// Running panel products over the pool: what linears and experts share.
#pragma once

#include <atomic>

#include "kernels/reference/support.h"
#include "kernels/scratch.h"
#include "kernels/x86/packed.h"
#include "kernels/x86/support.h"

namespace fathom::x86 {

// A rough time of one panel of `rows` rows, in microseconds, to decide how finely to split.
inline double panel_us(const PanelLayout& layout, std::int64_t rows) {
    constexpr double kBytesPerUs = 3e4, kFlopsPerUs = 3e5;
    const double flops = 2.0 * static_cast<double>(rows * layout.tiles * kTileInputs * kPanelRows);
    return static_cast<double>(layout.panel_bytes) / kBytesPerUs + flops / kFlopsPerUs;
}

// Calls body(begin, end) on ranges of [0, n) in pieces worth a claim. They are long, since memory
// is best read in long stretches, but each thread has several: a piece is what a thread that is
// held up can delay the others by.
template <class Body>
void for_panels(ComputePool& pool, std::int64_t n, double item_us, const Body& body) {
    constexpr double kWorthUs = 5, kPieceUs = 15;
    constexpr std::int64_t kPiecesPerThread = 4;
    if (n <= 0) return;
    if (pool.threads() == 1 || n == 1 || static_cast<double>(n) * item_us < kWorthUs) {
        const FlushDenormals flush;
        body(std::int64_t{0}, n);
        return;
    }
    const std::int64_t share = n / (kPiecesPerThread * pool.threads());
    const auto grain = std::min<std::int64_t>(static_cast<std::int64_t>(kPieceUs / item_us), share);
    pool.run_ranges(n, std::max<std::int64_t>(grain, 1), std::cref(body));
}

// The calling thread's memory for LinearKernels::product.
inline void* product_scratch() {
    struct Product;
    return scratch<Product, std::byte>(kProductScratchBytes);
}
inline float* sums_scratch() {
    struct Sums;
    return scratch<Sums>(kProductRowsMax * kPanelRows);
}

// Segments of the rows of x, every one padded with zeros to whole tiles: entry g·rows + i is
// segment g of row i, w_in wide. The pointers hold until the calling thread's next call; x itself
// is used where its width is that of whole tiles.
inline const std::uint16_t* const* input_rows(const ConstRows& x, std::int64_t segments,
                                              std::int64_t w_in) {
    struct Pointers;
    struct Values;
    auto** rows = scratch<Pointers, const std::uint16_t*>(x.rows * segments);
    const std::int64_t padded = reference::round_up(w_in, kTileInputs);
    std::uint16_t* values =
        padded == w_in ? nullptr : scratch<Values, std::uint16_t>(x.rows * segments * padded);
    for (std::int64_t g = 0; g < segments; ++g) {
        for (std::int64_t i = 0; i < x.rows; ++i) {
            const std::uint16_t* row = bf16_row(x, i) + g * w_in;
            if (values != nullptr) {
                std::uint16_t* copy = values + (g * x.rows + i) * padded;
                std::copy_n(row, w_in, copy);
                std::fill(copy + w_in, copy + padded, std::uint16_t{0});
                row = copy;
            }
            rows[g * x.rows + i] = row;
        }
    }
    return rows;
}

// LinearKernels::is_moderate of all n rows of `width` numbers.
inline bool all_moderate(ComputePool& pool, const LinearKernels& kernels,
                         const std::uint16_t* const* rows, std::int64_t n, std::int64_t width) {
    std::atomic<bool> moderate{true};
    constexpr double kUsPerNumber = 5e-5;
    for_rows(pool, n, static_cast<double>(width) * kUsPerNumber,
             [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                     if (!kernels.is_moderate(rows[i], width))
                         moderate.store(false, std::memory_order_relaxed);
                 }
             });
    return moderate.load(std::memory_order_relaxed);
}

// Rows of one call of product when n rows are taken in as few calls as can be: nearly equal, in
// whole passes of six.
inline std::int64_t rows_per_product(std::int64_t n) {
    const std::int64_t calls = (n + kProductRowsMax - 1) / kProductRowsMax;
    return calls <= 1 ? n : reference::round_up((n + calls - 1) / calls, 6);
}

}  // namespace fathom::x86
