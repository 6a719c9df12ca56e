#include "kernels/functions.h"
#include "kernels/reference/backend.h"
#include "kernels/reference/lanes.h"
#include "kernels/reference/support.h"

namespace fathom::reference {

namespace {

void read_table_row(const EngramTable& table, std::int64_t id, float* out) {
    if (table.format == WeightFormat::bf16) {
        const auto* row = static_cast<const Bf16*>(table.codes) + id * table.dim;
        for (std::int64_t k = 0; k < table.dim; ++k)
            out[k] = bf16_to_float(row[k]);
        return;
    }
    const auto dim = static_cast<std::size_t>(table.dim);
    const std::int64_t groups = table.dim / kQ8Group;
    const auto* codes = static_cast<const std::uint8_t*>(table.codes) + id * table.dim;
    dequantise_q8({codes, dim}, {table.scales + id * groups, dim / kQ8Group}, {out, dim});
}

// model.md 3.11; `weight` is qw·kw, exact in fp32.
float gate_of(const float* x, const float* key, const float* weight, std::int64_t dim, float eps) {
    const float dot = reduce_row(
        dim, [&](std::int64_t k, float lane) { return std::fma(x[k] * weight[k], key[k], lane); });
    const auto width = static_cast<float>(dim);
    const float rx = functions::rsqrt(sum_of_squares(x, dim) / width + eps);
    const float rk = functions::rsqrt(sum_of_squares(key, dim) / width + eps);
    const float d = dot * rx * rk * functions::rsqrt(width);
    const float size = std::fabs(d);
    const float root = std::sqrt(size > 1e-6f ? size : 1e-6f);
    return functions::sigmoid(d < 0 ? -root : root);
}

}  // namespace

void ReferenceBackend::engram_lookup(const EngramTable& table, std::span<const std::int64_t> ids,
                                     std::int64_t ids_per_row, Rows y) {
    FATHOM_CHECK(y.cols == ids_per_row * table.dim);
    FATHOM_CHECK(static_cast<std::int64_t>(ids.size()) == y.rows * ids_per_row);
    FATHOM_CHECK(table.format == WeightFormat::bf16 ||
                 (table.format == WeightFormat::fp8_block32 && table.dim % kQ8Group == 0));
    for_ranges(pool(), y.rows, 4 * y.cols, [&](std::int64_t begin, std::int64_t end) {
        struct Values;
        float* v = scratch<Values>(table.dim);
        for (std::int64_t i = begin; i < end; ++i) {
            for (std::int64_t c = 0; c < ids_per_row; ++c) {
                const std::int64_t id = ids[i * ids_per_row + c];
                FATHOM_CHECK(id >= 0 && id < table.rows);
                read_table_row(table, id, v);
                write_row(y, i, c * table.dim, table.dim, v);
            }
        }
    });
}

void ReferenceBackend::engram_gate(const EngramGateArgs& args) {
    const std::int64_t h = args.streams;
    const std::int64_t dim = args.x.cols;
    const std::int64_t n = args.kv.rows;
    FATHOM_CHECK(args.x.rows == n * h && args.kv.cols == (h + 1) * dim);
    FATHOM_CHECK(args.in_image.empty() || static_cast<std::int64_t>(args.in_image.size()) == n);
    FATHOM_CHECK(args.gates.empty() || static_cast<std::int64_t>(args.gates.size()) == n * h);
    for_ranges(pool(), n, 6 * h * dim, [&](std::int64_t begin, std::int64_t end) {
        struct Kv;
        struct Stream;
        struct Weight;
        float* kv = scratch<Kv>(args.kv.cols);
        float* x = scratch<Stream>(dim);
        float* weight = scratch<Weight>(h * dim);
        for (std::int64_t k = 0; k < h * dim; ++k) {
            weight[k] = bf16_to_float(args.q_weight[k]) * bf16_to_float(args.k_weight[k]);
        }
        for (std::int64_t t = begin; t < end; ++t) {
            const bool skip = !args.in_image.empty() && args.in_image[t] != 0;
            if (!skip) read_row(args.kv, t, kv);
            for (std::int64_t i = 0; i < h; ++i) {
                float gate = 0;
                if (!skip) {
                    read_row(args.x, t * h + i, x);
                    gate = gate_of(x, kv + i * dim, weight + i * dim, dim, args.eps);
                    const float* value = kv + h * dim;
                    for (std::int64_t k = 0; k < dim; ++k)
                        x[k] = std::fma(gate, value[k], x[k]);
                    write_row(args.x, t * h + i, x);
                }
                if (!args.gates.empty()) args.gates[t * h + i] = gate;
            }
        }
    });
}

}  // namespace fathom::reference
