// What the operators share: rows as floats, scratch memory, and spreading work over the pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>

#include "base/check.h"
#include "base/compute_pool.h"
#include "base/formats.h"
#include "kernels/ops.h"
#include "kernels/scratch.h"

namespace fathom::reference {

inline std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// ------------------------------------------------------------------------------------------- rows

inline const std::byte* row_bytes(const ConstRows& x, std::int64_t i) {
    return static_cast<const std::byte*>(x.data) + i * x.stride * dtype_bytes(x.dtype);
}

inline float round_to(DType dtype, float x) {
    return dtype == DType::bf16 ? round_to_bf16(x) : x;
}

// Columns [column, column + count) of row i as floats.
inline void read_row(const ConstRows& x, std::int64_t i, std::int64_t column, std::int64_t count,
                     float* out) {
    const std::byte* row = row_bytes(x, i) + column * dtype_bytes(x.dtype);
    if (x.dtype == DType::f32) {
        std::memcpy(out, row, static_cast<std::size_t>(count) * sizeof(float));
        return;
    }
    const auto* values = reinterpret_cast<const Bf16*>(row);
    for (std::int64_t k = 0; k < count; ++k)
        out[k] = bf16_to_float(values[k]);
}
inline void read_row(const ConstRows& x, std::int64_t i, float* out) {
    read_row(x, i, 0, x.cols, out);
}

// Writes floats to columns [column, column + count) of row i, rounded to the view's dtype.
inline void write_row(const Rows& y, std::int64_t i, std::int64_t column, std::int64_t count,
                      const float* values) {
    auto* row = static_cast<std::byte*>(y.data) + (i * y.stride + column) * dtype_bytes(y.dtype);
    if (y.dtype == DType::f32) {
        std::memcpy(row, values, static_cast<std::size_t>(count) * sizeof(float));
        return;
    }
    auto* out = reinterpret_cast<Bf16*>(row);
    for (std::int64_t k = 0; k < count; ++k)
        out[k] = bf16_from_float(values[k]);
}
inline void write_row(const Rows& y, std::int64_t i, const float* values) {
    write_row(y, i, 0, y.cols, values);
}

// ------------------------------------------------------------------------------------------ tasks

// Calls body(begin, end) on ranges that cover [0, n), on the pool's threads when the work is worth
// a hand-over, else on the caller. item_cost is a rough number of multiply-adds an item. Items must
// be independent: the split may not show in any result.
template <class Body>
void for_ranges(ComputePool& pool, std::int64_t n, std::int64_t item_cost, const Body& body) {
    constexpr std::int64_t kTaskCost = 1 << 16;
    constexpr std::int64_t kTasksPerThread = 4;  // evens out threads of unequal speed
    if (n <= 0) return;
    const std::int64_t worth = std::max<std::int64_t>(1, item_cost) * n / kTaskCost;
    const std::int64_t tasks = std::min({n, worth, kTasksPerThread * pool.threads()});
    if (tasks <= 1 || pool.threads() == 1) {
        const FlushDenormals flush;
        body(std::int64_t{0}, n);
        return;
    }
    const auto task = [&](std::int64_t t) { body(n * t / tasks, n * (t + 1) / tasks); };
    pool.run(tasks, std::cref(task));
}

}  // namespace fathom::reference
