// model.md 3.5, 3.8 and 3.9: projections, window rows, the list of keys of each query, output
// projection.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/backbone.h"

namespace fathom {

void Backbone::attention(int layer) {
    const LayerWeights& w = weights(layer);
    const std::int64_t n = batch_.rows;
    const Rows x = work_.x_in.view(n);
    const ConstRows x_q8 = quantised(x, work_.x_q8);

    const Rows q_a = work_.q_a.view(n);
    ops_.linear(x_q8, *w.wq_a, q_a);
    const Rows q_latent = work_.q_latent.view(n);
    ops_.rms_norm(q_a, w.q_norm.data(), config_.norm_eps, q_latent);
    probe_rows(layer, "q_latent", q_latent);
    const ConstRows q_latent_q8 = quantised(q_latent, work_.q_latent_q8);
    const Rows q = work_.q.view(n);
    ops_.linear(q_latent_q8, *w.wq_b, q);
    ops_.rope(q, config_.heads, config_.head_dim, batch_.positions, rope_table(layer), false);
    probe_rows(layer, "q", q);

    window_rows(layer, x_q8);
    if (role(layer).runs_indexer) select(layer, x, q_latent_q8);
    attention_lists(layer);
    const Rows o = work_.o.view(n);
    ops_.sparse_attention(
        {.q = q,
         .heads = config_.heads,
         .head_dim = config_.head_dim,
         .sink = w.attn_sink,
         .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
         .lists = lists_,
         .o = o});
    if (layer < layout_.encoder_layers) save_snapshot_rows(layer);
    commit_window_rows(layer);
    probe_rows(layer, "attn_o_rotated", o);

    ops_.rope(o, config_.heads, config_.head_dim, batch_.positions, rope_table(layer), true);
    // In the reference form wo_a multiplies the bf16 rows as they are; WoA::fp8 quantises them
    // first.
    if (real() && options_.numerics.woa == WoA::fp8) ops_.q8_round_trip(o, o);
    const Rows z = work_.z.view(n);
    ops_.grouped_linear(o, *w.wo_a, config_.o_groups, z);
    const Rows y = work_.y.view(n);
    ops_.linear(quantised(z, work_.z_q8), *w.wo_b, y);
    probe_rows(layer, "attn_out", y);
}

// Window rows of this step, in stored form: attention reads them from here, since a chunk may be
// longer than a ring.
void Backbone::window_rows(int layer, ConstRows x_q8) {
    const LayerWeights& w = weights(layer);
    const std::int64_t n = batch_.rows;
    const Rows kv = work_.kv.view(n);
    ops_.linear(x_q8, *w.wkv, kv);
    ops_.rms_norm(kv, w.kv_norm.data(), config_.norm_eps, kv);
    ops_.rope(kv, 1, config_.head_dim, batch_.positions, rope_table(layer), false);
    probe_rows(layer, "window_kv_prequant", kv);

    const KvFormat format = layout_.window_format;
    const std::int64_t value_bytes = kv_value_bytes(format, config_.head_dim);
    const std::int64_t scale_bytes = kv_scale_bytes(format, config_.head_dim);
    // Values of all rows, then scales of all rows.
    auto* stored_rows = static_cast<std::uint8_t*>(work_.window_rows.view(n).data);
    window_dst_.resize(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
        window_dst_[static_cast<std::size_t>(i)] = {
            stored_rows + i * value_bytes,
            scale_bytes == 0 ? nullptr
                             : stored_rows + options_.rows_max * value_bytes + i * scale_bytes};
    ops_.store_kv(kv, KvKind::window, format, window_dst_);
    if (probe_ == nullptr) return;
    std::vector<ConstKvRow> stored;
    for (const KvRow& row : window_dst_)
        stored.push_back({row.values, row.scales});
    ops_.load_kv(format, stored, kv);
    probe_rows(layer, "window_kv", kv);
}

// The keys of each query: window rows oldest to newest, from the ring for positions before this
// step and from this step's rows after, then the selected compressed rows.
void Backbone::attention_lists(int layer) {
    lists_.resize(static_cast<std::size_t>(batch_.rows));
    window_list_.resize(static_cast<std::size_t>(batch_.rows * config_.window));
    constexpr std::int64_t kRowsPerPiece = 64;
    const auto rows = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
            attention_list(layer, row);
    };
    if (batch_.rows <= kRowsPerPiece)
        rows(0, batch_.rows);
    else
        ops_.pool().run_ranges(batch_.rows, kRowsPerPiece, rows);
}

void Backbone::attention_list(int layer, std::int64_t row) {
    const LayerRole& r = role(layer);
    const auto at = static_cast<std::size_t>(row);
    const BatchSpan& span = batch_.spans[static_cast<std::size_t>(batch_.span_of[at])];
    const SequenceState& sequence = *span.sequence;
    const std::int64_t position = batch_.positions[at];
    // Rows before the tail keep their natural window (masked prefill); tail rows see the tail.
    std::int64_t floor = sequence.encoder_floor;
    if (layer >= config_.boundary())
        floor = position >= sequence.decoder_floor ? sequence.decoder_floor : 0;
    const std::int64_t oldest = std::max(floor, position - (config_.window - 1));
    ConstKvRow* const begin = window_list_.data() + row * config_.window;
    ConstKvRow* next = begin;
    for (std::int64_t p = oldest; p <= position; ++p) {
        const KvRow stored = p < span.start
                                 ? sequence.ring_row(layer, p)
                                 : window_dst_[static_cast<std::size_t>(row - (position - p))];
        *next++ = {stored.values, stored.scales};
    }
    AttentionList& list = lists_[at];
    list = {.window = {begin, next},
            .window_format = layout_.window_format,
            .compressed = {},
            .selected = {}};
    if (r.ratio == 0) return;
    list.compressed = layout_.main_rows(*layout_.owner(r.kv_owner), sequence.pages);
    list.selected = selection_.row(row);
}

// While the rings still hold the rows before this step: each snapshot takes its window from there
// and from this step's rows.
void Backbone::save_snapshot_rows(int layer) {
    for (const BatchSpan& span : batch_.spans)
        for (WindowSnapshot& snapshot : span.snapshots)
            for (std::int64_t p = snapshot_begin(layout_, snapshot.position); p < snapshot.position;
                 ++p) {
                const KvRow row =
                    p < span.start
                        ? span.sequence->ring_row(layer, p)
                        : window_dst_[static_cast<std::size_t>(span.first_row + p - span.start)];
                save_window_row(layout_, {row.values, row.scales}, layer, p, snapshot);
            }
}

// Keeps what later steps can still see: the last ring_rows rows of each span.
void Backbone::commit_window_rows(int layer) {
    for (const BatchSpan& span : batch_.spans)
        for (std::int64_t i = std::max<std::int64_t>(0, span.count - layout_.ring_rows);
             i < span.count; ++i) {
            const KvRow from = window_dst_[static_cast<std::size_t>(span.first_row + i)];
            copy_window_row(layout_, {from.values, from.scales},
                            span.sequence->ring_row(layer, span.start + i));
        }
}

}  // namespace fathom
