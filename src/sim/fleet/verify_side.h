// The drafts of a simulated decode side whose sequences are known one by one, and the live
// scheduler that says how many a step verifies (policy/verify_scheduler.h).
//
//   block of every sequence ──▶ survivals ──age──▶ VerifyScheduler::decide ──▶ K, or all, or none
//                                   └────────────▶ BudgetSolver::allocate(K) ──▶ rows of each
//   true confidences ──▶ how many of its rows each sequence accepts
//
// A sequence has no draft in its first step, and never more than it may still generate behind the
// model's own token, so that answers end exactly. Where a rank did not draft, the newest block
// that it did draft is what the scheduler sees. What a rank's step costs it knows as the deployed
// engine does: a curve of idle contexts, corrected by measured steps, which contain waiting for the
// slowest rank.
//
// Costs O(sequences · drafts) a step: only for small fleets (kDraftedSequencesMax).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policy/decision_log.h"
#include "policy/verify_model.h"
#include "policy/verify_scheduler.h"
#include "sim/event_queue.h"
#include "sim/fleet/fleet_config.h"
#include "sim/fleet/fleet_result.h"

namespace fathom {

class VerifySide {
  public:
    VerifySide(const DecodeSideConfig& config, std::uint64_t seed);

    // A sequence arrives; its next step is the first. Its drafts have nothing to do with those of
    // an earlier one in the same slot.
    void join(std::uint32_t slot);

    struct Seat {
        std::uint32_t slot = 0;
        std::int64_t left_tokens = 0;  // to generate, >= 1
    };
    // A step begins. ranks[r] are the sequences on rank r. Writes verify_tokens of the loads, and
    // returns by how many microseconds the step differs from decode_step_us of them.
    double plan(std::size_t group, SimTime now_ns, const DecodeCost& cost,
                std::span<const std::vector<Seat>> ranks, std::span<DecodeLoad> loads);
    // The step that was planned last has ended and took so long.
    void finish_step(std::size_t group, double step_us);
    // Tokens that a sequence has from it, from 1 to left_tokens.
    std::int64_t accepted(std::uint32_t slot) const { return by_slot_[slot]->accepted; }

    void count_from_here() { counted_ = {}; }
    void add_to(FleetSample& sample);  // what was since the last one
    const DraftFigures& counted() const { return counted_; }
    const DraftFigures& all() const { return all_; }
    std::uint64_t decision_hash() const { return log_.hash(); }
    DecisionLog& log() { return log_; }

  private:
    struct Sequence {
        Sequence(const VerifyModel& model, std::uint64_t seed) : drafter(model, 1, seed) {}
        VerifyRequests drafter;
        std::uint64_t turn = 0;  // of the slot
        std::int64_t steps = 0;  // that began
        std::int64_t would_accept = 0, accepted = 1;
        std::vector<float> blocks;  // survivals of the last blocks, a ring; below 0: not known
    };
    // One decision.
    struct Decider {
        VerifyScheduler scheduler;
        VerifyCost cost;
    };
    struct Rank {
        std::vector<float> stale, current;
        std::vector<std::int32_t> caps, lengths;
        std::int64_t rows = 0;
        bool is_drafting = true;
        VerifyBatch batch(const std::vector<float>& survivals, std::int64_t drafts) const;
    };
    struct Group {
        std::vector<Decider> deciders;  // of each rank, or one
        std::vector<Rank> ranks;        // as planned
        double extra_us = 0, shared_us = 0;
        DraftFigures step;
    };

    Decider& decider(Group& group, std::size_t rank) const;
    void draw(Rank& rank, std::span<const Seat> seats, bool is_drafting);
    void decide(std::size_t index, SimTime now_ns, const DecodeCost& cost);
    void verify(Rank& rank, std::span<const Seat> seats, const VerifyDecision& decision);

    DraftConfig drafts_;
    std::int64_t ranks_;
    std::uint64_t seed_;
    VerifyModel model_;
    bool is_failing_ = false;
    std::vector<std::unique_ptr<Sequence>> by_slot_;
    std::vector<Group> groups_;
    DecisionLog log_;
    DraftFigures counted_, all_, interval_;
    BudgetSolver solver_;
    VerifyRequests::Block block_;
    std::vector<VerifyBatch> batches_;
    std::vector<VerifyDecision> decisions_;
};

}  // namespace fathom
