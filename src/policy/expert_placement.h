// Which experts lie on which rank, and how even that is (serving.md 2.3.1).
//
//   slots of rank r:  [r · slots, (r + 1) · slots), each an expert or -1 (empty)
//   an expert with c copies gives each 1/c of its tokens
//   moe_lb = Σ max over ranks ÷ Σ mean over ranks, sums over steps and layers; 1 is even
//
// Three figures carry that name: the *expected* one of foretold loads, that of a window of recorded
// steps, and the *realised* one of the steps that follow. Even a perfect placement does not realise
// 1, since tokens choose at random: about 1 + z · √(κ / m), with m tokens for a rank in a step, z
// the expected maximum of as many normal numbers as there are ranks (2.39 of 64) and κ how much
// tokens of one sequence choose alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "policy/expert_load.h"

namespace fathom {

struct ExpertShape {
    std::int64_t experts = 0;  // of a layer
    std::int64_t ranks = 0;
    std::int64_t slots = 0;           // of a rank, for one layer
    std::int64_t ranks_per_node = 0;  // 0: all ranks on one node; divides ranks
    std::int64_t groups = 1;          // of experts, for a hierarchical placement; divides experts

    std::int64_t slots_total() const { return ranks * slots; }
    std::int64_t nodes() const { return ranks_per_node > 0 ? ranks / ranks_per_node : 1; }
    std::int64_t node_of(std::int64_t rank) const {
        return ranks_per_node > 0 ? rank / ranks_per_node : 0;
    }
    // invalid_argument names the field and the limit.
    Status check() const;
};

using LayerPlacement = std::vector<std::int32_t>;  // slots_total() entries

// Experts in order over the ranks, and the spare slots filled with experts 0, 1, … where that makes
// no second copy on a rank.
LayerPlacement initial_placement(const ExpertShape& shape);

// Every expert has a copy, no rank has two of one.
Status check_placement(const ExpertShape& shape, std::span<const std::int32_t> placement);

std::vector<std::int32_t> count_copies(const ExpertShape& shape,
                                       std::span<const std::int32_t> placement);

struct Balance {
    double max_sum = 0, mean_sum = 0;
    double ratio() const { return mean_sum > 0 ? max_sum / mean_sum : 1; }  // moe_lb
    Balance& operator+=(const Balance& other) {
        max_sum += other.max_sum;
        mean_sum += other.mean_sum;
        return *this;
    }
};
Balance balance_of(const ExpertShape& shape, std::span<const std::int32_t> placement,
                   std::span<const double> loads);
// Of each recorded step.
std::vector<Balance> step_balances(const ExpertShape& shape,
                                   std::span<const std::int32_t> placement,
                                   const ExpertWindow& window);

// The copy of `expert` that serves a token: a pure function of its arguments, so that all ranks and
// a replay agree. Returns a slot; ranks that are not alive (empty: all are) are passed over. -1
// where no copy is left.
std::int64_t slot_for_token(const ExpertShape& shape, std::span<const std::int32_t> placement,
                            std::int32_t expert, std::uint64_t token_hash, std::int64_t layer,
                            std::int64_t source_rank, std::span<const std::uint8_t> alive = {});

}  // namespace fathom
