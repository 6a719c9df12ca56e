// A back end that forwards every operator to another and adds up the wall time each takes, for the
// tables of a whole model by operator. One owner thread, as every back end has.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kernels/ops.h"

namespace fathom::bench {

class TimedBackend final : public Backend {
  public:
    explicit TimedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

    const std::map<std::string, double>& seconds() const { return seconds_; }
    void reset() { seconds_.clear(); }

    const char* name() const override { return inner_->name(); }
    ComputePool& pool() override { return inner_->pool(); }
    std::unique_ptr<PackedWeight> pack(const WeightSource& source) override {
        return inner_->pack(source);
    }
    std::unique_ptr<PackedGateUp> pack_gate_up(const WeightSource& gate,
                                               const WeightSource& up) override {
        return inner_->pack_gate_up(gate, up);
    }
    void linear(ConstRows x, const PackedWeight& w, Rows y) override {
        time("linear", [&] { inner_->linear(x, w, y); });
    }
    void grouped_linear(ConstRows x, const PackedWeight& w, std::int64_t groups, Rows y) override {
        time("grouped_linear", [&] { inner_->grouped_linear(x, w, groups, y); });
    }
    void q8_round_trip(ConstRows src, Rows dst) override {
        time("q8_round_trip", [&] { inner_->q8_round_trip(src, dst); });
    }
    void rms_norm(ConstRows x, const Bf16* w, float eps, Rows y) override {
        time("rms_norm", [&] { inner_->rms_norm(x, w, eps, y); });
    }
    void rope(Rows x, std::int64_t heads, std::int64_t head_dim,
              std::span<const std::int64_t> positions, const RopeTable& table,
              bool inverse) override {
        time("rope", [&] { inner_->rope(x, heads, head_dim, positions, table, inverse); });
    }
    void mhc_mix(ConstRows streams, const MhcWeights& w, std::span<float> pre,
                 std::span<float> post, std::span<float> comb) override {
        time("mhc_mix", [&] { inner_->mhc_mix(streams, w, pre, post, comb); });
    }
    void mhc_collapse(ConstRows streams, std::int64_t n_streams, std::span<const float> pre,
                      Rows x) override {
        time("mhc_collapse", [&] { inner_->mhc_collapse(streams, n_streams, pre, x); });
    }
    void mhc_expand(Rows streams, std::int64_t n_streams, ConstRows y, std::span<const float> post,
                    std::span<const float> comb) override {
        time("mhc_expand", [&] { inner_->mhc_expand(streams, n_streams, y, post, comb); });
    }
    void compress_pair(ConstRows u0, ConstRows g0, ConstRows u1, ConstRows g1, Rows y) override {
        time("compress_pair", [&] { inner_->compress_pair(u0, g0, u1, g1, y); });
    }
    void store_kv(ConstRows x, KvKind kind, KvFormat format, std::span<const KvRow> dst) override {
        time("store_kv", [&] { inner_->store_kv(x, kind, format, dst); });
    }
    void load_kv(KvFormat format, std::span<const ConstKvRow> src, Rows y) override {
        time("load_kv", [&] { inner_->load_kv(format, src, y); });
    }
    void index_round_trip(Rows x) override {
        time("index_round_trip", [&] { inner_->index_round_trip(x); });
    }
    void index_scores(const IndexScoreArgs& args) override {
        time("index_scores", [&] { inner_->index_scores(args); });
    }
    // Selections run inside pool tasks of the model: not timed, since threads would share a clock.
    std::int64_t select_top(std::span<const float> scores, std::int64_t k,
                            std::span<std::int32_t> out) override {
        return inner_->select_top(scores, k, out);
    }
    std::int64_t select_blocks(std::span<const float> scores, std::int64_t block_size,
                               std::int64_t k, std::span<std::int32_t> out) override {
        return inner_->select_blocks(scores, block_size, k, out);
    }
    void sparse_attention(const AttentionArgs& args) override {
        time("sparse_attention", [&] { inner_->sparse_attention(args); });
    }
    void route(const RouterArgs& args) override {
        time("route", [&] { inner_->route(args); });
    }
    void gate_up(ConstRows x, const PackedGateUp& w, std::span<const float> weights, float limit,
                 NumericMode mode, Rows t) override {
        time("gate_up", [&] { inner_->gate_up(x, w, weights, limit, mode, t); });
    }
    void moe(const MoeArgs& args) override {
        time("moe", [&] { inner_->moe(args); });
    }
    void engram_lookup(const EngramTable& table, std::span<const std::int64_t> ids,
                       std::int64_t ids_per_row, Rows y) override {
        time("engram_lookup", [&] { inner_->engram_lookup(table, ids, ids_per_row, y); });
    }
    void engram_gate(const EngramGateArgs& args) override {
        time("engram_gate", [&] { inner_->engram_gate(args); });
    }

  private:
    template <class Call>
    void time(const char* what, const Call& call) {
        const auto start = std::chrono::steady_clock::now();
        call();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        seconds_[what] += taken.count();
    }

    std::unique_ptr<Backend> inner_;
    std::map<std::string, double> seconds_;
};

}  // namespace fathom::bench
