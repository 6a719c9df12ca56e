// The x86 back end: operators split over the pool here, arithmetic in level/ (compiled once an
// instruction set and reached through tables of functions on plain structs).
//
// Calls with fp32 activations (the checking mode) and weights stored as fp32 go to the scalar
// oracle, which reads the checkpoint in place: that mode exists to check structure, not to be fast.
#pragma once

#include <memory>

#include "kernels/ops.h"
#include "kernels/x86/attention_kernels.h"
#include "kernels/x86/cache_kernels.h"
#include "kernels/x86/create.h"
#include "kernels/x86/index_kernels.h"
#include "kernels/x86/linear_kernels.h"
#include "kernels/x86/mhc_kernels.h"
#include "kernels/x86/moe_plan.h"
#include "kernels/x86/row_kernels.h"
#include "kernels/x86/select_kernels.h"

namespace fathom::x86 {

class X86Backend final : public Backend {
  public:
    X86Backend(std::shared_ptr<ComputePool> pool, Level level);

    const char* name() const override;
    ComputePool& pool() override { return *pool_; }

    // linear.cc
    std::unique_ptr<PackedWeight> pack(const WeightSource& source) override;
    std::unique_ptr<PackedGateUp> pack_gate_up(const WeightSource& gate,
                                               const WeightSource& up) override;
    std::string_view image_layout() const override { return "x86-panels-1"; }
    std::int64_t image_bytes(const WeightSource& source) const override;
    std::int64_t gate_up_image_bytes(const WeightSource& gate,
                                     const WeightSource& up) const override;
    std::unique_ptr<PackedWeight> adopt(const WeightSource& source,
                                        std::span<const std::byte> image) override;
    std::unique_ptr<PackedGateUp> adopt_gate_up(const WeightSource& gate, const WeightSource& up,
                                                std::span<const std::byte> image) override;
    void linear(ConstRows x, const PackedWeight& w, Rows y) override;
    void grouped_linear(ConstRows x, const PackedWeight& w, std::int64_t groups, Rows y) override;

    // rows.cc
    void q8_round_trip(ConstRows src, Rows dst) override;
    void rms_norm(ConstRows x, const Bf16* w, float eps, Rows y) override;
    void rope(Rows x, std::int64_t heads, std::int64_t head_dim,
              std::span<const std::int64_t> positions, const RopeTable& table,
              bool inverse) override;

    // mhc.cc
    void mhc_mix(ConstRows streams, const MhcWeights& w, std::span<float> pre,
                 std::span<float> post, std::span<float> comb) override;
    void mhc_collapse(ConstRows streams, std::int64_t n_streams, std::span<const float> pre,
                      Rows x) override;
    void mhc_expand(Rows streams, std::int64_t n_streams, ConstRows y, std::span<const float> post,
                    std::span<const float> comb) override;

    // cache.cc
    void compress_pair(ConstRows u0, ConstRows g0, ConstRows u1, ConstRows g1, Rows y) override;
    void store_kv(ConstRows x, KvKind kind, KvFormat format, std::span<const KvRow> dst) override;
    void load_kv(KvFormat format, std::span<const ConstKvRow> src, Rows y) override;
    void index_round_trip(Rows x) override;

    // indexer.cc
    void index_scores(const IndexScoreArgs& args) override;
    std::int64_t select_top(std::span<const float> scores, std::int64_t k,
                            std::span<std::int32_t> out) override;
    std::int64_t select_blocks(std::span<const float> scores, std::int64_t block_size,
                               std::int64_t k, std::span<std::int32_t> out) override;

    // attention.cc
    void sparse_attention(const AttentionArgs& args) override;

    // moe.cc
    void route(const RouterArgs& args) override;
    void gate_up(ConstRows x, const PackedGateUp& w, std::span<const float> weights, float limit,
                 NumericMode mode, Rows t) override;
    void moe(const MoeArgs& args) override;

    // engram.cc
    void engram_lookup(const EngramTable& table, std::span<const std::int64_t> ids,
                       std::int64_t ids_per_row, Rows y) override;
    void engram_gate(const EngramGateArgs& args) override;

  private:
    // A stored row in any format but f32, as bf16; cache.cc.
    void load_row(KvFormat format, std::int64_t dim, const ConstKvRow& row, std::uint16_t* y) const;
    // moe.cc
    void run_inner(const MoePlan& plan, float limit);
    void walk_down(const MoePlan& plan, Rows y);
    void run_down(const MoePlan& plan, Rows y);

    std::shared_ptr<ComputePool> pool_;
    ImageArena arena_;  // of packed weights
    const Level level_;
    const RowKernels& rows_;
    const MhcKernels& mhc_;
    const CacheKernels& cache_;
    const AttentionKernels& attention_;
    const SelectKernels& select_;
    const IndexKernels& index_;
    const LinearKernels& linear_;
    MoePlan moe_plan_;                 // of the call in progress; kept for its memory
    std::unique_ptr<Backend> oracle_;  // on the same pool
};

}  // namespace fathom::x86
