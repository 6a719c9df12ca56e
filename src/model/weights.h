// The backbone's weights by layer, packed for a back end. Large matrices stay in the mapped
// checkpoint or in the back end's own layout; small vectors are copied so that they are aligned.
// Immutable after load.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/config.h"
#include "model/packed_file.h"

namespace fathom {

using Linear = std::unique_ptr<PackedWeight>;

// One sublayer's hyper-connection (model.md 3.3).
struct HyperConnection {
    std::vector<float> fn, base, scale;
    MhcWeights view;
};

struct CompressorWeights {  // model.md 3.6; gate is null for ratio 1
    Linear wkv, gate;
    std::vector<Bf16> norm;
};

struct IndexerWeights {
    // Index K owners only:
    Linear wk;
    std::vector<Bf16> k_norm;
    // Index sources only:
    Linear wq_b, head_weights;
};

struct EngramWeights {  // model.md 3.11
    EngramTable table;
    Linear wkv;
    std::vector<Bf16> q_weight, k_weight;  // [streams, hidden]
};

struct LayerWeights {
    HyperConnection hc_attn, hc_ffn;
    std::vector<Bf16> attn_norm, ffn_norm, q_norm, kv_norm;
    std::vector<float> attn_sink;
    Linear wq_a, wq_b, wkv, wo_a, wo_b;
    CompressorWeights compressor;
    IndexerWeights indexer;
    Linear gate;  // router
    std::vector<float> gate_bias, gate_bias_vl;
    std::vector<PackedExpert> experts;
    PackedExpert shared;
    EngramWeights engram;
};

struct BackboneWeights {
    const Bf16* embed = nullptr;  // [vocab, hidden], in the checkpoint
    std::vector<LayerWeights> layers;
    std::vector<Bf16> norm;
    Linear head;

    std::int64_t packed_bytes() const;  // memory that packing allocated
};

// A matrix, or the gate and up matrices of an expert, that a back end packs as one. `name` is that
// of a linear in the checkpoint ("layers.3.attn.wq_a"), for an expert's pair its folder
// ("layers.3.ffn.experts.5"). The slot is where it goes; null when only names are wanted.
struct WeightSlot {
    std::string name;
    bool gate_up = false;
    Linear* linear = nullptr;
    std::unique_ptr<PackedGateUp>* pair = nullptr;
};
// Every weight of a layer, or of what stands behind all layers, in the order in which they load.
void for_each_weight(const ModelConfig& config, int layer, LayerWeights* weights,
                     const std::function<void(const WeightSlot&)>& visit);
void for_each_weight(BackboneWeights* weights, const std::function<void(const WeightSlot&)>& visit);

// The matrices behind a slot; `up` is not set for a plain one.
struct WeightSources {
    WeightSource source, up;
};
WeightSources sources_of(const Checkpoint& checkpoint, const WeightSlot& slot);

// Memory that the back end's own layouts will take.
std::int64_t packed_weight_bytes(const Checkpoint& checkpoint, const Backend& backend);

// Packs every weight, or takes those of `packed`, which belongs to this checkpoint and back end and
// must outlive the result.
BackboneWeights load_weights(const Checkpoint& checkpoint, Backend& backend,
                             const PackedFile* packed = nullptr);

}  // namespace fathom
