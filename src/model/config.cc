#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "model/shown.h"

namespace fathom {
namespace {

// Limits of what a config may say: far above any model of this family, and low enough that every
// product of sizes fits 63 bits and that no size alone makes a reader allocate much.
constexpr std::int64_t kVocabMax = std::int64_t{1} << 24;
constexpr std::int64_t kWidthMax = std::int64_t{1} << 20;
constexpr std::int64_t kLayersMax = 1024;
constexpr std::int64_t kHeadsMax = 4096;
constexpr std::int64_t kHeadDimMax = 8192;
constexpr std::int64_t kExpertsMax = 4096;
constexpr std::int64_t kPositionsMax = std::int64_t{1} << 30;
constexpr std::int64_t kDraftStagesMax = 64;
constexpr std::int64_t kTensorsMax = std::int64_t{1} << 21;
constexpr std::size_t kProblemsMax = 64;

template <typename List>
std::string list_text(const List& list) {
    return fmt::format("[{}]", fmt::join(list, ", "));
}

class Problems {
  public:
    template <typename... Args>
    void add(fmt::format_string<Args...> format, Args&&... args) {
        ++count_;
        if (list_.size() < kProblemsMax)
            list_.push_back(fmt::format(format, std::forward<Args>(args)...));
    }
    bool empty() const { return count_ == 0; }
    const std::vector<std::string>& list() const { return list_; }
    Status status() const {
        if (count_ == 1) return Status(StatusCode::invalid_argument, list_.front());
        return invalid_argument("{} (and {} more)", list_.front(), count_ - 1);
    }

  private:
    std::vector<std::string> list_;
    std::size_t count_ = 0;
};

// A field's two names: the release's config.json and the reference's inference/config.json.
struct Key {
    const char* release;
    const char* reference;
};

// Reads fields of one object under either spelling, with overrides before it.
class Fields {
  public:
    Fields(const Json& object, const Json* overrides, bool reference, std::string where,
           Problems& problems)
        : object_(object),
          overrides_(overrides),
          reference_(reference),
          where_(std::move(where)),
          problems_(problems) {}

    std::string name(Key key) const { return where_ + (reference_ ? key.reference : key.release); }

    // nullptr when absent or null.
    const Json* find(Key key) {
        used_.insert(key.release);
        const Json* value = overrides_ == nullptr ? nullptr : overrides_->find(key.release);
        if (value == nullptr) value = object_.find(reference_ ? key.reference : key.release);
        return value == nullptr || value->is_null() ? nullptr : value;
    }

    std::int64_t integer(Key key, std::int64_t low, std::int64_t high,
                         std::optional<std::int64_t> otherwise = {}) {
        const Json* value = find(key);
        if (value == nullptr) {
            if (!otherwise.has_value()) problems_.add("{}: missing", name(key));
            return otherwise.value_or(low);
        }
        if (value->kind() != Json::Kind::integer || value->as_int64() < low ||
            value->as_int64() > high) {
            problems_.add("{} = {}: expected an integer from {} to {}", name(key),
                          shown_value(*value), low, high);
            return low;
        }
        return value->as_int64();
    }

    double number(Key key, double low, double high, std::optional<double> otherwise = {}) {
        const Json* value = find(key);
        if (value == nullptr) {
            if (!otherwise.has_value()) problems_.add("{}: missing", name(key));
            return otherwise.value_or(low);
        }
        if (!value->is_number() || !(value->as_double() >= low && value->as_double() <= high)) {
            problems_.add("{} = {}: expected a number from {} to {}", name(key),
                          shown_value(*value), low, high);
            return low;
        }
        return value->as_double();
    }

    bool flag(Key key, bool otherwise) {
        const Json* value = find(key);
        if (value == nullptr) return otherwise;
        if (!value->is_bool()) {
            problems_.add("{} = {}: expected true or false", name(key), shown_value(*value));
            return otherwise;
        }
        return value->as_bool();
    }

    template <typename Int>
    std::vector<Int> list(Key key, Int low, Int high, std::size_t size_max, bool required) {
        std::vector<Int> out;
        const Json* value = find(key);
        if (value == nullptr) {
            if (required) problems_.add("{}: missing", name(key));
            return out;
        }
        if (!value->is_array() || value->items().size() > size_max) {
            problems_.add("{} = {}: expected a list of at most {} integers", name(key),
                          shown_value(*value), size_max);
            return out;
        }
        for (const Json& item : value->items()) {
            if (item.kind() != Json::Kind::integer || item.as_int64() < low ||
                item.as_int64() > high) {
                problems_.add("{} = {}: {} is not an integer from {} to {}", name(key),
                              shown_value(*value), shown_value(item), low, high);
                return {};
            }
            out.push_back(static_cast<Int>(item.as_int64()));
        }
        return out;
    }

    // The field must have this value; an absent one is right unless `required`.
    void exactly(Key key, const Json& expected, bool required) {
        const Json* value = find(key);
        if (value == nullptr) {
            if (required)
                problems_.add("{}: missing, expected {}", name(key), shown_value(expected));
            return;
        }
        const bool equal = value->is_number() && expected.is_number()
                               ? value->as_double() == expected.as_double()
                               : *value == expected;
        if (!equal)
            problems_.add("{} = {}: expected {}", name(key), shown_value(*value),
                          shown_value(expected));
    }

    bool reference() const { return reference_; }
    const std::set<std::string, std::less<>>& used() const { return used_; }

  private:
    const Json& object_;
    const Json* overrides_;
    bool reference_;
    std::string where_;
    Problems& problems_;
    std::set<std::string, std::less<>> used_;
};

Key same(const char* name) {
    return {name, name};
}

constexpr Key kHidden{"hidden_size", "dim"};
constexpr Key kLayers{"num_hidden_layers", "n_layers"};
constexpr Key kHeads{"num_attention_heads", "n_heads"};
constexpr Key kHeadDim{"head_dim", "head_dim"};
constexpr Key kRopeDim{"qk_rope_head_dim", "rope_head_dim"};
constexpr Key kQueryRank{"q_lora_rank", "q_lora_rank"};
constexpr Key kOutGroups{"o_groups", "o_groups"};
constexpr Key kOutRank{"o_lora_rank", "o_lora_rank"};
constexpr Key kPositions{"max_position_embeddings", "max_seq_len"};
constexpr Key kInter{"moe_intermediate_size", "moe_inter_dim"};
constexpr Key kTopExperts{"num_experts_per_tok", "n_activated_experts"};
constexpr Key kRatios{"compress_ratios", "compress_ratios"};
constexpr Key kKvSources{"kv_source_layer_ids", "kv_source_layers"};
constexpr Key kIndexSources{"index_source_layer_ids", "index_source_layers"};
constexpr Key kIndexKSources{"index_k_source_layer_ids", "index_k_source_layers"};
constexpr Key kIndexDim{"index_head_dim", "index_head_dim"};
constexpr Key kCandidateSource{"candidate_source_layer_id", "candidate_source_layer"};
constexpr Key kEngramLayers{"engram_layer_ids", "engram_layer_ids"};
constexpr Key kEngramRows{"engram_num_embeddings", "engram_num_embeddings"};
constexpr Key kEngramHeadDim{"engram_head_dim", "engram_head_dim"};
constexpr Key kStages{"num_nextn_predict_layers", "n_mtp_layers"};
constexpr Key kTargets{"dspark_target_layer_ids", "dspark_target_layer_ids"};
constexpr Key kDraftTopExperts{"dspark_num_experts_per_tok", "dspark_n_activated_experts"};

// ---------------------------------------------------------------------------- fields by section

void read_backbone(Fields& text, ModelConfig& c) {
    c.vocab_size = text.integer(same("vocab_size"), 1, kVocabMax);
    c.hidden = text.integer(kHidden, 1, kWidthMax);
    c.layers = text.integer(kLayers, 1, kLayersMax);
    c.heads = text.integer(kHeads, 1, kHeadsMax);
    c.head_dim = text.integer(kHeadDim, 1, kHeadDimMax);
    c.rope_dim = text.integer(kRopeDim, 2, kHeadDimMax);
    c.q_lora_rank = text.integer(kQueryRank, 1, kWidthMax);
    c.o_groups = text.integer(kOutGroups, 1, kHeadsMax);
    c.o_lora_rank = text.integer(kOutRank, 1, kWidthMax);
    c.window = text.integer({"sliding_window", "window_size"}, 1, 65536);
    c.norm_eps = static_cast<float>(text.number({"rms_norm_eps", "norm_eps"}, 1e-30, 1e-2));
    c.streams = text.integer(same("hc_mult"), 1, 64);
    c.sinkhorn_iters = text.integer(same("hc_sinkhorn_iters"), 1, 1000);
    c.hc_eps = static_cast<float>(text.number(same("hc_eps"), 1e-30, 1e-2));

    text.exactly({"hidden_act", "hidden_act"}, "silu", false);
    text.exactly(same("attention_bias"), false, false);
    text.exactly(same("attention_dropout"), 0, false);
    text.exactly(same("tie_word_embeddings"), false, false);
    text.exactly(same("num_key_value_heads"), 1, false);
    text.exactly(same("hc_shifted"), true, false);
}

void read_rotary(const Json* scaling, Fields& text, Problems& problems, ModelConfig& c) {
    c.rope_theta = text.number(same("rope_theta"), 1, 1e12);
    c.compress_rope_theta = text.number(same("compress_rope_theta"), 1, 1e12);
    if (text.reference()) {
        c.yarn.original_max_position = text.integer(same("original_seq_len"), 0, kPositionsMax, 0);
        if (c.yarn.original_max_position > 0) {
            c.yarn.factor = text.number(same("rope_factor"), 1, 65536);
            c.yarn.beta_fast = text.number(same("beta_fast"), 1e-3, 1e6, 32);
            c.yarn.beta_slow = text.number(same("beta_slow"), 1e-3, 1e6, 1);
        }
    } else if (scaling != nullptr) {
        Fields yarn(*scaling, nullptr, false, "text_config.rope_scaling.", problems);
        if (scaling->find("rope_type") != nullptr || scaling->find("type") == nullptr)
            yarn.exactly(same("rope_type"), "yarn", true);
        else
            yarn.exactly(same("type"), "yarn", true);
        c.yarn.factor = yarn.number(same("factor"), 1, 65536);
        c.yarn.beta_fast = yarn.number(same("beta_fast"), 1e-3, 1e6, 32);
        c.yarn.beta_slow = yarn.number(same("beta_slow"), 1e-3, 1e6, 1);
        c.yarn.original_max_position =
            yarn.integer(same("original_max_position_embeddings"), 1, kPositionsMax);
    }
    // The flat file's length is what a run allocates, not what the model can, and may be missing or
    // tiny; the model's own is the scaled length that YaRN was made for.
    std::optional<std::int64_t> otherwise;
    if (text.reference() && c.yarn.original_max_position > 0)
        otherwise = std::min(
            kPositionsMax, static_cast<std::int64_t>(
                               static_cast<double>(c.yarn.original_max_position) * c.yarn.factor));
    c.max_positions = text.integer(kPositions, 1, kPositionsMax, otherwise);
    if (otherwise.has_value() && c.max_positions <= c.yarn.original_max_position)
        c.max_positions = *otherwise;
}

void read_experts(Fields& text, ModelConfig& c) {
    c.experts = text.integer(same("n_routed_experts"), 1, kExpertsMax);
    c.shared_experts = text.integer(same("n_shared_experts"), 1, 1, 1);
    c.experts_per_token = text.integer(kTopExperts, 1, kExpertsMax);
    c.expert_inter = text.integer(kInter, 1, kWidthMax);
    c.route_scale =
        static_cast<float>(text.number({"routed_scaling_factor", "route_scale"}, 1e-6, 1e6));
    c.gate_temp = static_cast<float>(text.number(same("gate_temp"), 1e-6, 1e6, 1.0));
    c.swiglu_limit = static_cast<float>(text.number(same("swiglu_limit"), 1e-6, 1e30));
    text.exactly({"scoring_func", "score_func"}, "sqrtsoftplus", false);
    text.exactly(same("topk_method"), "noaux_tc", false);
    text.exactly(same("norm_topk_prob"), true, false);
}

void read_compression(Fields& text, ModelConfig& c) {
    const int last = static_cast<int>(c.layers) - 1;
    constexpr auto kListMax = static_cast<std::size_t>(kLayersMax);
    c.draft_stages = text.integer(kStages, 0, kDraftStagesMax, 0);
    c.compress_ratios =
        text.list<int>(kRatios, 0, 2, kListMax + static_cast<std::size_t>(kDraftStagesMax), true);
    c.kv_sources = text.list<int>(kKvSources, 0, last, kListMax, true);
    c.index_sources = text.list<int>(kIndexSources, 0, last, kListMax, true);
    c.index_k_sources = text.find(kIndexKSources) == nullptr
                            ? c.kv_sources
                            : text.list<int>(kIndexKSources, 0, last, kListMax, true);
    c.fp4_main_kv = text.flag(same("use_fp4_sparse_kv"), true);

    const std::optional<std::int64_t> unused =
        c.index_sources.empty() ? std::optional<std::int64_t>(1) : std::nullopt;
    c.index_heads = text.integer(same("index_n_heads"), 1, kHeadsMax, unused);
    c.index_dim = text.integer(kIndexDim, 1, kHeadDimMax, unused);
    c.index_topk = text.integer(same("index_topk"), 1, kWidthMax, unused);

    const std::int64_t source =
        text.integer(kCandidateSource, std::numeric_limits<std::int64_t>::min(), last, -1);
    c.candidate_source = source < 0 ? -1 : static_cast<int>(source);
    const std::optional<std::int64_t> off =
        c.candidate_source < 0 ? std::optional<std::int64_t>(1) : std::nullopt;
    c.candidate_blocks = text.integer(same("candidate_topk_blocks"), 1, kVocabMax, off);
    c.candidate_block_size = text.integer(same("candidate_block_size"), 1, 4096, off);
}

void read_engram(Fields& text, ModelConfig& c) {
    constexpr std::size_t kModulesMax = 64;
    const int last = static_cast<int>(c.layers) - 1;
    c.engram_layers = text.list<int>(kEngramLayers, 0, last, kModulesMax, false);
    c.engram_rows = text.list<std::int64_t>(kEngramRows, 1, std::int64_t{1} << 40, kModulesMax,
                                            !c.engram_layers.empty());
    if (c.engram_layers.empty()) {
        c.engram_rows.clear();
        for (Key key : {same("engram_max_ngram_size"), same("engram_n_heads"), kEngramHeadDim,
                        same("engram_vocab_size"), same("engram_compressed_vocab_size"),
                        Key{"engram_pad_token_id", "engram_pad_id"}})
            text.find(key);  // known, though nothing depends on it
        return;
    }
    c.engram_ngram_max = text.integer(same("engram_max_ngram_size"), 2, 16);
    c.engram_heads = text.integer(same("engram_n_heads"), 1, 64);
    c.engram_head_dim = text.integer(kEngramHeadDim, 1, kHeadDimMax);
    c.engram_prime_start = text.integer(same("engram_vocab_size"), 2, std::int64_t{1} << 32);
    c.engram_compressed_vocab = text.integer(same("engram_compressed_vocab_size"), 1, c.vocab_size);
    c.engram_pad_id = static_cast<TokenId>(
        text.integer({"engram_pad_token_id", "engram_pad_id"}, 0, c.vocab_size - 1));
}

void read_drafter(Fields& text, ModelConfig& c) {
    const bool on = c.draft_stages > 0;
    const auto need = [on](std::int64_t unused) {
        return on ? std::nullopt : std::optional<std::int64_t>(unused);
    };
    c.draft_block = text.integer(same("dspark_block_size"), 1, 64, need(1));
    c.draft_markov_rank = text.integer(same("dspark_markov_rank"), 1, kWidthMax, need(1));
    c.draft_experts = text.integer(same("dspark_n_routed_experts"), 1, kExpertsMax, need(1));
    c.draft_experts_per_token = text.integer(kDraftTopExperts, 1, kExpertsMax, need(1));
    c.draft_noise_id = static_cast<TokenId>(
        text.integer(same("dspark_noise_token_id"), 0, c.vocab_size - 1, need(0)));
    c.draft_target_layers =
        text.list<int>(kTargets, 0, static_cast<int>(c.layers) - 1, kDraftStagesMax, on);
    text.exactly(same("dspark_target_attn_input"), true, false);
}

// Token ids and everything about formats that stands outside text_config.
void read_root(const Json& root, bool reference, Problems& problems, ModelConfig& c) {
    Fields fields(root, nullptr, reference, "", problems);
    const std::int64_t last = c.vocab_size - 1;
    c.bos_id = static_cast<TokenId>(fields.integer(same("bos_token_id"), 0, last, 0));
    c.eos_id = static_cast<TokenId>(fields.integer(same("eos_token_id"), 0, last, 1));
    c.pad_id = static_cast<TokenId>(fields.integer(same("pad_token_id"), 0, last, 2));
    c.image_id = static_cast<TokenId>(fields.integer(same("image_token_id"), -1, last, -1));
    fields.exactly(same("model_type"), "deepseek_v41", !reference);
    fields.exactly(same("architectures"), Json::array({"DeepseekV41ForCausalLM"}), !reference);
    if (reference) {
        const Json* dtype = fields.find(same("dtype"));
        c.quantised = dtype == nullptr || *dtype != Json("bf16");
        if (c.quantised) {
            fields.exactly(same("dtype"), "fp8", false);
            fields.exactly(same("scale_fmt"), "ue8m0", false);
            fields.exactly(same("expert_dtype"), "fp4", false);
        }
        return;
    }
    const Json* quantisation = fields.find(same("quantization_config"));
    c.quantised = quantisation != nullptr;
    if (!c.quantised) {
        const Json* dtype = fields.find(same("dtype"));
        if (dtype == nullptr || (*dtype != Json("bfloat16") && *dtype != Json("float32")))
            problems.add("dtype = {}: expected \"bfloat16\" or \"float32\"",
                         dtype == nullptr ? "null" : shown_value(*dtype));
        return;
    }
    fields.exactly(same("dtype"), "bfloat16", true);
    Fields quant(*quantisation, nullptr, false, "quantization_config.", problems);
    quant.exactly(same("quant_method"), "fp8", true);
    quant.exactly(same("activation_scheme"), "dynamic", true);
    quant.exactly(same("weight_block_size"), Json::array({32, 32}), true);
    quant.exactly(same("scale_fmt"), "ue8m0", true);
    quant.exactly(same("expert_dtype"), "fp4", true);
}

// Vision fields of both spellings: an object of its own, or vision_* keys beside the others.
void read_vision(const Json& root, bool reference, Problems& problems, ModelConfig& c) {
    const Json* object = root.find("vision_config");
    const bool own_object = object != nullptr && !object->is_null();
    if (own_object && !object->is_object()) {
        problems.add("vision_config = {}: expected an object", shown_value(*object));
        return;
    }
    if (!own_object) {
        const Json* layers = reference ? root.find("vision_n_layers") : nullptr;
        if (layers == nullptr || *layers == Json(0)) return;
    }
    Fields fields(own_object ? *object : root, nullptr, !own_object,
                  own_object ? "vision_config." : "", problems);
    VisionConfig v;
    v.layers = fields.integer({"num_hidden_layers", "vision_n_layers"}, 1, kLayersMax);
    v.hidden = fields.integer({"hidden_size", "vision_dim"}, 1, 65536);
    v.heads = fields.integer({"num_attention_heads", "vision_n_heads"}, 1, kHeadsMax);
    v.intermediate = fields.integer({"intermediate_size", "vision_inter_dim"}, 1, kWidthMax);
    v.patch = fields.integer({"patch_size", "vision_patch_size"}, 1, 256, 14);
    v.rope_theta = fields.number({"rope_theta", "vision_rope_theta"}, 1, 1e12, 10000);
    v.downsample_ratio = fields.integer({"downsample_ratio", "vision_downsample_ratio"}, 1, 16, 3);
    v.max_image_tokens = fields.integer({"max_image_tokens", "vision_max_n_token"}, 4, 1 << 20);
    v.min_pixels = fields.integer({"min_pixels", "vision_min_pixels"}, 0, std::int64_t{1} << 40, 0);
    const Key ratio{"max_wh_ratio", "vision_max_wh_ratio"};
    if (fields.find(ratio) != nullptr) v.max_wh_ratio = fields.number(ratio, 1, 1e6);
    if (v.hidden % v.heads != 0 || v.hidden / v.heads % 4 != 0)
        problems.add(
            "vision_config: hidden_size {} over num_attention_heads {} must be a multiple of 4 a "
            "head",
            v.hidden, v.heads);
    if (c.image_id < 0) problems.add("image_token_id: missing, required beside vision_config");
    c.vision = v;
}

// ------------------------------------------------------------------------------------- rules

// model.md 9: what the formats and operators need of the sizes.
void check_sizes(const Fields& text, const ModelConfig& c, Problems& problems) {
    constexpr std::int64_t kGroup = 32;
    const auto multiple = [&](const std::string& name, std::int64_t value) {
        if (value % kGroup != 0)
            problems.add("{} = {}: must be a multiple of {}, the group of the quantised formats",
                         name, value, kGroup);
    };
    multiple(text.name(kHidden), c.hidden);
    multiple(text.name(kQueryRank), c.q_lora_rank);
    multiple(text.name(kHeadDim), c.head_dim);
    multiple(text.name(kOutGroups) + "·" + text.name(kOutRank), c.o_groups * c.o_lora_rank);
    multiple(text.name(kInter), c.expert_inter);
    if (!c.engram_layers.empty()) multiple(text.name(kEngramHeadDim), c.engram_head_dim);
    if (c.heads % c.o_groups != 0)
        problems.add("{} = {}: must be a multiple of {} = {}", text.name(kHeads), c.heads,
                     text.name(kOutGroups), c.o_groups);
    if (c.rope_dim % 2 != 0 || c.rope_dim >= c.head_dim)
        problems.add("{} = {}: must be even and below {} = {}", text.name(kRopeDim), c.rope_dim,
                     text.name(kHeadDim), c.head_dim);
    if (!c.index_sources.empty()) {
        multiple(text.name(kIndexDim), c.index_dim);
        if (c.rope_dim >= c.index_dim)
            problems.add("{} = {}: must be below {} = {}", text.name(kRopeDim), c.rope_dim,
                         text.name(kIndexDim), c.index_dim);
    }
    if (c.experts_per_token > c.experts)
        problems.add("{} = {}: exceeds n_routed_experts = {}", text.name(kTopExperts),
                     c.experts_per_token, c.experts);
    if (c.yarn.factor > 1 && c.max_positions <= c.yarn.original_max_position)
        problems.add("{} = {}: must exceed the original length {}, else YaRN would not apply",
                     text.name(kPositions), c.max_positions, c.yarn.original_max_position);
    if (c.yarn.factor > 1 && c.yarn.beta_fast <= c.yarn.beta_slow)
        problems.add("beta_fast = {}: must exceed beta_slow = {}", c.yarn.beta_fast,
                     c.yarn.beta_slow);
    const std::int64_t tensors =
        6 * (c.layers * (c.experts + 8) + c.draft_stages * (c.draft_experts + 8));
    if (tensors > kTensorsMax)
        problems.add("{} = {} with n_routed_experts = {}: more than {} tensors", text.name(kLayers),
                     c.layers, c.experts, kTensorsMax);
}

bool check_sorted(const std::string& name, const std::vector<int>& list, Problems& problems) {
    const bool sorted = std::adjacent_find(list.begin(), list.end(),
                                           [](int a, int b) { return a >= b; }) == list.end();
    if (!sorted) problems.add("{} = {}: must be sorted and unique", name, list_text(list));
    return sorted;
}

bool contains(const std::vector<int>& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}

// Every layer of `coarse` must be in `fine`: then the segments that `fine` cuts refine those of
// `coarse`.
void check_refines(const std::string& fine_name, const std::vector<int>& fine,
                   const std::string& coarse_name, const std::vector<int>& coarse,
                   Problems& problems) {
    for (int layer : coarse) {
        if (!contains(fine, layer))
            problems.add(
                "{} = {}: lacks layer {}, which is in {}; every source there must be one "
                "here too",
                fine_name, list_text(fine), layer, coarse_name);
    }
}

// The largest source <= layer, or -1.
int source_of(const std::vector<int>& sources, int layer) {
    const auto after = std::upper_bound(sources.begin(), sources.end(), layer);
    return after == sources.begin() ? -1 : *(after - 1);
}

void check_sharing(const Fields& text, const ModelConfig& c, Problems& problems) {
    const auto ratio = [&](int layer) {
        return c.compress_ratios[static_cast<std::size_t>(layer)];
    };
    for (const auto& [key, sources] :
         {std::pair(kKvSources, &c.kv_sources), std::pair(kIndexSources, &c.index_sources)}) {
        for (int layer : *sources) {
            if (ratio(layer) == 0)
                problems.add("{} = {}: layer {} has compress ratio 0, a source needs 1 or 2",
                             text.name(key), list_text(*sources), layer);
        }
        for (int layer = 0; layer < c.layers; ++layer) {
            if (ratio(layer) == 0) continue;
            const int source = source_of(*sources, layer);
            if (source < 0)
                problems.add(
                    "{} = {}: layer {} has compress ratio {} but no source at or before it",
                    text.name(key), list_text(*sources), layer, ratio(layer));
            else if (ratio(source) != ratio(layer) && ratio(source) != 0)
                problems.add(
                    "{} = {}: layer {} has compress ratio {}, its source {} has {}; they "
                    "must be equal",
                    text.name(key), list_text(*sources), layer, ratio(layer), source,
                    ratio(source));
        }
    }
    check_refines(text.name(kIndexSources), c.index_sources, text.name(kKvSources), c.kv_sources,
                  problems);
    check_refines(text.name(kIndexSources), c.index_sources, text.name(kIndexKSources),
                  c.index_k_sources, problems);
    check_refines(text.name(kIndexKSources), c.index_k_sources, text.name(kKvSources), c.kv_sources,
                  problems);
    for (int layer : c.index_k_sources) {
        // Its keys would need a latent that no compressor of this layer makes, and no released
        // checkpoint shows from where it would come.
        if (!contains(c.kv_sources, layer))
            problems.add(
                "{} = {}: layer {} owns no compressor ({} = {}); index keys without one "
                "are not supported",
                text.name(kIndexKSources), list_text(c.index_k_sources), layer,
                text.name(kKvSources), list_text(c.kv_sources));
    }
}

void check_candidates(const Fields& text, const ModelConfig& c, Problems& problems) {
    if (c.candidate_source < 0) return;
    const std::string name = text.name(kCandidateSource);
    if (!contains(c.index_sources, c.candidate_source)) {
        problems.add("{} = {}: must be an index source, {} = {}", name, c.candidate_source,
                     text.name(kIndexSources), list_text(c.index_sources));
        return;
    }
    const int ratio = c.compress_ratios[static_cast<std::size_t>(c.candidate_source)];
    for (int layer : c.index_sources) {
        const int own = c.compress_ratios[static_cast<std::size_t>(layer)];
        if (layer > c.candidate_source && own != ratio)
            problems.add("{} = {}: index source {} comes later and has compress ratio {}, not {}",
                         name, c.candidate_source, layer, own, ratio);
    }
    const std::int64_t capacity =
        c.candidate_blocks * c.candidate_block_size - (c.candidate_block_size - 1);
    if (capacity < c.index_topk)
        problems.add(
            "candidate_topk_blocks·candidate_block_size − (candidate_block_size − 1) = {}·{} − {} "
            "= {}: must be at least index_topk = {}",
            c.candidate_blocks, c.candidate_block_size, c.candidate_block_size - 1, capacity,
            c.index_topk);
}

void check_modules(const Fields& text, const ModelConfig& c, Problems& problems) {
    if (c.engram_rows.size() != c.engram_layers.size())
        problems.add("{} = {}: must have one entry for each of {} = {}", text.name(kEngramRows),
                     list_text(c.engram_rows), text.name(kEngramLayers),
                     list_text(c.engram_layers));
    check_sorted(text.name(kEngramLayers), c.engram_layers, problems);
    for (std::size_t i = static_cast<std::size_t>(c.layers); i < c.compress_ratios.size(); ++i) {
        if (c.compress_ratios[i] != 0)
            problems.add("{}: entry {} (draft stage {}) is {}, expected 0", text.name(kRatios), i,
                         i - static_cast<std::size_t>(c.layers), c.compress_ratios[i]);
    }
    if (c.draft_stages == 0) return;
    if (c.draft_target_layers.empty())
        problems.add("{}: must name at least one layer", text.name(kTargets));
    check_sorted(text.name(kTargets), c.draft_target_layers, problems);
    if (c.draft_experts_per_token > c.draft_experts)
        problems.add("{} = {}: exceeds dspark_n_routed_experts = {}", text.name(kDraftTopExperts),
                     c.draft_experts_per_token, c.draft_experts);
}

void check_rules(const Fields& text, const ModelConfig& c, Problems& problems) {
    check_sizes(text, c, problems);
    const std::int64_t expected = c.layers + c.draft_stages;
    if (static_cast<std::int64_t>(c.compress_ratios.size()) != expected) {
        problems.add(
            "{} has {} entries: expected {} (one for each of {} layers and {} draft "
            "stages)",
            text.name(kRatios), c.compress_ratios.size(), expected, c.layers, c.draft_stages);
        return;
    }
    check_modules(text, c, problems);
    bool sorted = true;
    for (const auto& [key, sources] :
         {std::pair(kKvSources, &c.kv_sources), std::pair(kIndexSources, &c.index_sources),
          std::pair(kIndexKSources, &c.index_k_sources)})
        sorted = check_sorted(text.name(key), *sources, problems) && sorted;
    if (!sorted) return;
    check_sharing(text, c, problems);
    check_candidates(text, c, problems);
}

void resolve_roles(ModelConfig& c) {
    c.roles.resize(static_cast<std::size_t>(c.layers));
    for (int layer = 0; layer < c.layers; ++layer) {
        LayerRole& role = c.roles[static_cast<std::size_t>(layer)];
        role.ratio = c.compress_ratios[static_cast<std::size_t>(layer)];
        const auto engram = std::find(c.engram_layers.begin(), c.engram_layers.end(), layer);
        if (engram != c.engram_layers.end())
            role.engram = static_cast<int>(engram - c.engram_layers.begin());
        if (role.ratio == 0) continue;
        role.kv_owner = source_of(c.kv_sources, layer);
        role.index_source = source_of(c.index_sources, layer);
        role.index_k_owner = source_of(c.index_k_sources, layer);
        role.owns_kv = role.kv_owner == layer;
        role.owns_index_k = role.index_k_owner == layer;
        role.runs_indexer = role.index_source == layer;
        role.is_candidate_source = layer == c.candidate_source;
        role.uses_candidates =
            role.runs_indexer && c.candidate_source >= 0 && layer > c.candidate_source;
    }
}

// Reads and checks everything; the result counts only when `problems` stays empty.
ModelConfig read_config(const Json& root, const Json* overrides, Problems& problems) {
    ModelConfig c;
    const Json* text_object = root.find("text_config");
    const bool reference = text_object == nullptr && root.find("dim") != nullptr;
    if (!reference && (text_object == nullptr || !text_object->is_object())) {
        problems.add(
            "text_config: missing or no object (and no key dim, so this is no flat "
            "inference/config.json either)");
        return c;
    }
    if (overrides != nullptr && !overrides->is_object()) {
        problems.add("overrides = {}: expected an object of text_config keys",
                     shown_value(*overrides));
        return c;
    }
    Fields text(reference ? root : *text_object, overrides, reference,
                reference ? "" : "text_config.", problems);
    if (!reference) text.exactly(same("model_type"), "deepseek_v41_text", false);
    read_backbone(text, c);
    if (!problems.empty()) return c;  // the limits below depend on these
    const Json* scaling = reference ? nullptr : text.find(same("rope_scaling"));
    if (scaling != nullptr && !scaling->is_object()) {
        problems.add("text_config.rope_scaling = {}: expected an object", shown_value(*scaling));
        scaling = nullptr;
    }
    read_rotary(scaling, text, problems, c);
    read_experts(text, c);
    read_compression(text, c);
    read_engram(text, c);
    read_drafter(text, c);
    read_root(root, reference, problems, c);
    read_vision(root, reference, problems, c);
    if (overrides != nullptr) {
        for (const auto& [key, value] : overrides->members()) {
            if (!text.used().contains(key))
                problems.add("override {} = {}: no text_config key that is read", key,
                             shown_value(value));
        }
    }
    // Rules relate values to each other; they mean nothing while single values are wrong.
    if (problems.empty()) check_rules(text, c, problems);
    return c;
}

}  // namespace

Result<ModelConfig> parse_model_config(const Json& root, const Json* overrides,
                                       std::vector<std::string>* problems) {
    if (!root.is_object())
        return invalid_argument("expected a JSON object, got {}", root.kind_name());
    Problems found;
    ModelConfig config = read_config(root, overrides, found);
    if (problems != nullptr) *problems = found.list();
    if (!found.empty()) return found.status();
    resolve_roles(config);
    return config;
}

}  // namespace fathom
