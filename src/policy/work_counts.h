// How much work a slice of a sequence is, counted exactly and in constant time: rows of the encoder
// and decoder halves, and pairs of a query with a key. A slice is `rows` new tokens after `context`
// tokens of one sequence.
//
// The pair counts are closed forms (deepinfer-engine.md 9). A query at position p sees ⌊(p+1)/r⌋
// compressed entries of ratio r, so with b = ⌊n/r⌋
//
//   uncapped  f(n, r)    = Σ_{i=1..n} ⌊i/r⌋         = b(n+1) − r·b(b+1)/2
//   top-k     g(n, r, C) = Σ_{i=1..n} min(⌊i/r⌋, C) = f(min(n, rC), r) + max(n − rC, 0)·C
//   window    g(·, 1, W) on positions counted from the first one that is visible
//   blocks    candidates come in whole blocks of B entries, so B·g on ratio r·B, shifted by r(B−1)
//
// and a slice [s, e) has the difference of two of them.
#pragma once

#include <cstdint>
#include <vector>

namespace fathom {

std::int64_t pairs_uncapped(std::int64_t n, std::int64_t ratio);
std::int64_t pairs_capped(std::int64_t n, std::int64_t ratio, std::int64_t cap);

// Layers that do the same work, counted once.
struct LayerKind {
    std::int64_t layers = 0;
    std::int64_t ratio = 0;  // 0: window only
    bool owns_kv = false, owns_index_k = false, runs_indexer = false, uses_candidates = false;
    bool engram = false;
};

// What the counts need to know of a model.
struct ModelShape {
    std::int64_t hidden = 0, streams = 0, vocab = 0;
    std::int64_t heads = 0, head_dim = 0, q_lora_rank = 0, o_groups = 0, o_lora_rank = 0;
    std::int64_t window = 0;
    std::int64_t experts = 0, experts_per_token = 0, shared_experts = 0, expert_inter = 0;
    std::int64_t index_heads = 0, index_dim = 0, index_topk = 0;
    std::int64_t candidate_blocks = 0, candidate_block_size = 0;
    std::int64_t engram_columns = 0;  // of all n-gram orders and heads: values of one Engram row
    std::vector<LayerKind> encoder;
    LayerKind boundary;  // its owner part runs for all rows, the rest is decoder; layers 0 or 1
    std::vector<LayerKind> decoder;  // behind the boundary
};

struct Slice {
    std::int64_t context = 0;       // tokens before it
    std::int64_t rows = 0;          // >= 1
    std::int64_t decoder_rows = 0;  // the last ones run the decoder half too
    std::int64_t logits_rows = 0;
    // Window keys before these positions are absent (replay, tail-only prefill).
    std::int64_t encoder_floor = 0, decoder_floor = 0;
    bool first = false;  // of its request in this engine
    bool last = false;   // ends with a sampled token
};

struct WorkCounts {
    std::int64_t rows = 0, decoder_rows = 0, logits_rows = 0;
    std::int64_t attention_pairs = 0;  // window and selected entries, all layers
    std::int64_t index_pairs = 0;      // scored entries, all layers; where all are selected: none
};

WorkCounts count_work(const ModelShape& shape, const Slice& slice);

// Floating-point operations of the model's operators, 2 a multiply-add: linears, hyper-connections,
// router, compressors, Engram, attention, index scores, head. Nothing padded, repeated or skipped
// by luck is counted; norms, activations, rotations and softmax are not.
double useful_flops(const ModelShape& shape, const Slice& slice);

// The same by kind of count.
struct UnitFlops {
    double row = 0, decoder_row = 0, logits_row = 0, attention_pair = 0, index_pair = 0;
};
UnitFlops unit_flops(const ModelShape& shape);

}  // namespace fathom
