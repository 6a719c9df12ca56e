// Sparse attention of one level (ops.h). Plain structs and pointers only: level/ includes this.
#pragma once

#include <cstdint>

#include "kernels/x86/cache_kernels.h"

namespace fathom::x86 {

inline constexpr std::int64_t kAttentionHeadsMax = 64;  // of one task

struct AttentionRow {
    const std::uint8_t* values;
    const std::uint8_t* scales;
};

// Some heads of one query with its whole list.
struct AttentionTask {
    std::int64_t heads = 0, dim = 0;
    const std::uint16_t* q = nullptr;  // bf16 [heads, dim]
    const float* sink = nullptr;       // [heads]
    float scale = 0;
    const AttentionRow* rows = nullptr;  // window rows, then the selected ones
    std::int64_t count = 0, windows = 0;
    RowFormat window_format = RowFormat::fp8, compressed_format = RowFormat::main_fp4;
    std::int64_t window_bytes = 0, compressed_bytes = 0;              // values of a row
    std::int64_t window_scale_bytes = 0, compressed_scale_bytes = 0;  // scales of a row
    // For rows that the kernel's own decoder declines.
    void (*decode_exactly)(RowFormat format, const std::uint8_t* values, const std::uint8_t* scales,
                           std::int64_t n, std::uint16_t* y) = nullptr;
    void* memory = nullptr;      // memory_bytes(heads, dim), aligned to 64
    std::uint16_t* o = nullptr;  // out, bf16 [heads, dim]
};

struct AttentionKernels {
    std::int64_t (*memory_bytes)(std::int64_t heads, std::int64_t dim);
    void (*run)(const AttentionTask& task);
};

namespace avx2 {
const AttentionKernels& attention_kernels();
}
namespace avx512 {
const AttentionKernels& attention_kernels();
}

}  // namespace fathom::x86
