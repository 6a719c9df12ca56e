#include "model/weights.h"

#include <fmt/core.h>

#include <cstring>
#include <string>

namespace fathom {

namespace {

std::int64_t owned(const Linear& weight) {
    return weight == nullptr ? 0 : weight->bytes();
}

std::int64_t owned(const PackedExpert& expert) {
    return expert.gate_up->bytes() + expert.down->bytes();
}

// Reads tensors of one layer under its name prefix.
class LayerReader {
  public:
    LayerReader(const Checkpoint& checkpoint, Backend& backend, int layer)
        : checkpoint_(checkpoint), backend_(backend), prefix_(fmt::format("layers.{}.", layer)) {}

    Linear linear(std::string_view name) const {
        return backend_.pack(checkpoint_.weight(prefix_ + std::string(name)));
    }
    std::vector<Bf16> bf16(std::string_view name) const { return copy<Bf16>(name); }
    std::vector<float> f32(std::string_view name) const { return copy<float>(name); }

    HyperConnection hyper_connection(std::string_view name, const ModelConfig& config) const {
        HyperConnection hc;
        hc.fn = f32(fmt::format("hc_{}_fn", name));
        hc.base = f32(fmt::format("hc_{}_base", name));
        hc.scale = f32(fmt::format("hc_{}_scale", name));
        hc.view = {.fn = hc.fn.data(),
                   .base = hc.base.data(),
                   .scale = hc.scale.data(),
                   .streams = config.streams,
                   .dim = config.hidden,
                   .sinkhorn_iters = config.sinkhorn_iters,
                   .eps = config.hc_eps,
                   .norm_eps = config.norm_eps};
        return hc;
    }

    PackedExpert expert(std::string_view name) const {
        const std::string base = prefix_ + std::string(name);
        return {.gate_up = backend_.pack_gate_up(checkpoint_.weight(base + ".w1"),
                                                 checkpoint_.weight(base + ".w3")),
                .down = backend_.pack(checkpoint_.weight(base + ".w2"))};
    }

  private:
    template <typename T>
    std::vector<T> copy(std::string_view name) const {
        const TensorRef tensor = checkpoint_.tensor(prefix_ + std::string(name));
        std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
        std::memcpy(values.data(), tensor.data, values.size() * sizeof(T));
        return values;
    }

    const Checkpoint& checkpoint_;
    Backend& backend_;
    std::string prefix_;
};

void load_attention(const LayerReader& read, const LayerRole& role, LayerWeights& w) {
    w.attn_norm = read.bf16("attn_norm.weight");
    w.q_norm = read.bf16("attn.q_norm.weight");
    w.kv_norm = read.bf16("attn.kv_norm.weight");
    w.attn_sink = read.f32("attn.attn_sink");
    w.wq_a = read.linear("attn.wq_a");
    w.wq_b = read.linear("attn.wq_b");
    w.wkv = read.linear("attn.wkv");
    w.wo_a = read.linear("attn.wo_a");
    w.wo_b = read.linear("attn.wo_b");
    if (role.owns_kv) {
        w.compressor.wkv = read.linear("attn.compressor.wkv");
        if (role.ratio == 2) w.compressor.gate = read.linear("attn.compressor.wgate");
        w.compressor.norm = read.bf16("attn.compressor.norm.weight");
    }
    if (role.owns_index_k) {
        w.indexer.wk = read.linear("attn.indexer.wk");
        w.indexer.k_norm = read.bf16("attn.indexer.k_norm.weight");
    }
    if (role.runs_indexer) {
        w.indexer.wq_b = read.linear("attn.indexer.wq_b");
        w.indexer.head_weights = read.linear("attn.indexer.weights_proj");
    }
}

void load_experts(const LayerReader& read, const ModelConfig& config, LayerWeights& w) {
    w.ffn_norm = read.bf16("ffn_norm.weight");
    w.gate = read.linear("ffn.gate");
    w.gate_bias = read.f32("ffn.gate.bias");
    w.gate_bias_vl = read.f32("ffn.gate.bias_vl");
    w.experts.reserve(static_cast<std::size_t>(config.experts));
    for (std::int64_t e = 0; e < config.experts; ++e)
        w.experts.push_back(read.expert(fmt::format("ffn.experts.{}", e)));
    w.shared = read.expert("ffn.shared_experts");
}

}  // namespace

BackboneWeights load_weights(const Checkpoint& checkpoint, Backend& backend) {
    const ModelConfig& config = checkpoint.config();
    BackboneWeights weights;
    weights.embed = checkpoint.bf16("embed.weight");
    weights.layers.resize(static_cast<std::size_t>(config.layers));
    for (int layer = 0; layer < config.layers; ++layer) {
        const LayerReader read(checkpoint, backend, layer);
        const LayerRole& role = config.roles[static_cast<std::size_t>(layer)];
        LayerWeights& w = weights.layers[static_cast<std::size_t>(layer)];
        w.hc_attn = read.hyper_connection("attn", config);
        w.hc_ffn = read.hyper_connection("ffn", config);
        load_attention(read, role, w);
        load_experts(read, config, w);
        if (role.engram >= 0) {
            w.engram.table = checkpoint.engram_table(layer);
            w.engram.wkv = read.linear("engram.wkv");
            w.engram.q_weight = read.bf16("engram.q_weight");
            w.engram.k_weight = read.bf16("engram.k_weight");
        }
        // What was packed is not read again; without this a load would hold every weight twice.
        if (owned(w.wq_b) > 0) checkpoint.drop_pages();
    }
    const TensorRef norm = checkpoint.tensor("norm.weight");
    weights.norm.resize(static_cast<std::size_t>(norm.elements()));
    std::memcpy(weights.norm.data(), norm.data, norm.bytes);
    weights.head = backend.pack(checkpoint.weight("head"));
    if (owned(weights.head) > 0) checkpoint.drop_pages();
    return weights;
}

std::int64_t BackboneWeights::packed_bytes() const {
    std::int64_t bytes = owned(head);
    for (const LayerWeights& w : layers) {
        for (const Linear* linear :
             {&w.wq_a, &w.wq_b, &w.wkv, &w.wo_a, &w.wo_b, &w.compressor.wkv, &w.compressor.gate,
              &w.indexer.wk, &w.indexer.wq_b, &w.indexer.head_weights, &w.gate, &w.engram.wkv})
            bytes += owned(*linear);
        for (const PackedExpert& expert : w.experts)
            bytes += owned(expert);
        bytes += owned(w.shared);
    }
    return bytes;
}

}  // namespace fathom
