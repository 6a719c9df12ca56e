// Places the experts of a layer anew (serving.md 2.3.2). Ranks in lock step wait for the one with
// most tokens, so popular experts get the spare slots and the rest is packed evenly.
//
//   foretold loads ─▶ replicate ─▶ pack ─▶ refine ─▶ relabel ─▶ gate ─▶ new placement, or none
//    (expert_load.h)     │          │        │          │         └ is the gain worth the move?
//                        │          │        │          └ which rank is which: least to fetch
//                        │          │        └ swaps while the maximum falls
//                        │          └ heaviest first to the least loaded rank without that expert
//                        └ one spare slot after another to the heaviest copy
//
// A step takes as long as its own most loaded rank, so packing and swaps can also go by Σ over
// recorded steps of the maximum. That matters where experts are busy together: two that are popular
// at the same steps should not share a rank, though their sums would allow it. But most of what
// differs from step to step is chance, and to fit it is worse than to go by loads. So packing by
// steps is fitted to every second step and tried on the others, and taken (then fitted to all, with
// swaps) only where it is better there by more than two standard errors.
//
// Two copies of one expert never lie on one rank: the second would take a slot and no load. Costs
// of moving: 1 for a slot fetched from the same node, 4 from another. Everything is deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/decision_log.h"
#include "policy/expert_placement.h"

namespace fathom {

// The steps of the algorithm; each can be used alone.

// Copies of each expert, `total` in all and at most `ranks` of each; total >= experts. What cannot
// be given (every expert has one on every rank) is left.
std::vector<std::int32_t> replicate(std::span<const double> loads, std::int64_t total,
                                    std::int64_t ranks);

// Heaviest copies first, each to the least loaded rank that has room and not that expert; where
// there is none, one of a full rank makes room. copies[e] <= live ranks, Σ copies <= their slots.
// Ranks that are not alive (`alive` empty: all are) stay empty.
LayerPlacement pack(const ExpertShape& shape, std::span<const double> loads,
                    std::span<const std::int32_t> copies, std::span<const std::uint8_t> alive = {});
// Swaps (and moves to empty slots) between the most loaded rank and others while the maximum falls
// by 0.01 %; where no swap does, what it and two of the lightest hold is laid anew. With up to
// three ranks of a few slots no other packing of the same copies is better by more than that.
void refine(const ExpertShape& shape, std::span<const double> loads, LayerPlacement& placement,
            std::span<const std::uint8_t> alive = {});
// The same by recorded steps: heaviest first, each to where Σ over steps of the maximum stays
// lowest, ties by foretold load. Empty where a copy finds no rank without its expert.
LayerPlacement pack_steps(const ExpertShape& shape, std::span<const double> loads,
                          std::span<const std::int32_t> copies, const ExpertWindow& window);
// Lowers Σ over recorded steps of the maximum by at most `swaps_max` swaps.
void refine_steps(const ExpertShape& shape, std::span<const double> loads,
                  const ExpertWindow& window, int swaps_max, LayerPlacement& placement);

struct MoveCost {
    std::int64_t slots = 0;     // that must be fetched
    std::int64_t weighted = 0;  // those of another node count 4
};
// Renames the ranks of `placement` (of whole nodes, where `keep_nodes`) and orders the slots of
// each so that as little as possible is fetched that `current` does not have. Ranks that are not
// alive (none, where keep_nodes) keep their place, and nothing is fetched from them.
MoveCost relabel(const ExpertShape& shape, std::span<const std::int32_t> current, bool keep_nodes,
                 std::span<const std::uint8_t> alive, LayerPlacement& placement);

// Values are part of the format of logs: append only.
enum class PlacementReason : std::uint16_t {
    applied = 1,
    mandatory = 2,  // an expert had no live copy
    no_traffic = 3,
    no_gain = 4,    // not better on the recorded steps, or nothing moves
    not_worth = 5,  // better, but not by what the move takes, or within noise
    no_room = 6,    // the live ranks have fewer slots than there are experts
};

struct BalanceRules {
    // Groups of experts to nodes first, copies within their node, by foretold loads alone. Where
    // nodes do not divide groups, or a rank is not alive, the placement is global.
    bool hierarchical = false;
    bool by_steps = true;  // try that too; false: by foretold loads alone
    int swaps_max = 48;    // by steps
    // The gate, of one layer: (gain − 2 · its standard error) · tokens · time a token must exceed
    // slots · time a slot · interference.
    double tokens_until_next = 0;  // routed to a rank, mean; 0: the gate asks only for a gain
    double moe_us_per_token = 0;   // of one layer at mean load
    double fetch_us_per_slot = 0;  // weighted slots
    double interference = 0.1;     // part of the link that moves take from steps
};

struct LayerPlan {
    PlacementReason reason = PlacementReason::no_traffic;
    LayerPlacement placement;  // empty unless it is to be applied
    // moe_lb on recorded steps (of foretold loads without any); where it goes by steps, on those
    // that the trial was not fitted to.
    double before = 1, after = 1;
    bool by_steps = false;
    MoveCost move;
    std::uint64_t input_digest = 0;
    bool apply() const { return !placement.empty(); }

    // fields: slots to fetch, weighted, moe_lb before and after in millionths, a digest of the
    // placement.
    DecisionRecord record(std::int64_t now_us, std::uint32_t layer) const;
};

// `loads` are foretold (ExpertPredictor), `current` is what lies there; `alive` empty: all ranks.
// The window may be empty. The shape must have passed check(), the sizes must fit.
LayerPlan plan_layer(const ExpertShape& shape, std::span<const double> loads,
                     const ExpertWindow& window, std::span<const std::int32_t> current,
                     const BalanceRules& rules, std::span<const std::uint8_t> alive = {});

}  // namespace fathom
