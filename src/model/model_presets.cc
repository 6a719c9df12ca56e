#include "model/model_presets.h"

#include <algorithm>

#include "model/engram.h"
#include "model/inventory.h"

namespace fathom {
namespace {

// Everything that the presets differ in.
struct Sizes {
    std::int64_t vocab_size, hidden, heads, head_dim, rope_dim, q_lora_rank, o_groups, o_lora_rank;
    std::int64_t experts, expert_inter, experts_per_token;
    std::int64_t positions, original_positions, yarn_factor, compress_theta;
    std::int64_t index_heads, index_dim, index_topk, candidate_blocks;
    std::vector<int> ratios, kv_sources, index_sources;
    int candidate_source;
    std::vector<int> engram_layers;
    std::int64_t engram_heads, engram_head_dim, engram_prime_start;
    std::int64_t drafts, draft_experts, draft_experts_per_token, markov_rank;
    std::vector<int> draft_targets;
};

std::vector<int> repeated(std::initializer_list<std::pair<int, int>> runs) {
    std::vector<int> list;
    for (const auto& [value, count] : runs)
        list.insert(list.end(), static_cast<std::size_t>(count), value);
    return list;
}

Sizes tiny_sizes() {
    return {.vocab_size = 1024,
            .hidden = 192,
            .heads = 6,
            .head_dim = 64,
            .rope_dim = 16,
            .q_lora_rank = 96,
            .o_groups = 2,
            .o_lora_rank = 64,
            .experts = 8,
            .expert_inter = 96,
            .experts_per_token = 2,
            .positions = 8192,
            .original_positions = 1024,
            .yarn_factor = 8,
            .compress_theta = 40'000,
            .index_heads = 8,
            .index_dim = 32,
            .index_topk = 64,
            .candidate_blocks = 16,
            .ratios = repeated({{0, 2}, {2, 4}, {1, 6}}),
            .kv_sources = {2, 4, 6},
            .index_sources = {2, 4, 6, 9},
            .candidate_source = 6,
            .engram_layers = {1, 4},
            .engram_heads = 2,
            .engram_head_dim = 32,
            .engram_prime_start = 1000,
            .drafts = 3,
            .draft_experts = 8,
            .draft_experts_per_token = 2,
            .markov_rank = 64,
            .draft_targets = {9, 10, 11}};
}

// The released lengths, index sizes and Engram columns; widths and layers are set by the caller.
Sizes released_sizes() {
    Sizes sizes = tiny_sizes();
    sizes.vocab_size = 32'768;
    sizes.head_dim = 512;
    sizes.rope_dim = 64;
    sizes.o_groups = 8;
    sizes.experts_per_token = 6;
    sizes.positions = 1'048'576;
    sizes.original_positions = 65'536;
    sizes.yarn_factor = 16;
    sizes.compress_theta = 160'000;
    sizes.index_heads = 32;
    sizes.index_dim = 128;
    sizes.index_topk = 512;
    sizes.candidate_blocks = 2048;
    sizes.engram_heads = 8;
    sizes.engram_head_dim = 256;
    sizes.engram_prime_start = 12'500;  // 24 columns: 300,000 rows, 80 MB a table
    sizes.drafts = 0;
    sizes.draft_targets = {};
    return sizes;
}

Sizes mid_sizes() {
    Sizes sizes = released_sizes();
    sizes.hidden = 2048;
    sizes.heads = 32;
    sizes.q_lora_rank = 512;
    sizes.o_lora_rank = 512;
    sizes.experts = 64;
    sizes.expert_inter = 768;
    sizes.ratios = repeated({{0, 2}, {2, 18}, {1, 20}});
    sizes.kv_sources = {2, 8, 14, 20};
    sizes.index_sources = {2, 8, 14, 20, 24, 28, 32, 36};
    sizes.candidate_source = 20;
    sizes.engram_layers = {1, 14};
    return sizes;
}

Sizes wide_sizes() {
    Sizes sizes = released_sizes();
    sizes.hidden = 5120;
    sizes.heads = 64;
    sizes.q_lora_rank = 1280;
    sizes.o_lora_rank = 1024;
    sizes.experts = 16;
    sizes.expert_inter = 2304;
    sizes.ratios = repeated({{0, 2}, {2, 2}, {1, 4}});
    sizes.kv_sources = {2, 4};
    sizes.index_sources = {2, 4, 6};
    sizes.candidate_source = 4;
    sizes.engram_layers = {1};
    return sizes;
}

Sizes sizes_of(ModelPreset preset) {
    switch (preset) {
        case ModelPreset::mid:
            return mid_sizes();
        case ModelPreset::wide:
            return wide_sizes();
        case ModelPreset::tiny:
            break;
    }
    return tiny_sizes();
}

template <typename Int>
Json list_json(const std::vector<Int>& list) {
    Json json = Json::array();
    for (Int value : list)
        json.push_back(value);
    return json;
}

Json backbone_json(const Sizes& s) {
    return Json::object({{"model_type", "deepseek_v41_text"},
                         {"hidden_size", s.hidden},
                         {"num_hidden_layers", static_cast<std::int64_t>(s.ratios.size())},
                         {"num_attention_heads", s.heads},
                         {"num_key_value_heads", 1},
                         {"head_dim", s.head_dim},
                         {"qk_rope_head_dim", s.rope_dim},
                         {"q_lora_rank", s.q_lora_rank},
                         {"o_groups", s.o_groups},
                         {"o_lora_rank", s.o_lora_rank},
                         {"sliding_window", 128},
                         {"rms_norm_eps", 1e-20},
                         {"hidden_act", "silu"},
                         {"swiglu_limit", 10.0},
                         {"attention_bias", false},
                         {"attention_dropout", 0.0},
                         {"tie_word_embeddings", false},
                         {"max_position_embeddings", s.positions},
                         {"rope_theta", 10000},
                         {"compress_rope_theta", s.compress_theta},
                         {"n_routed_experts", s.experts},
                         {"n_shared_experts", 1},
                         {"num_experts_per_tok", s.experts_per_token},
                         {"moe_intermediate_size", s.expert_inter},
                         {"scoring_func", "sqrtsoftplus"},
                         {"topk_method", "noaux_tc"},
                         {"norm_topk_prob", true},
                         {"routed_scaling_factor", 1.5},
                         {"hc_mult", 4},
                         {"hc_sinkhorn_iters", 20},
                         {"hc_eps", 1e-6}});
}

void add_selection(const Sizes& s, Json& text) {
    std::vector<int> ratios = s.ratios;
    ratios.insert(ratios.end(), static_cast<std::size_t>(s.drafts), 0);
    text.set("rope_scaling",
             Json::object({{"rope_type", "yarn"},
                           {"factor", s.yarn_factor},
                           {"beta_fast", 32},
                           {"beta_slow", 1},
                           {"original_max_position_embeddings", s.original_positions}}));
    text.set("compress_ratios", list_json(ratios));
    text.set("kv_source_layer_ids", list_json(s.kv_sources));
    text.set("index_source_layer_ids", list_json(s.index_sources));
    text.set("index_n_heads", s.index_heads);
    text.set("index_head_dim", s.index_dim);
    text.set("index_topk", s.index_topk);
    text.set("candidate_source_layer_id", s.candidate_source);
    text.set("candidate_topk_blocks", s.candidate_blocks);
    text.set("candidate_block_size", 8);
}

void add_modules(const Sizes& s, const PresetTokens& tokens, Json& text) {
    constexpr std::int64_t kNgramMax = 4;
    text.set("engram_layer_ids", list_json(s.engram_layers));
    text.set("engram_num_embeddings",
             list_json(engram_table_rows(s.engram_prime_start, (kNgramMax - 1) * s.engram_heads,
                                         static_cast<std::int64_t>(s.engram_layers.size()))));
    text.set("engram_max_ngram_size", kNgramMax);
    text.set("engram_n_heads", s.engram_heads);
    text.set("engram_head_dim", s.engram_head_dim);
    text.set("engram_vocab_size", s.engram_prime_start);
    text.set("engram_pad_token_id", 2);
    text.set("engram_compressed_vocab_size", tokens.compressed_vocab);
    text.set("num_nextn_predict_layers", s.drafts);
    if (s.drafts == 0) return;
    text.set("dspark_block_size", 5);
    text.set("dspark_noise_token_id", tokens.noise_id);
    text.set("dspark_target_layer_ids", list_json(s.draft_targets));
    text.set("dspark_markov_rank", s.markov_rank);
    text.set("dspark_n_routed_experts", s.draft_experts);
    text.set("dspark_num_experts_per_tok", s.draft_experts_per_token);
}

}  // namespace

std::optional<ModelPreset> parse_model_preset(std::string_view name) {
    if (name == "tiny") return ModelPreset::tiny;
    if (name == "mid") return ModelPreset::mid;
    if (name == "wide") return ModelPreset::wide;
    return std::nullopt;
}

std::int64_t preset_vocab_size(ModelPreset preset) {
    return sizes_of(preset).vocab_size;
}

Json preset_config(ModelPreset preset, const PresetTokens& tokens) {
    const Sizes sizes = sizes_of(preset);
    Json text = backbone_json(sizes);
    text.set("vocab_size", tokens.vocab_size);
    add_selection(sizes, text);
    add_modules(sizes, tokens, text);
    return Json::object(
        {{"architectures", Json::array({"DeepseekV41ForCausalLM"})},
         {"model_type", "deepseek_v41"},
         {"dtype", "bfloat16"},
         {"transformers_version", "5.6.0"},
         {"bos_token_id", 0},
         {"eos_token_id", 1},
         {"pad_token_id", 2},
         {"image_token_id", tokens.image_id},
         {"quantization_config", Json::object({{"quant_method", "fp8"},
                                               {"activation_scheme", "dynamic"},
                                               {"weight_block_size", Json::array({32, 32})},
                                               {"scale_fmt", "ue8m0"},
                                               {"expert_dtype", "fp4"}})},
         {"text_config", std::move(text)}});
}

ActiveBytes active_weight_bytes(const ModelConfig& config) {
    enum Kind { experts, attention, shared, head, engram, router, mhc, indexer, rest, count };
    std::int64_t bytes[count] = {};
    const auto kind_of = [](std::string_view name) {
        const auto has = [name](std::string_view part) {
            return name.find(part) != std::string_view::npos;
        };
        if (has(".ffn.experts.")) return experts;
        if (has(".ffn.shared_experts.")) return shared;
        if (has(".ffn.gate.weight")) return router;
        if (has(".hc_")) return mhc;
        if (has(".engram.")) return engram;
        if (has(".attn.compressor.") || has(".attn.indexer.")) return indexer;
        if (has(".attn.w")) return attention;
        return name == "head.weight" ? head : rest;
    };
    for_each_expected_tensor(config, [&](const ExpectedTensor& tensor) {
        const std::string_view name = tensor.name;
        if (!name.starts_with("layers.") && name != "embed.weight" && name != "head.weight" &&
            name != "norm.weight")
            return;
        std::int64_t size = tensor_type_bytes(tensor.type);
        for (std::int64_t n : tensor.shape)
            size *= n;
        const Kind kind = kind_of(name);
        if (name == "embed.weight") size /= config.vocab_size;
        if (name.find(".engram.embed.") != std::string_view::npos)
            size = size / tensor.shape[0] * config.engram_columns();
        bytes[kind] += size;
    });
    bytes[experts] = bytes[experts] / config.experts * config.experts_per_token;
    constexpr const char* kNames[count] = {"routed experts",  "attention projections",
                                           "shared experts",  "output head",
                                           "Engram",          "router",
                                           "mHC mixes",       "indexer, compressor",
                                           "norms, embedding"};
    ActiveBytes active;
    for (int kind = 0; kind < count; ++kind) {
        active.items.push_back({kNames[kind], bytes[kind]});
        active.total += bytes[kind];
    }
    return active;
}

}  // namespace fathom
