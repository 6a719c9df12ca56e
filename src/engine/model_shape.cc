#include "engine/model_shape.h"

#include <algorithm>
#include <vector>

namespace fathom {

namespace {

LayerKind kind_of(const LayerRole& role) {
    LayerKind kind;
    kind.layers = 1;
    kind.ratio = role.ratio;
    kind.owns_kv = role.owns_kv;
    kind.owns_index_k = role.owns_index_k;
    kind.runs_indexer = role.runs_indexer;
    kind.uses_candidates = role.uses_candidates;
    kind.engram = role.engram >= 0;
    return kind;
}

bool same_work(const LayerKind& a, const LayerKind& b) {
    return a.ratio == b.ratio && a.owns_kv == b.owns_kv && a.owns_index_k == b.owns_index_k &&
           a.runs_indexer == b.runs_indexer && a.uses_candidates == b.uses_candidates &&
           a.engram == b.engram;
}

void add_layer(std::vector<LayerKind>& kinds, const LayerKind& layer) {
    const auto same = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const LayerKind& kind) { return same_work(kind, layer); });
    if (same == kinds.end())
        kinds.push_back(layer);
    else
        ++same->layers;
}

}  // namespace

ModelShape make_model_shape(const ModelConfig& config) {
    ModelShape shape;
    shape.hidden = config.hidden;
    shape.streams = config.streams;
    shape.vocab = config.vocab_size;
    shape.heads = config.heads;
    shape.head_dim = config.head_dim;
    shape.q_lora_rank = config.q_lora_rank;
    shape.o_groups = config.o_groups;
    shape.o_lora_rank = config.o_lora_rank;
    shape.window = config.window;
    shape.experts = config.experts;
    shape.experts_per_token = config.experts_per_token;
    shape.shared_experts = config.shared_experts;
    shape.expert_inter = config.expert_inter;
    shape.index_heads = config.index_heads;
    shape.index_dim = config.index_dim;
    shape.index_topk = config.index_topk;
    shape.candidate_blocks = config.candidate_blocks;
    shape.candidate_block_size = config.candidate_block_size;
    shape.engram_columns =
        config.engram_layers.empty() ? 0 : config.engram_columns() * config.engram_head_dim;
    const auto boundary = static_cast<std::size_t>(config.boundary());
    for (std::size_t i = 0; i < config.roles.size(); ++i) {
        const LayerKind kind = kind_of(config.roles[i]);
        if (i < boundary)
            add_layer(shape.encoder, kind);
        else if (i == boundary)
            shape.boundary = kind;
        else
            add_layer(shape.decoder, kind);
    }
    return shape;
}

}  // namespace fathom
