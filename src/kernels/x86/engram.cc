#include "kernels/x86/backend.h"
#include "kernels/x86/stored_rows.h"
#include "kernels/x86/support.h"

namespace fathom::x86 {

void X86Backend::engram_lookup(const EngramTable& table, std::span<const std::int64_t> ids,
                               std::int64_t ids_per_row, Rows y) {
    if (y.dtype == DType::f32) return oracle_->engram_lookup(table, ids, ids_per_row, y);
    const bool packed = table.format == WeightFormat::fp8_block32;
    FATHOM_CHECK(y.cols == ids_per_row * table.dim);
    FATHOM_CHECK(static_cast<std::int64_t>(ids.size()) == y.rows * ids_per_row);
    FATHOM_CHECK(table.format == WeightFormat::bf16 || (packed && table.dim % kQ8Group == 0));
    const KvFormat format = packed ? KvFormat::window_fp8 : KvFormat::bf16;
    const std::int64_t value_bytes = kv_value_bytes(format, table.dim);
    const std::int64_t scale_bytes = kv_scale_bytes(format, table.dim);
    const auto row = [&](std::int64_t id) -> ConstKvRow {
        return {static_cast<const std::uint8_t*>(table.codes) + id * value_bytes,
                packed ? table.scales + id * scale_bytes : nullptr};
    };
    constexpr double kUsPerId = 0.1;     // mostly cache and TLB misses
    constexpr std::int64_t kAhead = 24;  // lookups whose lines are on their way
    for_rows(*pool_, y.rows, kUsPerId * static_cast<double>(ids_per_row),
             [&](std::int64_t begin, std::int64_t end) {
                 const std::int64_t first = begin * ids_per_row, last = end * ids_per_row;
                 const auto fetch = [&](std::int64_t k) {
                     FATHOM_CHECK(ids[k] >= 0 && ids[k] < table.rows);
                     const ConstKvRow r = row(ids[k]);
                     prefetch(r.values, value_bytes);
                     if (packed) prefetch(r.scales, scale_bytes);
                 };
                 for (std::int64_t k = first; k < std::min(last, first + kAhead); ++k)
                     fetch(k);
                 for (std::int64_t k = first; k < last; ++k) {
                     if (k + kAhead < last) fetch(k + kAhead);
                     load_row(format, table.dim, row(ids[k]),
                              bf16_row(y, k / ids_per_row) + k % ids_per_row * table.dim);
                 }
             });
}

void X86Backend::engram_gate(const EngramGateArgs& args) {
    if (args.x.dtype == DType::f32 || args.kv.dtype == DType::f32)
        return oracle_->engram_gate(args);
    const std::int64_t h = args.streams, dim = args.x.cols, n = args.kv.rows;
    FATHOM_CHECK(args.x.rows == n * h && args.kv.cols == (h + 1) * dim);
    FATHOM_CHECK(args.in_image.empty() || static_cast<std::int64_t>(args.in_image.size()) == n);
    FATHOM_CHECK(args.gates.empty() || static_cast<std::int64_t>(args.gates.size()) == n * h);
    constexpr double kUsPerElement = 3e-4;
    for_rows(*pool_, n * h, static_cast<double>(dim) * kUsPerElement,
             [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                     const std::int64_t t = row / h, i = row % h;
                     const bool skip = !args.in_image.empty() && args.in_image[t] != 0;
                     const std::uint16_t* kv = bf16_row(args.kv, t);
                     const float gate =
                         skip ? 0.0f
                              : rows_.engram_gate(bf16_row(args.x, row), kv + i * dim, kv + h * dim,
                                                  bits(args.q_weight) + i * dim,
                                                  bits(args.k_weight) + i * dim, dim, args.eps);
                     if (!args.gates.empty()) args.gates[row] = gate;
                 }
             });
}

}  // namespace fathom::x86
