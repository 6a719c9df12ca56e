// model.md 3.7: which compressed entries a query attends to. An index source publishes, for each
// row, the index_topk best visible entries in ascending order; the candidate source also publishes
// its best blocks, to which later index sources restrict themselves.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "model/backbone.h"

namespace fathom {

std::int64_t Backbone::visible(int layer, std::int64_t row) const {
    return (batch_.positions[static_cast<std::size_t>(row)] + 1) / role(layer).ratio;
}

// The blocks that this layer may choose from; empty means all.
std::span<const std::int32_t> Backbone::candidate_blocks(int layer, std::int64_t row) const {
    if (!role(layer).uses_candidates) return {};
    const std::int64_t count = candidates_.counts[static_cast<std::size_t>(row)];
    if (count < 0) return {};
    return candidates_.row(row);
}

// With no more entries than the selection holds every visible one is chosen, whatever its score.
bool Backbone::needs_scores(int layer, std::int64_t row) const {
    if (probe_ != nullptr) return visible(layer, row) > 0;
    const std::int64_t entries = visible(layer, row);
    if (entries > config_.index_topk) return true;
    return role(layer).is_candidate_source &&
           entries > config_.candidate_blocks * config_.candidate_block_size;
}

void Backbone::select(int layer, ConstRows x, ConstRows q_latent_q8) {
    selection_.width = config_.index_topk;
    selection_.entries.assign(static_cast<std::size_t>(batch_.rows * selection_.width), -1);
    selection_.counts.assign(static_cast<std::size_t>(batch_.rows), 0);
    if (role(layer).is_candidate_source) {
        candidates_.width = config_.candidate_blocks;
        candidates_.entries.assign(static_cast<std::size_t>(batch_.rows * candidates_.width), -1);
        candidates_.counts.assign(static_cast<std::size_t>(batch_.rows), -1);
    }
    bool scoring = false;
    for (std::int64_t row = 0; row < batch_.rows; ++row)
        scoring |= needs_scores(layer, row);
    if (scoring) index_queries(layer, x, q_latent_q8);

    // Scores are held for a group of rows at a time, or for one row when its context is longer.
    std::int64_t first = 0;
    while (first < batch_.rows) {
        std::int64_t last = first;
        std::int64_t held = 0;
        while (last < batch_.rows) {
            const std::int64_t entries = needs_scores(layer, last) ? visible(layer, last) : 0;
            if (last > first && held + entries > kIndexScoresHeld) break;
            held += entries;
            ++last;
        }
        score_rows(layer, first, last);
        first = last;
    }
    if (probe_ == nullptr) return;
    if (role(layer).is_candidate_source)
        probe_->ints(layer, "candidates", candidates_.entries, candidates_.width, batch_.positions);
    probe_->ints(layer, "selected", selection_.entries, selection_.width, batch_.positions);
    const auto recount = [](Selection& selection) {  // the probe may have replaced lists
        for (std::size_t row = 0; row < selection.counts.size(); ++row) {
            if (selection.counts[row] < 0) continue;
            const auto begin =
                selection.entries.begin() + static_cast<std::int64_t>(row) * selection.width;
            selection.counts[row] = std::find(begin, begin + selection.width, -1) - begin;
        }
    };
    recount(selection_);
    if (role(layer).is_candidate_source) recount(candidates_);
}

void Backbone::index_queries(int layer, ConstRows x, ConstRows q_latent_q8) {
    const IndexerWeights& w = weights(layer).indexer;
    const Rows q = work_.index_q.view(batch_.rows);
    ops_.linear(q_latent_q8, *w.wq_b, q);
    ops_.rope(q, config_.index_heads, config_.index_dim, batch_.positions, rope_table(layer),
              false);
    if (real()) ops_.index_round_trip(q);
    probe_rows(layer, "index_q", q);
    const Rows head_weights = work_.index_w.view(batch_.rows);
    ops_.linear(x, *w.head_weights, head_weights);
    const float scale = static_cast<float>(
        1.0 / std::sqrt(static_cast<double>(config_.index_dim * config_.index_heads)));
    index_weights_.resize(static_cast<std::size_t>(batch_.rows * config_.index_heads));
    for (std::size_t i = 0; i < index_weights_.size(); ++i)
        index_weights_[i] =
            scale * (head_weights.dtype == DType::f32
                         ? static_cast<const float*>(head_weights.data)[i]
                         : bf16_to_float(static_cast<const Bf16*>(head_weights.data)[i]));
    probe_floats(layer, "index_w", index_weights_, config_.index_heads);
}

// Scores rows [first, last) that need it and publishes all of them.
void Backbone::score_rows(int layer, std::int64_t first, std::int64_t last) {
    const KvLayout::Owner& owner = *layout_.owner(role(layer).index_k_owner);
    std::vector<IndexScoreArgs::Query> queries;
    std::vector<std::size_t> lengths;
    std::size_t total = 0;
    for (std::int64_t row = first; row < last; ++row) {
        if (!needs_scores(layer, row)) {
            publish_row(layer, row, {});
            continue;
        }
        const SequenceState& sequence =
            *batch_.spans[static_cast<std::size_t>(batch_.span_of[static_cast<std::size_t>(row)])]
                 .sequence;
        const std::int64_t entries = visible(layer, row);
        const std::span<const std::int32_t> blocks = candidate_blocks(layer, row);
        std::int64_t length = entries;
        if (!blocks.empty()) {
            length = 0;
            for (const std::int32_t block : blocks)
                length += std::clamp<std::int64_t>(entries - block * config_.candidate_block_size,
                                                   0, config_.candidate_block_size);
        }
        queries.push_back({.row = row,
                           .keys = layout_.index_rows(owner, sequence.pages),
                           .visible = entries,
                           .blocks = blocks,
                           .block_size = config_.candidate_block_size,
                           .scores = {}});
        lengths.push_back(static_cast<std::size_t>(length));
        total += lengths.back();
    }
    if (queries.empty()) return;
    scores_.resize(std::max(scores_.size(), total));
    std::size_t at = 0;
    for (std::size_t i = 0; i < queries.size(); ++i) {
        queries[i].scores = std::span(scores_).subspan(at, lengths[i]);
        at += lengths[i];
    }
    ops_.index_scores({.q = work_.index_q.view(batch_.rows),
                       .w = ConstRows(index_weights_.data(), DType::f32, batch_.rows,
                                      config_.index_heads, config_.index_heads),
                       .heads = config_.index_heads,
                       .dim = config_.index_dim,
                       .queries = queries});
    for (const IndexScoreArgs::Query& query : queries)
        probe_scores(layer, query.row, query.scores);
    // Rows write lists of their own, and selecting is pure.
    ops_.pool().run(static_cast<std::int64_t>(queries.size()), [&](std::int64_t i) {
        const IndexScoreArgs::Query& query = queries[static_cast<std::size_t>(i)];
        publish_row(layer, query.row, query.scores);
    });
}

// Turns a row's scores (dense over its candidate blocks, or over all visible entries; empty when
// every entry is chosen) into its published lists.
void Backbone::publish_row(int layer, std::int64_t row, std::span<const float> scores) {
    const std::int64_t entries = visible(layer, row);
    std::span<std::int32_t> out = std::span(selection_.entries)
                                      .subspan(static_cast<std::size_t>(row * selection_.width),
                                               static_cast<std::size_t>(selection_.width));
    std::int64_t& count = selection_.counts[static_cast<std::size_t>(row)];
    if (scores.empty()) {
        count = std::min(entries, config_.index_topk);
        FATHOM_CHECK(count == entries);
        for (std::int64_t i = 0; i < count; ++i)
            out[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
        return;
    }
    count = ops_.select_top(scores, config_.index_topk, out);
    const std::span<const std::int32_t> blocks = candidate_blocks(layer, row);
    if (!blocks.empty()) {
        // All blocks but the newest hold block_size entries, and the newest comes last.
        const std::int64_t size = config_.candidate_block_size;
        for (std::int64_t i = 0; i < count; ++i) {
            std::int32_t& entry = out[static_cast<std::size_t>(i)];
            entry = static_cast<std::int32_t>(
                blocks[static_cast<std::size_t>(entry / size)] * size + entry % size);
        }
    }
    if (!role(layer).is_candidate_source) return;
    const std::int64_t all =
        (entries + config_.candidate_block_size - 1) / config_.candidate_block_size;
    if (all <= config_.candidate_blocks && probe_ == nullptr) return;  // −1: all blocks
    candidates_.counts[static_cast<std::size_t>(row)] =
        ops_.select_blocks(scores, config_.candidate_block_size, config_.candidate_blocks,
                           std::span(candidates_.entries)
                               .subspan(static_cast<std::size_t>(row * candidates_.width),
                                        static_cast<std::size_t>(candidates_.width)));
}

// Scores by position, −inf where a row may not choose.
void Backbone::probe_scores(int layer, std::int64_t row, std::span<const float> scores) {
    if (probe_ == nullptr) return;
    std::vector<float> dense(static_cast<std::size_t>(visible(layer, row)),
                             -std::numeric_limits<float>::infinity());
    const std::span<const std::int32_t> blocks = candidate_blocks(layer, row);
    for (std::size_t i = 0; i < scores.size(); ++i) {
        const auto size = static_cast<std::size_t>(config_.candidate_block_size);
        const std::size_t at =
            blocks.empty() ? i : static_cast<std::size_t>(blocks[i / size]) * size + i % size;
        dense[at] = scores[i];
    }
    const std::int64_t position = batch_.positions[static_cast<std::size_t>(row)];
    probe_->floats(layer, "index_scores", dense, static_cast<std::int64_t>(dense.size()),
                   std::span(&position, 1));
}

}  // namespace fathom
