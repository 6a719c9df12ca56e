// The matrices that one step of the backbone works in, described once: the memory plan asks for
// their bytes, the backbone allocates them. Sized for rows_max rows; a step uses the first n.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/ops.h"
#include "model/config.h"
#include "model/model.h"

namespace fathom {

// A reusable matrix buffer; view() gives its first n rows.
class Buffer {
  public:
    // Fixes the shape; the memory comes later.
    void shape(std::int64_t rows, std::int64_t cols, DType dtype) {
        rows_ = rows;
        cols_ = cols;
        dtype_ = dtype;
    }
    void place(std::byte* memory) { memory_ = memory; }
    // Whole cache lines.
    std::int64_t bytes() const { return (rows_ * cols_ * dtype_bytes(dtype_) + 63) / 64 * 64; }

    Rows view(std::int64_t rows) { return view(rows, cols_); }
    // The same memory with another row length (streams side by side or below each other).
    Rows view(std::int64_t rows, std::int64_t cols) {
        return {.data = memory_, .dtype = dtype_, .rows = rows, .cols = cols, .stride = cols};
    }

  private:
    std::byte* memory_ = nullptr;
    DType dtype_ = DType::bf16;
    std::int64_t rows_ = 0, cols_ = 0;
};

struct Workspace {
    Workspace(const ModelConfig& config, const ModelOptions& options);
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    void allocate();
    std::int64_t bytes() const;

    Buffer x_streams;      // X: [rows · streams, hidden]
    Buffer x_in, x_q8, y;  // sublayer input, its Q8 form, sublayer output
    Buffer q_a, q_latent, q_latent_q8, q, o, z, z_q8;  // attention
    Buffer kv;                                         // window rows before storing
    Buffer window_rows;                                // window rows of one layer in stored form
    Buffer u, g, u0, g0, u1, g1, pooled, latent, latent_rotated, index_k_product, index_k;
    Buffer index_q, index_w;
    Buffer engram_in, engram_q8, engram_kv;
    Buffer head_in, head_norm;

  private:
    std::vector<Buffer*> all_;
    std::shared_ptr<std::byte> memory_;  // of all, one behind the other
};

// Index scores that the backbone holds at a time: those of several rows, or of one row with the
// longest context.
inline constexpr std::int64_t kIndexScoresHeld = std::int64_t{4} << 20;

}  // namespace fathom
