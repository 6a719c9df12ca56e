// Changes which experts lie where while the group goes on serving (serving.md 2.3.3), in two
// phases. Live slots and routing stay as they are until every rank has everything; then all change
// at the same step, weights and routing together.
//
//   leader                                       every rank
//   prepare: epoch, the map it builds on ──────▶ another map: refuses. Takes staging slots, fetches
//                                                (few at once, paced), from the nearest copy
//            checksum as expected?   ◀────────── ready: epoch, checksum of what was staged
//   commit: at step S, two or more ahead ──────▶ at the beginning of step S: flips
//                                    ◀────────── flipped
//   no answer in time: fence that rank
//
//   before the commit a refusal, a checksum, a deadline, a lost rank or a reload of weights aborts:
//   staging is dropped, the old map stays in force, and what is left of the plan is not tried.
//
// A plan is applied some layers at a time; each such chunk is a transition with an epoch of its
// own, one after another. Numbers of aborted epochs are not used again, so that a late answer means
// nothing. A rank that has missed a commit knows by the step, and must not dispatch: every dispatch
// carries the epoch, and ranks refuse another one than theirs.
//
// Everything here is state and answers: the owner sends orders and replies, moves bytes, and counts
// steps. Messages may be late, and lost ones end in a deadline; between two parties they stay in
// order. One owner each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "policy/decision_log.h"
#include "policy/expert_placement.h"

namespace fathom {

struct SwitchRules {
    std::int64_t layers_per_chunk = 4;
    std::int64_t in_flight_max = 32;        // fetches of a rank at once
    std::int64_t fetch_bytes = 18'800'000;  // of one expert
    double link_bytes_per_us = 20'000;      // that moves may take link_part of
    double link_part = 0.1;
    std::int64_t transfer_deadline_us = 30'000'000;  // of a chunk
    std::int64_t lead_steps = 2;  // from the decision to commit to the step of it, >= 2
    std::int64_t flip_steps = 4;  // after which a rank that has not said so is fenced
    std::int64_t flip_deadline_us = 5'000'000;  // the same, should steps stand still

    Status check() const;
};

struct LayerChange {
    std::int64_t layer = 0;
    LayerPlacement next;
    std::vector<std::uint64_t> weights;  // digest of each expert's weights
};

// Values are part of the format of logs: append only.
enum class SwitchReason : std::uint16_t {
    prepared = 1,   // a chunk was begun
    committed = 2,  // all ranks were ready
    flipped = 3,    // all ranks that are left have the new map
    fenced = 4,     // a rank did not say that it has
    // Aborts:
    refused = 5,  // a rank had another map, or could not fetch
    checksum = 6,
    deadline = 7,
    rank_lost = 8,
    reload = 9,
};

struct SwitchOrder {
    enum class Kind : std::uint8_t { prepare, commit, abort, fence };
    Kind kind = Kind::prepare;
    std::int64_t epoch = 0;
    std::int64_t rank = -1;            // -1: all
    std::int64_t base_epoch = 0;       // prepare: of the map that is changed
    std::int64_t step = 0;             // commit
    std::vector<LayerChange> changes;  // prepare
};

struct SwitchReply {
    enum class Kind : std::uint8_t { ready, refused, flipped };
    Kind kind = Kind::ready;
    std::int64_t rank = 0, epoch = 0;
    std::uint64_t checksum = 0;  // ready
};

class SwitchLeader {
  public:
    // `maps` are the placements of all layers, of epoch 0. The shape, rules and maps must have
    // passed their checks.
    SwitchLeader(const ExpertShape& shape, const SwitchRules& rules,
                 std::vector<LayerPlacement> maps, std::size_t log_records = 0);

    // unavailable while a plan is being applied; invalid_argument for a map that is none, or lays
    // an expert on a lost rank.
    Status begin(std::int64_t now_us, std::vector<LayerChange> plan);
    // Deadlines. `step` is the newest step that the group has begun.
    void tick(std::int64_t now_us, std::int64_t step);
    void receive(std::int64_t now_us, std::int64_t step, const SwitchReply& reply);
    void lose(std::int64_t now_us, std::int64_t rank);
    void join(std::int64_t rank);  // with the leader's maps and epoch; only while not busy
    // Weights are about to be written anew through the current maps: a chunk that is not committed
    // is dropped first. False while a commit is under way; ask again when it is not.
    bool reload(std::int64_t now_us);
    std::vector<SwitchOrder> take_orders();

    bool busy() const { return phase_ != Phase::idle; }
    std::int64_t epoch() const { return epoch_; }  // of the maps in force
    const LayerPlacement& map(std::int64_t layer) const {
        return maps_[static_cast<std::size_t>(layer)];
    }
    std::span<const std::uint8_t> alive() const { return alive_; }
    DecisionLog& log() { return log_; }

    // Without shape, rules and log; orders that were not taken are lost.
    std::vector<std::uint8_t> save() const;
    Status load(std::span<const std::uint8_t> bytes);  // state is unchanged after an error

  private:
    enum class Phase : std::uint8_t { idle, transfer, commit };
    void begin_chunk(std::int64_t now_us);
    void abort(std::int64_t now_us, SwitchReason reason, std::int64_t rank);
    void commit(std::int64_t now_us, std::int64_t step);
    void finish(std::int64_t now_us);
    void note(std::int64_t now_us, SwitchReason reason, std::int64_t rank, std::int64_t step = 0);
    bool all_answered() const;
    std::uint64_t expected_checksum(std::int64_t rank) const;
    std::span<const LayerChange> chunk() const;

    ExpertShape shape_;
    SwitchRules rules_;
    std::vector<LayerPlacement> maps_;
    std::vector<std::uint8_t> alive_, answered_;
    Phase phase_ = Phase::idle;
    std::int64_t epoch_ = 0, attempt_ = 0;  // the newest number ever used
    std::vector<LayerChange> plan_;
    std::size_t done_ = 0;  // layers of the plan
    std::int64_t deadline_us_ = 0, commit_step_ = 0;
    std::vector<SwitchOrder> orders_;
    DecisionLog log_;
};

struct SwitchFetch {
    std::int64_t epoch = 0, layer = 0;
    std::int64_t slot = 0;  // of all slots, on this rank
    std::int32_t expert = 0;
    std::int64_t from_slot = -1;  // a live copy; -1: none, from the host
    std::uint64_t digest = 0;     // of what arrived
};

// The copy to fetch from: of this rank, else of its node, else of any live rank; where there are
// several, by turns of the slot. -1: none.
std::int64_t fetch_source(const ExpertShape& shape, std::span<const std::int32_t> current,
                          std::span<const std::uint8_t> alive, std::int64_t slot,
                          std::int32_t expert);

class SwitchRank {
  public:
    SwitchRank(const ExpertShape& shape, const SwitchRules& rules, std::int64_t rank,
               std::vector<LayerPlacement> maps, std::int64_t epoch = 0);

    void receive(std::int64_t now_us, const SwitchOrder& order);
    void set_alive(std::int64_t rank, bool is_alive);  // whom to fetch from
    // The next thing to fetch into staging, if it is time for one.
    std::optional<SwitchFetch> next_fetch(std::int64_t now_us);
    // A fetch has ended and no byte of it will be written any more; `digest` of what has arrived.
    void fetched(const SwitchFetch& fetch, bool is_good, std::uint64_t digest);
    // Before anything of a step is dispatched. What to flip, as fetched; empty on most steps. A
    // rank that is fenced must not dispatch.
    std::vector<SwitchFetch> begin_step(std::int64_t step);
    std::vector<SwitchReply> take_replies();

    std::int64_t epoch() const { return epoch_; }
    bool fenced() const { return fenced_; }
    const LayerPlacement& map(std::int64_t layer) const {
        return maps_[static_cast<std::size_t>(layer)];
    }

    std::vector<std::uint8_t> save() const;
    Status load(std::span<const std::uint8_t> bytes);  // state is unchanged after an error

  private:
    void prepare(const SwitchOrder& order);
    void drop();
    void reply(SwitchReply::Kind kind, std::int64_t epoch, std::uint64_t checksum = 0);

    ExpertShape shape_;
    SwitchRules rules_;
    std::int64_t rank_;
    std::vector<LayerPlacement> maps_;
    std::vector<std::uint8_t> alive_;
    std::int64_t epoch_ = 0;
    std::int64_t staged_epoch_ = 0;  // 0: nothing is staged
    std::vector<LayerChange> changes_;
    std::vector<SwitchFetch> fetches_;
    std::size_t asked_ = 0, arrived_ = 0;
    std::int64_t in_flight_ = 0;  // of dropped epochs too
    std::int64_t next_us_ = 0;    // pacing
    std::int64_t commit_step_ = -1, step_ = -1;
    bool fenced_ = false;
    std::vector<SwitchReply> replies_;
};

}  // namespace fathom
