#include "model/workspace.h"

#include "base/check.h"
#include "base/huge_memory.h"
#include "model/kv_cache.h"

namespace fathom {

Workspace::Workspace(const ModelConfig& c, const ModelOptions& options) {
    const std::int64_t n = options.rows_max;
    const DType act = options.numerics.mode == NumericMode::fp32 ? DType::f32 : DType::bf16;
    const auto shape = [&](Buffer& buffer, std::int64_t rows, std::int64_t cols, DType dtype) {
        buffer.shape(rows, cols, dtype);
        all_.push_back(&buffer);
    };
    shape(x_streams, n * c.streams, c.hidden, act);
    for (Buffer* buffer : {&x_in, &x_q8, &y, &head_in, &head_norm})
        shape(*buffer, n, c.hidden, act);
    for (Buffer* buffer : {&q_a, &q_latent, &q_latent_q8})
        shape(*buffer, n, c.q_lora_rank, act);
    for (Buffer* buffer : {&q, &o})
        shape(*buffer, n, c.heads * c.head_dim, act);
    for (Buffer* buffer : {&z, &z_q8})
        shape(*buffer, n, c.o_groups * c.o_lora_rank, act);
    shape(kv, n, c.head_dim, act);
    for (Buffer* buffer : {&u, &g, &u0, &g0, &u1, &g1})
        shape(*buffer, n, c.head_dim, DType::f32);
    for (Buffer* buffer : {&pooled, &latent, &latent_rotated})
        shape(*buffer, n, c.head_dim, act);
    for (Buffer* buffer : {&index_k_product, &index_k})
        shape(*buffer, n, c.index_dim, act);
    shape(index_q, n, c.index_heads * c.index_dim, act);
    shape(index_w, n, c.index_heads, act);
    if (!c.engram_layers.empty()) {
        for (Buffer* buffer : {&engram_in, &engram_q8})
            shape(*buffer, n, c.engram_columns() * c.engram_head_dim, act);
        shape(engram_kv, n, (c.streams + 1) * c.hidden, act);
    }
    const KvFormat window = window_format(options.storage, options.numerics.mode);
    const std::int64_t row_bytes =
        kv_value_bytes(window, c.head_dim) + kv_scale_bytes(window, c.head_dim);
    shape(window_rows, n, (row_bytes + 3) / 4, DType::f32);
}

void Workspace::allocate() {
    memory_ = map_huge_memory(bytes());
    FATHOM_CHECK(memory_ != nullptr, "workspace: the memory plan allowed more than mmap grants");
    std::byte* place = memory_.get();
    for (Buffer* buffer : all_) {
        buffer->place(place);
        place += buffer->bytes();
    }
}

std::int64_t Workspace::bytes() const {
    std::int64_t bytes = 0;
    for (const Buffer* buffer : all_)
        bytes += buffer->bytes();
    return bytes;
}

}  // namespace fathom
