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

// Reads the vectors of one layer under its name prefix.
class VectorReader {
  public:
    VectorReader(const Checkpoint& checkpoint, int layer)
        : checkpoint_(checkpoint), prefix_(fmt::format("layers.{}.", layer)) {}

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

  private:
    template <typename T>
    std::vector<T> copy(std::string_view name) const {
        const TensorRef tensor = checkpoint_.tensor(prefix_ + std::string(name));
        std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
        std::memcpy(values.data(), tensor.data, values.size() * sizeof(T));
        return values;
    }

    const Checkpoint& checkpoint_;
    std::string prefix_;
};

void load_vectors(const Checkpoint& checkpoint, int layer, const LayerRole& role, LayerWeights& w) {
    const VectorReader read(checkpoint, layer);
    w.hc_attn = read.hyper_connection("attn", checkpoint.config());
    w.hc_ffn = read.hyper_connection("ffn", checkpoint.config());
    w.attn_norm = read.bf16("attn_norm.weight");
    w.q_norm = read.bf16("attn.q_norm.weight");
    w.kv_norm = read.bf16("attn.kv_norm.weight");
    w.attn_sink = read.f32("attn.attn_sink");
    if (role.owns_kv) w.compressor.norm = read.bf16("attn.compressor.norm.weight");
    if (role.owns_index_k) w.indexer.k_norm = read.bf16("attn.indexer.k_norm.weight");
    w.ffn_norm = read.bf16("ffn_norm.weight");
    w.gate_bias = read.f32("ffn.gate.bias");
    w.gate_bias_vl = read.f32("ffn.gate.bias_vl");
    if (role.engram < 0) return;
    w.engram.table = checkpoint.engram_table(layer);
    w.engram.q_weight = read.bf16("engram.q_weight");
    w.engram.k_weight = read.bf16("engram.k_weight");
}

// Fills slots by packing, or from a packed file.
class SlotFiller {
  public:
    SlotFiller(const Checkpoint& checkpoint, Backend& backend, const PackedFile* packed)
        : checkpoint_(checkpoint), backend_(backend), packed_(packed) {}

    void operator()(const WeightSlot& slot) const {
        const WeightSources from = sources_of(checkpoint_, slot);
        if (slot.gate_up)
            *slot.pair = packed_ != nullptr ? backend_.adopt_gate_up(from.source, from.up,
                                                                     packed_->image(slot.name))
                                            : backend_.pack_gate_up(from.source, from.up);
        else
            *slot.linear = packed_ != nullptr
                               ? backend_.adopt(from.source, packed_->image(slot.name))
                               : backend_.pack(from.source);
    }

  private:
    const Checkpoint& checkpoint_;
    Backend& backend_;
    const PackedFile* packed_;
};

}  // namespace

void for_each_weight(const ModelConfig& config, int layer, LayerWeights* weights,
                     const std::function<void(const WeightSlot&)>& visit) {
    const LayerRole& role = config.roles[static_cast<std::size_t>(layer)];
    const auto linear = [&](std::string_view name, Linear* slot) {
        visit({.name = fmt::format("layers.{}.{}", layer, name), .linear = slot});
    };
    const auto expert = [&](const std::string& name, PackedExpert* slot) {
        visit({.name = fmt::format("layers.{}.{}", layer, name),
               .gate_up = true,
               .pair = slot == nullptr ? nullptr : &slot->gate_up});
        linear(name + ".w2", slot == nullptr ? nullptr : &slot->down);
    };
    LayerWeights* const w = weights;
    linear("attn.wq_a", w == nullptr ? nullptr : &w->wq_a);
    linear("attn.wq_b", w == nullptr ? nullptr : &w->wq_b);
    linear("attn.wkv", w == nullptr ? nullptr : &w->wkv);
    linear("attn.wo_a", w == nullptr ? nullptr : &w->wo_a);
    linear("attn.wo_b", w == nullptr ? nullptr : &w->wo_b);
    if (role.owns_kv) {
        linear("attn.compressor.wkv", w == nullptr ? nullptr : &w->compressor.wkv);
        if (role.ratio == 2)
            linear("attn.compressor.wgate", w == nullptr ? nullptr : &w->compressor.gate);
    }
    if (role.owns_index_k) linear("attn.indexer.wk", w == nullptr ? nullptr : &w->indexer.wk);
    if (role.runs_indexer) {
        linear("attn.indexer.wq_b", w == nullptr ? nullptr : &w->indexer.wq_b);
        linear("attn.indexer.weights_proj", w == nullptr ? nullptr : &w->indexer.head_weights);
    }
    linear("ffn.gate", w == nullptr ? nullptr : &w->gate);
    if (w != nullptr) w->experts.resize(static_cast<std::size_t>(config.experts));
    for (std::int64_t e = 0; e < config.experts; ++e)
        expert(fmt::format("ffn.experts.{}", e),
               w == nullptr ? nullptr : &w->experts[static_cast<std::size_t>(e)]);
    expert("ffn.shared_experts", w == nullptr ? nullptr : &w->shared);
    if (role.engram >= 0) linear("engram.wkv", w == nullptr ? nullptr : &w->engram.wkv);
}

void for_each_weight(BackboneWeights* weights,
                     const std::function<void(const WeightSlot&)>& visit) {
    visit({.name = "head", .linear = weights == nullptr ? nullptr : &weights->head});
}

WeightSources sources_of(const Checkpoint& checkpoint, const WeightSlot& slot) {
    if (slot.gate_up)
        return {.source = checkpoint.weight(slot.name + ".w1"),
                .up = checkpoint.weight(slot.name + ".w3")};
    return {.source = checkpoint.weight(slot.name), .up = {}};
}

std::int64_t packed_weight_bytes(const Checkpoint& checkpoint, const Backend& backend) {
    std::int64_t bytes = 0;
    const auto add = [&](const WeightSlot& slot) {
        const WeightSources from = sources_of(checkpoint, slot);
        bytes += slot.gate_up ? backend.gate_up_image_bytes(from.source, from.up)
                              : backend.image_bytes(from.source);
    };
    for (int layer = 0; layer < checkpoint.config().layers; ++layer)
        for_each_weight(checkpoint.config(), layer, nullptr, add);
    for_each_weight(nullptr, add);
    return bytes;
}

BackboneWeights load_weights(const Checkpoint& checkpoint, Backend& backend,
                             const PackedFile* packed) {
    const ModelConfig& config = checkpoint.config();
    const SlotFiller fill(checkpoint, backend, packed);
    BackboneWeights weights;
    weights.embed = checkpoint.bf16("embed.weight");
    weights.layers.resize(static_cast<std::size_t>(config.layers));
    for (int layer = 0; layer < config.layers; ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        for_each_weight(config, layer, &weights.layers[at], fill);
        load_vectors(checkpoint, layer, config.roles[at], weights.layers[at]);
        // What was packed is not read again; without this a load would hold every weight twice.
        if (owned(weights.layers[at].wq_b) > 0) checkpoint.drop_pages();
    }
    const TensorRef norm = checkpoint.tensor("norm.weight");
    weights.norm.resize(static_cast<std::size_t>(norm.elements()));
    std::memcpy(weights.norm.data(), norm.data, norm.bytes);
    for_each_weight(&weights, fill);
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
