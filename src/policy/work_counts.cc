#include "policy/work_counts.h"

#include <algorithm>

namespace fathom {

namespace {

struct Range {
    std::int64_t begin = 0, end = 0;  // positions
    std::int64_t rows() const { return end - begin; }
};

std::int64_t window_pairs(const ModelShape& shape, Range range, std::int64_t floor) {
    const auto before = [&](std::int64_t position) {
        return pairs_capped(std::max<std::int64_t>(0, position - floor), 1, shape.window);
    };
    return before(range.end) - before(range.begin);
}

// Entries that are scored: all visible ones, or whole candidate blocks; none for a query that may
// attend to everything it sees.
std::int64_t index_pairs(const ModelShape& shape, const LayerKind& kind, Range range) {
    const std::int64_t r = kind.ratio;
    const std::int64_t all_selected_end = r * (shape.index_topk + 1) - 1;
    const Range scored{std::max(range.begin, all_selected_end),
                       std::max(range.end, all_selected_end)};
    const auto before = [&](std::int64_t n) {
        if (!kind.uses_candidates) return pairs_uncapped(n, r);
        const std::int64_t block = shape.candidate_block_size;
        return block * pairs_capped(n + r * (block - 1), r * block, shape.candidate_blocks);
    };
    return before(scored.end) - before(scored.begin);
}

void add_pairs(const ModelShape& shape, const LayerKind& kind, Range range, std::int64_t floor,
               WorkCounts& counts) {
    if (range.rows() <= 0) return;
    std::int64_t attention = window_pairs(shape, range, floor);
    if (kind.ratio > 0)
        attention += pairs_capped(range.end, kind.ratio, shape.index_topk) -
                     pairs_capped(range.begin, kind.ratio, shape.index_topk);
    counts.attention_pairs += kind.layers * attention;
    if (kind.runs_indexer) counts.index_pairs += kind.layers * index_pairs(shape, kind, range);
}

// Multiply-adds a row of one layer, its owner part aside.
double layer_row(const ModelShape& s, const LayerKind& kind) {
    const auto h = static_cast<double>(s.hidden), c = static_cast<double>(s.streams);
    const auto q_rank = static_cast<double>(s.q_lora_rank);
    const auto heads_dim = static_cast<double>(s.heads * s.head_dim);
    const auto o_rank = static_cast<double>(s.o_lora_rank);
    double sum = 2 * (c * h * c * (c + 2) + c * h + c * (c + 1) * h);  // two sublayers
    sum += h * (q_rank + static_cast<double>(s.head_dim)) + q_rank * heads_dim;
    sum += heads_dim * o_rank + static_cast<double>(s.o_groups) * o_rank * h;
    if (kind.runs_indexer)
        sum += q_rank * static_cast<double>(s.index_heads * s.index_dim) +
               h * static_cast<double>(s.index_heads);
    sum += h * static_cast<double>(s.experts);
    sum += 3 * h * static_cast<double>(s.expert_inter) *
           static_cast<double>(s.experts_per_token + s.shared_experts);
    if (kind.engram) sum += static_cast<double>(s.engram_columns) * h * (c + 1) + c * h;
    return sum;
}

double owner_row(const ModelShape& s, const LayerKind& kind) {
    double sum = 0;
    const auto ratio = static_cast<double>(std::max<std::int64_t>(kind.ratio, 1));
    if (kind.owns_kv)  // ratio 2 has a gate beside the values
        sum += static_cast<double>(s.hidden * s.head_dim) * (kind.ratio > 1 ? 2 : 1);
    if (kind.owns_index_k) sum += static_cast<double>(s.head_dim * s.index_dim) / ratio;
    return sum;
}

}  // namespace

std::int64_t pairs_uncapped(std::int64_t n, std::int64_t ratio) {
    const std::int64_t b = n / ratio;
    return b * (n + 1) - ratio * (b * (b + 1) / 2);
}

std::int64_t pairs_capped(std::int64_t n, std::int64_t ratio, std::int64_t cap) {
    const std::int64_t full = ratio * cap;
    return pairs_uncapped(std::min(n, full), ratio) + std::max<std::int64_t>(n - full, 0) * cap;
}

WorkCounts count_work(const ModelShape& shape, const Slice& slice) {
    WorkCounts counts;
    counts.rows = slice.rows;
    counts.decoder_rows = slice.decoder_rows;
    counts.logits_rows = slice.logits_rows;
    const std::int64_t end = slice.context + slice.rows;
    const Range all{slice.context, end}, tail{end - slice.decoder_rows, end};
    for (const LayerKind& kind : shape.encoder)
        add_pairs(shape, kind, all, slice.encoder_floor, counts);
    if (shape.boundary.layers > 0)
        add_pairs(shape, shape.boundary, tail, slice.decoder_floor, counts);
    for (const LayerKind& kind : shape.decoder)
        add_pairs(shape, kind, tail, slice.decoder_floor, counts);
    return counts;
}

UnitFlops unit_flops(const ModelShape& shape) {
    double encoder = 0, decoder = 0;
    const auto whole_row = [&](const LayerKind& kind) {
        return static_cast<double>(kind.layers) * (layer_row(shape, kind) + owner_row(shape, kind));
    };
    for (const LayerKind& kind : shape.encoder)
        encoder += whole_row(kind);
    if (shape.boundary.layers > 0) {
        encoder += owner_row(shape, shape.boundary);
        decoder += layer_row(shape, shape.boundary);
    }
    for (const LayerKind& kind : shape.decoder)
        decoder += whole_row(kind);
    UnitFlops flops;
    flops.row = 2 * encoder;
    flops.decoder_row = 2 * decoder;
    flops.logits_row = 2 * static_cast<double>(shape.hidden * shape.vocab);
    flops.attention_pair = 2 * static_cast<double>(2 * shape.heads * shape.head_dim);
    flops.index_pair = 2 * static_cast<double>(shape.index_heads * shape.index_dim);
    return flops;
}

double useful_flops(const ModelShape& shape, const Slice& slice) {
    const WorkCounts counts = count_work(shape, slice);
    const UnitFlops unit = unit_flops(shape);
    return static_cast<double>(counts.rows) * unit.row +
           static_cast<double>(counts.decoder_rows) * unit.decoder_row +
           static_cast<double>(counts.logits_rows) * unit.logits_row +
           static_cast<double>(counts.attention_pairs) * unit.attention_pair +
           static_cast<double>(counts.index_pairs) * unit.index_pair;
}

}  // namespace fathom
