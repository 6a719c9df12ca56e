// model.md 3.6: what a KV source stores for good. Ratio 1 makes one latent a token, ratio 2 one a
// pair of tokens (2j, 2j + 1), whichever chunks they arrive in; from the latent come the index key
// and the main KV entry, both rotated at the position of the group's first token.
#include <cstring>

#include "base/check.h"
#include "model/backbone.h"

namespace fathom {

void Backbone::compress(int layer, ConstRows x) {
    group_numbers_.clear();
    group_index_dst_.clear();
    group_main_dst_.clear();
    const std::int64_t count = role(layer).ratio == 2 ? pool_pairs(layer, x) : batch_.rows;
    if (role(layer).ratio == 1) single_latents(layer, x);
    if (count > 0) store_owner_rows(layer, count);
}

int Backbone::pending_number(int layer) const {
    int number = 0;
    for (const KvLayout::Owner& owner : layout_.owners) {
        if (owner.layer == layer) return number;
        if (owner.ratio == 2) ++number;
    }
    FATHOM_CHECK(false, "not a KV owner");
    return -1;
}

namespace {

void copy_row(Rows to, std::int64_t row, const float* from) {
    std::memcpy(static_cast<float*>(to.data) + row * to.stride, from,
                static_cast<std::size_t>(to.cols) * sizeof(float));
}

const float* row_of(Rows x, std::int64_t row) {
    return static_cast<const float*>(x.data) + row * x.stride;
}

}  // namespace

// Fills pooled_ with the groups that close in this step and returns how many there are.
std::int64_t Backbone::pool_pairs(int layer, ConstRows x) {
    const LayerWeights& w = weights(layer);
    const KvLayout::Owner& owner = *layout_.owner(layer);
    const int pending = pending_number(layer);
    const Rows u = work_.u.view(batch_.rows);
    const Rows g = work_.g.view(batch_.rows);
    ops_.linear(x, *w.compressor.wkv, u);
    ops_.linear(x, *w.compressor.gate, g);

    const Rows u0 = work_.u0.view(batch_.rows);
    const Rows g0 = work_.g0.view(batch_.rows);
    const Rows u1 = work_.u1.view(batch_.rows);
    const Rows g1 = work_.g1.view(batch_.rows);
    std::int64_t count = 0;
    for (const BatchSpan& span : batch_.spans) {
        const SequenceState& sequence = *span.sequence;
        const PagedRows index_rows = layout_.index_rows(owner, sequence.pages);
        const PagedRows main_rows = layout_.main_rows(owner, sequence.pages);
        for (std::int64_t i = 0; i < span.count; ++i) {
            const std::int64_t position = span.start + i;
            const std::int64_t row = span.first_row + i;
            if (position % 2 == 0) continue;
            const bool first_is_new = i > 0;
            copy_row(u0, count,
                     first_is_new ? row_of(u, row - 1) : sequence.pending_u(pending, position - 1));
            copy_row(g0, count,
                     first_is_new ? row_of(g, row - 1) : sequence.pending_g(pending, position - 1));
            copy_row(u1, count, row_of(u, row));
            copy_row(g1, count, row_of(g, row));
            const std::int64_t group = position / 2;
            const bool masked = position < sequence.store_floor;
            group_numbers_.push_back(group);
            group_index_dst_.push_back(masked ? KvRow{} : index_rows.row(group));
            group_main_dst_.push_back(masked ? KvRow{} : main_rows.row(group));
            ++count;
        }
        // Only after the groups were pooled: a long span overwrites the slot of its open group.
        for (std::int64_t i = std::max<std::int64_t>(0, span.count - kPendingRows); i < span.count;
             ++i) {
            const auto bytes = static_cast<std::size_t>(config_.head_dim) * sizeof(float);
            std::memcpy(sequence.pending_u(pending, span.start + i), row_of(u, span.first_row + i),
                        bytes);
            std::memcpy(sequence.pending_g(pending, span.start + i), row_of(g, span.first_row + i),
                        bytes);
        }
    }
    if (count > 0)
        ops_.compress_pair(work_.u0.view(count), work_.g0.view(count), work_.u1.view(count),
                           work_.g1.view(count), work_.pooled.view(count));
    return count;
}

void Backbone::single_latents(int layer, ConstRows x) {
    const KvLayout::Owner& owner = *layout_.owner(layer);
    ops_.linear(x, *weights(layer).compressor.wkv, work_.pooled.view(batch_.rows));
    for (const BatchSpan& span : batch_.spans) {
        const PagedRows index_rows = layout_.index_rows(owner, span.sequence->pages);
        const PagedRows main_rows = layout_.main_rows(owner, span.sequence->pages);
        for (std::int64_t i = 0; i < span.count; ++i) {
            const std::int64_t position = span.start + i;
            const bool masked = position < span.sequence->store_floor;
            group_numbers_.push_back(position);
            group_index_dst_.push_back(masked ? KvRow{} : index_rows.row(position));
            group_main_dst_.push_back(masked ? KvRow{} : main_rows.row(position));
        }
    }
}

// The index key first, from the latent before rotation; then the main KV entry (3.6).
void Backbone::store_owner_rows(int layer, std::int64_t count) {
    const LayerWeights& w = weights(layer);
    const KvLayout::Owner& owner = *layout_.owner(layer);
    group_positions_.clear();
    for (const std::int64_t group : group_numbers_)
        group_positions_.push_back(group * owner.ratio);
    const auto probe = [&](std::string_view name, Rows x) {
        if (probe_ != nullptr) probe_->rows(layer, name, x, 1, group_numbers_);
    };
    // Rows that this step stored; a replay's masked rows are another run's.
    const auto probe_stored = [&](std::string_view name, const std::vector<KvRow>& rows,
                                  KvFormat format, Rows x) {
        if (probe_ == nullptr) return;
        std::vector<ConstKvRow> stored;
        std::vector<std::int64_t> groups;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (rows[i].values == nullptr) continue;
            stored.push_back({rows[i].values, rows[i].scales});
            groups.push_back(group_numbers_[i]);
        }
        if (stored.empty()) return;
        x.rows = static_cast<std::int64_t>(stored.size());
        ops_.load_kv(format, stored, x);
        probe_->rows(layer, name, x, 1, groups);
    };

    const Rows latent = work_.latent.view(count);
    ops_.rms_norm(work_.pooled.view(count), w.compressor.norm.data(), config_.norm_eps, latent);
    probe("latent", latent);

    if (role(layer).owns_index_k) {
        const Rows product = work_.index_k_product.view(count);
        const Rows key = work_.index_k.view(count);
        ops_.linear(latent, *w.indexer.wk, product);
        ops_.rms_norm(product, w.indexer.k_norm.data(), config_.norm_eps, key);
        ops_.rope(key, 1, config_.index_dim, group_positions_, rope_table(layer), false);
        probe("index_k_prequant", key);
        ops_.store_kv(key, KvKind::index, layout_.index_format, group_index_dst_);
        probe_stored("index_k", group_index_dst_, layout_.index_format, key);
    }

    const Rows rotated = work_.latent_rotated.view(count);
    std::memcpy(rotated.data, latent.data,
                static_cast<std::size_t>(count * latent.stride * dtype_bytes(latent.dtype)));
    ops_.rope(rotated, 1, config_.head_dim, group_positions_, rope_table(layer), false);
    probe("main_kv_prequant", rotated);
    const KvKind kind = config_.fp4_main_kv ? KvKind::main : KvKind::window;
    ops_.store_kv(rotated, kind, layout_.main_format, group_main_dst_);
    probe_stored("main_kv", group_main_dst_, layout_.main_format, rotated);
}

}  // namespace fathom
