// What config.json says, checked and resolved (model.md 1). Both spellings are read: the release's
// root file with text_config / vision_config, and the flat inference/config.json with the
// reference's names. A ModelConfig that parse_model_config returned obeys every rule of
// model.md 1.5, so the rest of the code never re-checks.
//
// Layers have roles. With ratio r > 0 a layer attends to compressed KV of its KV owner (the largest
// kv source <= layer) through the selection of its index source (the largest index source <=
// layer). The encoder is [0, boundary()), the decoder [boundary(), layers): after the last KV
// source no layer makes anything that lives longer than the window (model.md 2.1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "kernels/ops.h"

namespace fathom {

struct LayerRole {
    int ratio = 0;           // 0: window only
    int kv_owner = -1;       // layer whose main KV is attended to; -1 for ratio 0
    int index_source = -1;   // layer whose selection is used
    int index_k_owner = -1;  // layer whose index keys the indexer scores against
    bool owns_kv = false;    // has a compressor, writes main KV
    bool owns_index_k = false;
    bool runs_indexer = false;
    bool is_candidate_source = false;
    bool uses_candidates = false;  // an index source after the candidate source
    int engram = -1;               // number of its Engram module, or -1
};

struct VisionConfig {
    std::int64_t layers = 0, hidden = 0, heads = 0, intermediate = 0, patch = 14;
    double rope_theta = 10000;
    std::int64_t downsample_ratio = 3, max_image_tokens = 1024, min_pixels = 0;
    std::optional<double> max_wh_ratio;
};

struct ModelConfig {
    // token ids
    TokenId bos_id = 0, eos_id = 1, pad_id = 2, image_id = -1;
    // backbone
    std::int64_t vocab_size = 0, hidden = 0, layers = 0;
    std::int64_t heads = 0, head_dim = 0, rope_dim = 0, q_lora_rank = 0;
    std::int64_t o_groups = 0, o_lora_rank = 0, window = 0, max_positions = 0;
    float norm_eps = 1e-20f;
    double rope_theta = 10000, compress_rope_theta = 160000;
    YarnScaling yarn;
    // experts
    std::int64_t experts = 0, shared_experts = 1, experts_per_token = 0, expert_inter = 0;
    float route_scale = 1, gate_temp = 1, swiglu_limit = 0;
    // compression, sharing and selection
    std::vector<int> compress_ratios;  // backbone layers, then draft stages
    std::vector<int> kv_sources, index_sources, index_k_sources;
    std::int64_t index_heads = 0, index_dim = 0, index_topk = 0;
    int candidate_source = -1;  // -1: candidates switched off
    std::int64_t candidate_blocks = 0, candidate_block_size = 0;
    bool fp4_main_kv = true;  // use_fp4_sparse_kv; false stores main KV in the window's FP8 format
    // hyper-connections
    std::int64_t streams = 0, sinkhorn_iters = 20;
    float hc_eps = 1e-6f;
    // Engram
    std::vector<int> engram_layers;
    std::vector<std::int64_t> engram_rows;  // per Engram layer
    std::int64_t engram_ngram_max = 0, engram_heads = 0, engram_head_dim = 0;
    std::int64_t engram_prime_start = 0, engram_compressed_vocab = 0;
    TokenId engram_pad_id = 2;
    // drafter (read for the inventory; nothing runs it yet)
    std::int64_t draft_stages = 0, draft_block = 0, draft_markov_rank = 0;
    std::int64_t draft_experts = 0, draft_experts_per_token = 0;
    TokenId draft_noise_id = -1;
    std::vector<int> draft_target_layers;
    // images
    std::optional<VisionConfig> vision;
    // storage of weights: false for a checkpoint without scales (golden t6: all BF16)
    bool quantised = true;

    std::vector<LayerRole> roles;  // one a backbone layer

    int boundary() const {
        return kv_sources.empty() ? static_cast<int>(layers) : kv_sources.back();
    }
    // n-gram columns of one Engram row: (orders 2..max) × heads.
    std::int64_t engram_columns() const { return (engram_ngram_max - 1) * engram_heads; }
};

// Errors name the key, the value and the rule that it breaks. `overrides` replaces text_config keys
// before anything is read (golden case t1full). With `problems`, every finding is listed there; the
// Status tells the first. Every number is range-checked, so that sizes computed from a config
// cannot overflow 64 bits.
Result<ModelConfig> parse_model_config(const Json& root, const Json* overrides = nullptr,
                                       std::vector<std::string>* problems = nullptr);

}  // namespace fathom
