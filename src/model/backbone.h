// The implementation behind Model (model.h): the block diagram of model.md 2.1, written against the
// operators of kernels/ops.h. One file a sublayer:
//   backbone.cc             load, forward, the block: Engram, attention, experts, head
//   backbone_attention.cc   projections, window rows, lists, output projection (3.5, 3.8, 3.9)
//   backbone_compressor.cc  latents, main KV and index keys of the owners      (3.6)
//   backbone_indexer.cc     scores, candidates, selections                     (3.7)
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "model/batch.h"
#include "model/engram.h"
#include "model/model.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace fathom {

// What an index source publishes for the layers that share its selection, one list a row of the
// batch.
struct Selection {
    std::int64_t width = 0;             // index_topk
    std::vector<std::int32_t> entries;  // [rows, width], ascending, −1 behind
    std::vector<std::int64_t> counts;   // [rows]

    std::span<const std::int32_t> row(std::int64_t i) const {
        return {entries.data() + i * width,
                static_cast<std::size_t>(counts[static_cast<std::size_t>(i)])};
    }
};

class Backbone final : public Model {
  public:
    Backbone(std::shared_ptr<const Checkpoint> checkpoint, std::vector<std::int32_t> token_map,
             std::vector<EngramHash> hashes, std::shared_ptr<Backend> backend,
             const ModelOptions& options, std::shared_ptr<const PackedFile> packed);

    const ModelConfig& config() const override { return config_; }
    const KvLayout& kv_layout() const override { return layout_; }
    const ModelOptions& options() const override { return options_; }
    ComputePool& pool() override { return ops_.pool(); }
    void forward(std::span<const StepSpan> spans, Rows logits, Probe* probe) override;
    std::int64_t packed_bytes() const override { return weights_.packed_bytes(); }
    std::int64_t workspace_bytes() const override { return work_.bytes(); }

  private:
    bool real() const { return options_.numerics.mode == NumericMode::real; }
    const LayerRole& role(int layer) const {
        return config_.roles[static_cast<std::size_t>(layer)];
    }
    const LayerWeights& weights(int layer) const {
        return weights_.layers[static_cast<std::size_t>(layer)];
    }
    const RopeTable& rope_table(int layer) const {
        return role(layer).ratio == 0 ? rope_window_ : rope_compress_;
    }
    // The input of an fp8 or fp4 linear: the Q8 round trip in the real mode, the rows themselves in
    // the fp32 mode.
    ConstRows quantised(ConstRows x, Buffer& scratch);

    void embed();
    void block(int layer);
    void engram(int layer);
    void experts(int layer, std::span<const float> pre);
    void head(Rows logits);
    void drop_encoder_rows();

    // backbone_attention.cc
    void attention(int layer);
    void window_rows(int layer, ConstRows x_q8);
    void attention_lists(int layer);
    void attention_list(int layer, std::int64_t row);
    void save_snapshot_rows(int layer);
    void commit_window_rows(int layer);
    // backbone_compressor.cc
    void compress(int layer, ConstRows x);
    std::int64_t pool_pairs(int layer, ConstRows x);
    void single_latents(int layer, ConstRows x);
    void store_owner_rows(int layer, std::int64_t count);
    int pending_number(int layer) const;
    // backbone_indexer.cc
    void select(int layer, ConstRows x, ConstRows q_latent_q8);
    void index_queries(int layer, ConstRows x, ConstRows q_latent_q8);
    void score_rows(int layer, std::int64_t first, std::int64_t last);
    void publish_row(int layer, std::int64_t row, std::span<const float> scores);
    std::int64_t visible(int layer, std::int64_t row) const;
    bool needs_scores(int layer, std::int64_t row) const;
    std::span<const std::int32_t> candidate_blocks(int layer, std::int64_t row) const;
    void probe_scores(int layer, std::int64_t row, std::span<const float> scores);

    void probe_rows(int layer, std::string_view name, Rows x, std::int64_t per_position = 1);
    void probe_floats(int layer, std::string_view name, std::vector<float>& x, std::int64_t width);

    std::shared_ptr<const Checkpoint> checkpoint_;
    std::shared_ptr<const PackedFile> packed_;  // null: weights were packed into memory
    const ModelConfig& config_;
    ModelOptions options_;
    KvLayout layout_;
    std::shared_ptr<Backend> backend_;
    Backend& ops_;
    BackboneWeights weights_;
    RopeTable rope_window_, rope_compress_;
    std::vector<std::int32_t> token_map_;
    std::vector<EngramHash> hashes_;

    // State of the step in progress.
    Probe* probe_ = nullptr;
    Batch batch_;
    std::vector<std::int64_t> kept_;
    std::vector<float> pre_, post_, comb_, next_pre_;  // mHC coefficients per row
    Selection selection_;
    Selection candidates_;  // of the candidate source: block numbers; count −1 means all blocks
    std::vector<std::int64_t>
        group_positions_;  // rotary positions of the compressed rows of an owner
    std::vector<std::int64_t> group_numbers_;
    std::vector<KvRow> group_index_dst_, group_main_dst_;
    std::vector<KvRow> window_dst_;
    std::vector<ConstKvRow> window_list_;
    std::vector<AttentionList> lists_;
    std::vector<float> index_weights_, scores_;
    std::vector<std::int32_t> expert_ids_;
    std::vector<float> expert_weights_;
    std::vector<std::int64_t> engram_ids_;
    std::vector<float> engram_gates_;
    Workspace work_;
};

}  // namespace fathom
