#include "model/backbone.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/check.h"

namespace fathom {

namespace {

void store_float(Rows x, std::int64_t row, std::int64_t col, float value) {
    const std::int64_t at = row * x.stride + col;
    if (x.dtype == DType::f32)
        static_cast<float*>(x.data)[at] = value;
    else
        static_cast<Bf16*>(x.data)[at] = bf16_from_float(value);
}

Rows row_range(Rows x, std::int64_t first, std::int64_t count) {
    x.data = static_cast<std::uint8_t*>(x.data) + first * x.stride * dtype_bytes(x.dtype);
    x.rows = count;
    return x;
}

// Moves rows kept[i] to i; kept ascends, so copying forward never overwrites what is still needed.
void compact_rows(Rows x, std::span<const std::int64_t> kept) {
    const auto row_bytes = static_cast<std::size_t>(x.stride * dtype_bytes(x.dtype));
    auto* base = static_cast<std::uint8_t*>(x.data);
    for (std::size_t i = 0; i < kept.size(); ++i)
        if (static_cast<std::size_t>(kept[i]) != i)
            std::memmove(base + i * row_bytes, base + static_cast<std::size_t>(kept[i]) * row_bytes,
                         row_bytes);
}

Status check_token_map(const ModelConfig& config, const std::vector<std::int32_t>& map) {
    if (config.engram_layers.empty()) return {};
    if (static_cast<std::int64_t>(map.size()) != config.vocab_size)
        return invalid_argument("token map: {} entries, but vocab_size is {}", map.size(),
                                config.vocab_size);
    const std::set<std::int32_t> distinct(map.begin(), map.end());
    if (static_cast<std::int64_t>(distinct.size()) != config.engram_compressed_vocab)
        return invalid_argument(
            "token map: the tokenizer gives {} distinct keys, but engram_compressed_vocab_size is "
            "{}; "
            "tokenizer.json does not belong to this checkpoint",
            distinct.size(), config.engram_compressed_vocab);
    return {};
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(std::shared_ptr<const Checkpoint> checkpoint,
                                           std::vector<std::int32_t> token_map,
                                           std::shared_ptr<Backend> backend,
                                           const ModelOptions& options,
                                           std::shared_ptr<const PackedFile> packed) {
    FATHOM_RETURN_IF_ERROR(validate_numerics(options.numerics));
    if (options.rows_max < 1 || options.rows_max > 32768)
        return invalid_argument("rows_max: {} is outside 1..32768", options.rows_max);
    ModelOptions resolved = options;
    if (options.numerics.mode == NumericMode::fp32) resolved.storage = CacheStorage::f32;
    if (options.numerics.mode == NumericMode::real && options.storage == CacheStorage::f32)
        return invalid_argument("storage: f32 caches belong to the fp32 mode only");
    const ModelConfig& config = checkpoint->config();
    FATHOM_RETURN_IF_ERROR(check_token_map(config, token_map));
    FATHOM_ASSIGN(std::vector<EngramHash> hashes, make_engram_hashes(config));
    return std::unique_ptr<Model>(
        std::make_unique<Backbone>(std::move(checkpoint), std::move(token_map), std::move(hashes),
                                   std::move(backend), resolved, std::move(packed)));
}

Backbone::Backbone(std::shared_ptr<const Checkpoint> checkpoint,
                   std::vector<std::int32_t> token_map, std::vector<EngramHash> hashes,
                   std::shared_ptr<Backend> backend, const ModelOptions& options,
                   std::shared_ptr<const PackedFile> packed)
    : checkpoint_(std::move(checkpoint)),
      packed_(std::move(packed)),
      config_(checkpoint_->config()),
      options_(options),
      layout_(make_kv_layout(config_, options.storage)),
      backend_(std::move(backend)),
      ops_(*backend_),
      weights_(load_weights(*checkpoint_, ops_, packed_.get())),
      rope_window_(make_rope_table(config_.rope_theta, config_.rope_dim, {})),
      rope_compress_(make_rope_table(config_.compress_rope_theta, config_.rope_dim, config_.yarn)),
      token_map_(std::move(token_map)),
      hashes_(std::move(hashes)),
      work_(config_, options) {
    work_.allocate();
}

ConstRows Backbone::quantised(ConstRows x, Buffer& scratch) {
    if (!real()) return x;
    const Rows q8 = scratch.view(x.rows, x.cols);
    ops_.q8_round_trip(x, q8);
    return q8;
}

void Backbone::forward(std::span<const StepSpan> spans, Rows logits, Probe* probe) {
    const FlushDenormals flush;
    probe_ = probe;
    batch_ = make_batch(spans);
    FATHOM_CHECK(batch_.rows > 0 && batch_.rows <= options_.rows_max);
    embed();
    for (int layer = 0; layer < config_.layers && batch_.rows > 0; ++layer)
        block(layer);
    head(logits);
    probe_ = nullptr;
}

// model.md 3.1
void Backbone::embed() {
    const Rows x = work_.x_streams.view(batch_.rows, config_.streams * config_.hidden);
    for (std::int64_t i = 0; i < batch_.rows; ++i) {
        const SequenceState& sequence =
            *batch_.spans[static_cast<std::size_t>(batch_.span_of[static_cast<std::size_t>(i)])]
                 .sequence;
        const std::int64_t position = batch_.positions[static_cast<std::size_t>(i)];
        const TokenId id = sequence.ids[static_cast<std::size_t>(position)];
        FATHOM_CHECK(id >= 0 && id < config_.vocab_size);
        const float* replaced = nullptr;
        for (const EmbeddingSpan& span : sequence.embeddings)
            if (position >= span.start && position < span.start + span.count)
                replaced = span.rows + (position - span.start) * config_.hidden;
        const Bf16* row = weights_.embed + id * config_.hidden;
        for (std::int64_t d = 0; d < config_.hidden; ++d)
            store_float(x, i, d, replaced != nullptr ? replaced[d] : bf16_to_float(row[d]));
        const Rows first = row_range(x, i, 1);
        const auto bytes = static_cast<std::size_t>(config_.hidden * dtype_bytes(x.dtype));
        for (std::int64_t s = 1; s < config_.streams; ++s)
            std::memcpy(static_cast<std::byte*>(first.data) + static_cast<std::size_t>(s) * bytes,
                        first.data, bytes);
    }
    pre_.assign(static_cast<std::size_t>(batch_.rows * config_.streams), 0.0f);
    for (std::int64_t i = 0; i < batch_.rows; ++i)
        pre_[static_cast<std::size_t>(i * config_.streams)] = 1.0f;
    if (probe_ != nullptr) {
        Rows first = x;
        first.cols = config_.hidden;
        probe_rows(-1, "embed", first);
    }
}

// model.md 2.1: one layer. The collapse of each sublayer uses the `pre` of the sublayer before it.
void Backbone::block(int layer) {
    const std::int64_t h = config_.streams;
    const LayerWeights& w = weights(layer);
    if (role(layer).engram >= 0) engram(layer);

    Rows streams = work_.x_streams.view(batch_.rows * h);
    Rows x = work_.x_in.view(batch_.rows);
    ops_.mhc_collapse(streams, h, pre_, x);
    ops_.rms_norm(x, w.attn_norm.data(), config_.norm_eps, x);
    probe_rows(layer, "attn_in", x);
    if (role(layer).owns_kv) compress(layer, x);
    if (layer == config_.boundary()) {
        drop_encoder_rows();
        if (batch_.rows == 0) return;
        streams = work_.x_streams.view(batch_.rows * h);
    }

    const auto rows = static_cast<std::size_t>(batch_.rows);
    next_pre_.resize(rows * static_cast<std::size_t>(h));
    post_.resize(rows * static_cast<std::size_t>(h));
    comb_.resize(rows * static_cast<std::size_t>(h * h));
    ops_.mhc_mix(streams, w.hc_attn.view, next_pre_, post_, comb_);
    probe_floats(layer, "attn_pre", next_pre_, h);
    probe_floats(layer, "attn_post", post_, h);
    probe_floats(layer, "attn_comb", comb_, h * h);
    attention(layer);
    ops_.mhc_expand(streams, h, work_.y.view(batch_.rows), post_, comb_);
    probe_rows(layer, "X_mid", streams, h);

    pre_.swap(next_pre_);  // A_pre collapses for the experts
    ops_.mhc_mix(streams, w.hc_ffn.view, next_pre_, post_, comb_);
    probe_floats(layer, "ffn_post", post_, h);
    probe_floats(layer, "ffn_comb", comb_, h * h);
    experts(layer, pre_);
    ops_.mhc_expand(streams, h, work_.y.view(batch_.rows), post_, comb_);
    pre_.swap(next_pre_);  // F_pre is handed to the next block
    probe_rows(layer, "X", streams, h);
    probe_floats(layer, "pre", pre_, h);
}

// model.md 3.11
void Backbone::engram(int layer) {
    const LayerWeights& w = weights(layer);
    const EngramHash& hash = hashes_[static_cast<std::size_t>(role(layer).engram)];
    const std::int64_t columns = config_.engram_columns();
    engram_ids_.resize(static_cast<std::size_t>(batch_.rows * columns));
    for (const BatchSpan& span : batch_.spans)
        engram_rows(config_, hash, token_map_, span.sequence->ids, span.sequence->in_image,
                    span.start, span.count,
                    std::span(engram_ids_)
                        .subspan(static_cast<std::size_t>(span.first_row * columns),
                                 static_cast<std::size_t>(span.count * columns)));
    const Rows in = work_.engram_in.view(batch_.rows);
    ops_.engram_lookup(w.engram.table, engram_ids_, columns, in);
    const Rows kv = work_.engram_kv.view(batch_.rows);
    ops_.linear(quantised(in, work_.engram_q8), *w.engram.wkv, kv);
    engram_gates_.resize(static_cast<std::size_t>(batch_.rows * config_.streams));
    const Rows streams = work_.x_streams.view(batch_.rows * config_.streams);
    ops_.engram_gate({.x = streams,
                      .kv = kv,
                      .q_weight = w.engram.q_weight.data(),
                      .k_weight = w.engram.k_weight.data(),
                      .streams = config_.streams,
                      .eps = config_.norm_eps,
                      .in_image = batch_.in_image,
                      .gates = engram_gates_});
    if (probe_ == nullptr) return;
    std::vector<std::int32_t> ids(engram_ids_.begin(), engram_ids_.end());
    probe_->ints(layer, "engram_rows", ids, columns, batch_.positions);
    probe_rows(layer, "engram_kv", kv);
    probe_floats(layer, "engram_gate", engram_gates_, config_.streams);
    probe_rows(layer, "engram_X", streams, config_.streams);
}

// model.md 3.10
void Backbone::experts(int layer, std::span<const float> pre) {
    const LayerWeights& w = weights(layer);
    const Rows x = work_.x_in.view(batch_.rows);
    ops_.mhc_collapse(work_.x_streams.view(batch_.rows * config_.streams), config_.streams, pre, x);
    ops_.rms_norm(x, w.ffn_norm.data(), config_.norm_eps, x);
    probe_rows(layer, "ffn_in", x);
    const std::int64_t k = config_.experts_per_token;
    expert_ids_.resize(static_cast<std::size_t>(batch_.rows * k));
    expert_weights_.resize(expert_ids_.size());
    ops_.route({.x = x,
                .gate = w.gate.get(),
                .bias = w.gate_bias,
                .bias_vl = w.gate_bias_vl,
                .in_image = batch_.in_image,
                .top_k = k,
                .gate_temp = config_.gate_temp,
                .route_scale = config_.route_scale,
                .experts = expert_ids_,
                .weights = expert_weights_});
    if (probe_ != nullptr) {
        probe_->ints(layer, "experts", expert_ids_, k, batch_.positions);
        probe_floats(layer, "expert_weights", expert_weights_, k);
    }
    const Rows y = work_.y.view(batch_.rows);
    ops_.moe({.x_q8 = quantised(x, work_.x_q8),
              .top_k = k,
              .experts = expert_ids_,
              .weights = expert_weights_,
              .routed = w.experts,
              .shared = &w.shared,
              .swiglu_limit = config_.swiglu_limit,
              .numerics = &options_.numerics,
              .y = y});
    probe_rows(layer, "moe_out", y);
}

// After the last KV source has taken its entries, rows without a decoder half are finished (2.2).
void Backbone::drop_encoder_rows() {
    Batch rest = keep_decoder_rows(batch_, kept_);
    if (rest.rows == batch_.rows) return;
    compact_rows(work_.x_streams.view(batch_.rows, config_.streams * config_.hidden), kept_);
    compact_rows(work_.x_in.view(batch_.rows), kept_);
    compact_rows({.data = pre_.data(),
                  .dtype = DType::f32,
                  .rows = batch_.rows,
                  .cols = config_.streams,
                  .stride = config_.streams},
                 kept_);
    batch_ = std::move(rest);
    pre_.resize(static_cast<std::size_t>(batch_.rows * config_.streams));
}

// model.md 3.12
void Backbone::head(Rows logits) {
    std::vector<std::int64_t> wanted;
    for (const BatchSpan& span : batch_.spans)
        for (std::int64_t i = 0; i < span.count; ++i)
            if (span.start + i >= span.logits_begin) wanted.push_back(span.first_row + i);
    FATHOM_CHECK(logits.rows == static_cast<std::int64_t>(wanted.size()));
    if (batch_.rows == 0 || wanted.empty()) return;
    const Rows h = work_.head_in.view(batch_.rows);
    ops_.mhc_collapse(work_.x_streams.view(batch_.rows * config_.streams), config_.streams, pre_,
                      h);
    probe_rows(-1, "final_hidden", h);
    compact_rows(h, wanted);
    const Rows normed = work_.head_norm.view(logits.rows);
    ops_.rms_norm(row_range(h, 0, logits.rows), weights_.norm.data(), config_.norm_eps, normed);
    ops_.linear(normed, *weights_.head, logits);
}

void Backbone::probe_rows(int layer, std::string_view name, Rows x, std::int64_t per_position) {
    if (probe_ != nullptr) probe_->rows(layer, name, x, per_position, batch_.positions);
}

void Backbone::probe_floats(int layer, std::string_view name, std::vector<float>& x,
                            std::int64_t width) {
    if (probe_ != nullptr) probe_->floats(layer, name, x, width, batch_.positions);
}

}  // namespace fathom
