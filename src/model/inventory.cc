#include "model/inventory.h"

#include <fmt/core.h>

#include <algorithm>

namespace fathom {
namespace {

using Visit = std::function<void(const ExpectedTensor&)>;

// Lists tensors under a name prefix.
class Lister {
  public:
    Lister(const ModelConfig& config, std::string prefix, const Visit& visit)
        : config_(config), prefix_(std::move(prefix)), visit_(visit) {}

    void tensor(std::string_view name, TensorType type, std::vector<std::int64_t> shape) const {
        visit_({prefix_ + std::string(name), type, std::move(shape)});
    }
    void bf16(std::string_view name, std::vector<std::int64_t> shape) const {
        tensor(name, TensorType::bf16, std::move(shape));
    }
    void f32(std::string_view name, std::vector<std::int64_t> shape) const {
        tensor(name, TensorType::f32, std::move(shape));
    }

    // NAME.weight in fp8 and NAME.scale, one a 32×32 tile.
    void fp8_pair(const std::string& name, std::int64_t out, std::int64_t in) const {
        if (!config_.quantised) return bf16(name + ".weight", {out, in});
        tensor(name + ".weight", TensorType::f8_e4m3, {out, in});
        tensor(name + ".scale", TensorType::f8_e8m0, {(out + 31) / 32, (in + 31) / 32});
    }

    // NAME.weight in packed FP4 and NAME.scale, one a row and 32 inputs.
    void fp4_pair(const std::string& name, std::int64_t out, std::int64_t in) const {
        if (!config_.quantised) return bf16(name + ".weight", {out, in});
        tensor(name + ".weight", TensorType::i8, {out, in / 2});
        tensor(name + ".scale", TensorType::f8_e8m0, {out, in / 32});
    }

  private:
    const ModelConfig& config_;
    std::string prefix_;
    const Visit& visit_;
};

// model.md 5.2: what every block has, backbone layers and draft stages alike.
void list_block(const ModelConfig& c, const Lister& list, std::int64_t experts) {
    list.fp8_pair("attn.wq_a", c.q_lora_rank, c.hidden);
    list.fp8_pair("attn.wq_b", c.heads * c.head_dim, c.q_lora_rank);
    list.fp8_pair("attn.wkv", c.head_dim, c.hidden);
    list.fp8_pair("attn.wo_a", c.o_groups * c.o_lora_rank, c.heads / c.o_groups * c.head_dim);
    list.fp8_pair("attn.wo_b", c.hidden, c.o_groups * c.o_lora_rank);
    list.bf16("attn.q_norm.weight", {c.q_lora_rank});
    list.bf16("attn.kv_norm.weight", {c.head_dim});
    list.f32("attn.attn_sink", {c.heads});
    list.bf16("attn_norm.weight", {c.hidden});
    list.bf16("ffn_norm.weight", {c.hidden});
    const std::int64_t mixes = (2 + c.streams) * c.streams;
    for (const char* name : {"hc_attn", "hc_ffn"}) {
        list.f32(fmt::format("{}_fn", name), {mixes, c.streams * c.hidden});
        list.f32(fmt::format("{}_base", name), {mixes});
        list.f32(fmt::format("{}_scale", name), {3});
    }
    list.bf16("ffn.gate.weight", {experts, c.hidden});
    list.f32("ffn.gate.bias", {experts});
    list.f32("ffn.gate.bias_vl", {experts});
    const std::int64_t shared_inter = c.shared_experts * c.expert_inter;
    list.fp8_pair("ffn.shared_experts.w1", shared_inter, c.hidden);
    list.fp8_pair("ffn.shared_experts.w3", shared_inter, c.hidden);
    list.fp8_pair("ffn.shared_experts.w2", c.hidden, shared_inter);
    for (std::int64_t e = 0; e < experts; ++e) {
        const std::string expert = fmt::format("ffn.experts.{}.", e);
        list.fp4_pair(expert + "w1", c.expert_inter, c.hidden);
        list.fp4_pair(expert + "w3", c.expert_inter, c.hidden);
        list.fp4_pair(expert + "w2", c.hidden, c.expert_inter);
    }
}

// model.md 5.3: what a backbone layer has for its roles.
void list_roles(const ModelConfig& c, const LayerRole& role, const Lister& list) {
    if (role.owns_kv) {
        list.bf16("attn.compressor.wkv.weight", {c.head_dim, c.hidden});
        if (role.ratio > 1) list.bf16("attn.compressor.wgate.weight", {c.head_dim, c.hidden});
        list.bf16("attn.compressor.norm.weight", {c.head_dim});
    }
    if (role.owns_index_k) {
        list.bf16("attn.indexer.wk.weight", {c.index_dim, c.head_dim});
        list.bf16("attn.indexer.k_norm.weight", {c.index_dim});
    }
    if (role.runs_indexer) {
        list.fp8_pair("attn.indexer.wq_b", c.index_heads * c.index_dim, c.q_lora_rank);
        list.bf16("attn.indexer.weights_proj.weight", {c.index_heads, c.hidden});
    }
    if (role.engram < 0) return;
    const std::int64_t rows = c.engram_rows[static_cast<std::size_t>(role.engram)];
    list.tensor("engram.embed.weight", c.quantised ? TensorType::f8_e4m3 : TensorType::bf16,
                {rows, c.engram_head_dim});
    if (c.quantised)
        list.tensor("engram.embed.scale", TensorType::f8_e8m0, {rows, c.engram_head_dim / 32});
    list.fp8_pair("engram.wkv", (c.streams + 1) * c.hidden, c.engram_columns() * c.engram_head_dim);
    list.bf16("engram.q_weight", {c.streams, c.hidden});
    list.bf16("engram.k_weight", {c.streams, c.hidden});
}

void list_drafter(const ModelConfig& c, const Visit& visit) {
    for (std::int64_t stage = 0; stage < c.draft_stages; ++stage) {
        const Lister list(c, fmt::format("mtp.{}.", stage), visit);
        list_block(c, list, c.draft_experts);
        if (stage == 0) {
            const auto taps = static_cast<std::int64_t>(c.draft_target_layers.size());
            list.fp8_pair("main_proj", c.hidden, taps * c.hidden);
            list.bf16("main_norm.weight", {c.hidden});
        }
        if (stage == c.draft_stages - 1) {
            list.bf16("norm.weight", {c.hidden});
            list.bf16("markov_head.embed.weight", {c.vocab_size, c.draft_markov_rank});
            list.bf16("markov_head.head.weight", {c.vocab_size, c.draft_markov_rank});
            list.bf16("confidence_head.proj.weight", {1, c.hidden + c.draft_markov_rank});
        }
    }
}

// model.md 5.5.
void list_vision(const ModelConfig& c, const VisionConfig& v, const Visit& visit) {
    const Lister list(c, "", visit);
    for (const char* name : {"image_start", "image_end", "image_newline"})
        list.bf16(name, {c.hidden});
    list.bf16("vision.patch_embed.proj.weight", {v.hidden, 3 * v.patch * v.patch});
    list.bf16("vision.patch_embed.proj.bias", {v.hidden});
    list.bf16("vision.norm.weight", {v.hidden});
    const std::int64_t cell = v.hidden * v.downsample_ratio * v.downsample_ratio;
    list.bf16("aligner.w1.weight", {c.hidden, cell});
    list.bf16("aligner.w1.bias", {c.hidden});
    list.bf16("aligner.w2.weight", {c.hidden, c.hidden});
    list.bf16("aligner.w2.bias", {c.hidden});
    for (std::int64_t i = 0; i < v.layers; ++i) {
        const Lister block(c, fmt::format("vision.blocks.{}.", i), visit);
        block.bf16("norm1.weight", {v.hidden});
        block.bf16("norm2.weight", {v.hidden});
        block.bf16("attn.wqkv.weight", {3 * v.hidden, v.hidden});
        block.bf16("attn.wqkv.bias", {3 * v.hidden});
        block.bf16("attn.wo.weight", {v.hidden, v.hidden});
        block.bf16("attn.wo.bias", {v.hidden});
        block.bf16("mlp.w1.weight", {2 * v.intermediate, v.hidden});
        block.bf16("mlp.w2.weight", {v.hidden, v.intermediate});
    }
}

}  // namespace

void for_each_expected_tensor(const ModelConfig& config, const Visit& visit) {
    const Lister global(config, "", visit);
    global.bf16("embed.weight", {config.vocab_size, config.hidden});
    global.bf16("norm.weight", {config.hidden});
    global.bf16("head.weight", {config.vocab_size, config.hidden});
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
        const Lister list(config, fmt::format("layers.{}.", layer), visit);
        list_block(config, list, config.experts);
        list_roles(config, config.roles[static_cast<std::size_t>(layer)], list);
    }
    list_drafter(config, visit);
    if (config.vision.has_value()) list_vision(config, *config.vision, visit);
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
    std::vector<ExpectedTensor> tensors;
    for_each_expected_tensor(config, [&](const ExpectedTensor& t) { tensors.push_back(t); });
    std::sort(tensors.begin(), tensors.end(),
              [](const ExpectedTensor& a, const ExpectedTensor& b) { return a.name < b.name; });
    return tensors;
}

bool is_ignored_tensor(std::string_view name) {
    constexpr std::string_view kPrefix = "mtp.";
    if (!name.starts_with(kPrefix)) return false;
    name.remove_prefix(kPrefix.size());
    const std::size_t digits = name.find_first_not_of("0123456789");
    if (digits == 0 || digits == std::string_view::npos) return false;
    name.remove_prefix(digits);
    return name == ".embed.weight" || name == ".head.weight";
}

}  // namespace fathom
