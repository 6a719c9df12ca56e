// What the operators share: rows as floats, scratch memory, and spreading work over the pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>

#include "base/check.h"
#include "base/compute_pool.h"
#include "base/formats.h"
#include "kernels/ops.h"

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

// ---------------------------------------------------------------------------------------- scratch

// A growing aligned buffer. Its content does not survive growth.
class ScratchBuffer {
  public:
    void* get(std::size_t bytes) {
        if (bytes > bytes_) {
            bytes_ = std::max(bytes, bytes_ + bytes_ / 2);
            memory_.reset(static_cast<std::byte*>(::operator new[](bytes_, kAlignment)));
        }
        return memory_.get();
    }

  private:
    static constexpr std::align_val_t kAlignment{64};
    struct Free {
        void operator()(std::byte* p) const { ::operator delete[](p, kAlignment); }
    };
    std::unique_ptr<std::byte[], Free> memory_;
    std::size_t bytes_ = 0;
};

// Per-thread memory that outlives calls, so that operators do not allocate in steady state. Every
// use that may be alive at the same time as another has its own Tag: any local struct.
template <class Tag, class T = float>
T* scratch(std::int64_t count) {
    thread_local ScratchBuffer buffer;
    return static_cast<T*>(buffer.get(static_cast<std::size_t>(count) * sizeof(T)));
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
