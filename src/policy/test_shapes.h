// The released model's shape, for tests.
#pragma once

#include "policy/work_counts.h"

namespace fathom::testing {

inline ModelShape released_shape() {
    ModelShape s;
    s.hidden = 5120;
    s.streams = 4;
    s.vocab = 129280;
    s.heads = 64;
    s.head_dim = 512;
    s.q_lora_rank = 1536;
    s.o_groups = 8;
    s.o_lora_rank = 1024;
    s.window = 128;
    s.experts = 384;
    s.experts_per_token = 6;
    s.shared_experts = 1;
    s.expert_inter = 2048;
    s.index_heads = 32;
    s.index_dim = 128;
    s.index_topk = 512;
    s.candidate_blocks = 2048;
    s.candidate_block_size = 8;
    s.engram_columns = 6144;
    s.encoder = {
        {.layers = 1},
        {.layers = 1, .engram = true},
        {.layers = 2, .ratio = 2, .owns_kv = true, .owns_index_k = true, .runs_indexer = true},
        {.layers = 1,
         .ratio = 2,
         .owns_kv = true,
         .owns_index_k = true,
         .runs_indexer = true,
         .engram = true},
        {.layers = 15, .ratio = 2}};
    s.boundary = {
        .layers = 1, .ratio = 1, .owns_kv = true, .owns_index_k = true, .runs_indexer = true};
    s.decoder = {{.layers = 4, .ratio = 1, .runs_indexer = true, .uses_candidates = true},
                 {.layers = 15, .ratio = 1}};
    return s;
}

}  // namespace fathom::testing
