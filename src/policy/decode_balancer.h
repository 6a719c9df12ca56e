// Where a prompt that is ready goes to be decoded (serving.md 2.2). The ranks of a group advance in
// lock step, so the slowest is everybody's step time, and it is slow by the number of its sequences
// and by the KV that they attend to:
//
//   step = c0 + max_r (a0 + a1·n_r + a2·K_r) + s·max_r v_r + m·(Σ_r v_r)·moe_lb
//
// Reports of ranks are some steps old. The balancer therefore keeps a ledger of what it placed and
// no report has included yet, by numbers that the reports acknowledge:
//
//   view(r) = report(r) + Σ { placements on r with a number > acked(r) }
//
// Without it every placement of a burst would go to the same rank that looks empty. A rank that
// could run out of blocks before its sequences end would stall its group, so blocks and growth are
// a hard condition. Sequences that fit nowhere stay where they are, with prefill.
//
// Owned by one thread. Indices of groups and ranks are the caller's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "policy/decision_log.h"
#include "policy/state_bytes.h"

namespace fathom {

struct DecodeCost {
    double c0_us = 0;      // a step
    double a0_us = 0;      // a rank
    double a1_us = 0;      // a sequence
    double a2_us = 0;      // a token of KV
    double verify_us = 0;  // s: a token to verify, on the rank that has most
    double moe_us = 0;     // m: a token to verify, of all
    double moe_balance = 1;

    double rank_us(std::int64_t sequences, std::int64_t kv_tokens) const;
};
struct DecodeLoad {
    std::int64_t sequences = 0;
    std::int64_t kv_tokens = 0;
    std::int64_t verify_tokens = 0;
};
double decode_step_us(const DecodeCost& cost, std::span<const DecodeLoad> ranks);

// Bind a decode rank when prefill has planned the last slice, or will end within two decode steps:
// earlier, it would hold a slot for the whole prefill.
bool should_bind(bool is_last_slice_planned, double rest_us, double decode_step_us);

enum class DecodeRule : std::uint8_t {
    joint,        // ((n+1)/n̄)^p + w·((K+ℓ)/K̄)^p: the default
    marginal,     // by how much (n/n̄)^p + w·(K/K̄)^p grows
    split,        // as deployed: short ones by (fewest sequences, most KV), long ones by least KV
    round_robin,  // whoever is next and has room: to compare with
};

// Values are part of the log's format.
enum class DecodeReason : std::uint16_t {
    placed = 0,
    no_live_rank = 1,
    no_slot = 2,    // every rank has its most sequences
    no_blocks = 3,  // need and growth exceed the free blocks everywhere
    withdrawn = 4,
    moved = 5,
    below_reserve = 6,
};
std::string_view decode_reason_name(DecodeReason reason);

struct DecodeSettings {
    DecodeRule rule = DecodeRule::joint;
    int power = 8;                 // 1 to 16
    double kv_weight = 1;          // w
    double growth_share = 0.5;     // of the 90th percentiles of remaining output, that must be free
    double reserve_share = 0.05;   // of a rank's blocks: below, nothing is placed on it
    double pressure_share = 0.02;  // below, its newest sequence is dropped
    DecodeCost cost;               // for rebalancing
    bool is_rebalancing = false;
    double excess_share = 0.15;  // over the group's mean time
    std::int64_t excess_steps = 50;
    std::int64_t move_every_us = 1'000'000;

    Status check() const;
};

struct DecodeRequest {
    std::uint64_t id = 0;
    std::int64_t context_tokens = 0;
    std::int64_t output_tokens = 0;      // expected
    std::int64_t output_p90_tokens = 0;  // its 90th percentile; bounds the growth
};

struct DecodeRankReport {
    std::int64_t acked = 0;  // the highest placement number that it has included
    bool is_live = true;
    std::int64_t sequences = 0;  // running, reserved and in transfer
    std::int64_t kv_tokens = 0;  // of all these
    std::int64_t free_blocks = 0, total_blocks = 0;
    std::int64_t growth_tokens = 0;  // Σ 90th percentile of remaining output
    std::int64_t sequences_max = 0;
    std::int64_t step = 0;
    std::uint64_t newest_id = 0;  // of its sequences
};

struct DecodePlacement {
    std::uint64_t id = 0;
    std::int64_t group = -1, rank = -1;  // -1: stays queued
    std::int64_t number = 0;             // for acked; grows by one a placement on a rank
    DecodeReason reason = DecodeReason::placed;
};

struct DecodeSequence {
    std::uint64_t id = 0;
    std::int64_t kv_tokens = 0;
};
struct DecodeMove {
    std::uint64_t id = 0;
    std::int64_t group = 0, from = 0, to = 0;
    std::int64_t number = 0;
};

class DecodeBalancer {
  public:
    explicit DecodeBalancer(const DecodeSettings& settings, std::size_t log_records = 0);

    // `ranks` ranks that are not live until they report.
    void add_group(std::size_t group, std::size_t ranks);
    void set_draining(std::size_t group, bool is_draining);

    // The newest report of a rank; one with a lower step than the last is ignored. The id of a
    // sequence to drop from the rank's memory and to queue again as a resume, when it is about to
    // run out.
    std::optional<std::uint64_t> report(std::size_t group, std::size_t rank,
                                        const DecodeRankReport& report, std::int64_t now_us);

    // Places a batch, long ones first; `out` gets one entry a request, in that order.
    void place(std::span<const DecodeRequest> batch, std::int64_t now_us,
               std::vector<DecodePlacement>* out);
    // A placement that was cancelled or refused before a report included it. False: unknown.
    bool withdraw(std::size_t group, std::size_t rank, std::int64_t number, std::int64_t now_us);

    // With is_rebalancing: the sequence of this rank to move, if the rank has been slow for long.
    std::optional<DecodeMove> rebalance(std::size_t group, std::size_t rank,
                                        std::span<const DecodeSequence> sequences,
                                        std::int64_t now_us);

    DecodeLoad view(std::size_t group, std::size_t rank) const;
    std::int64_t free_blocks(std::size_t group, std::size_t rank) const;  // less the ledger's
    DecodeLoad group_load(std::size_t group) const { return groups_[group].sum; }
    // True only if no rank of the group takes a request of so many blocks. A bound that is kept:
    // it costs nothing, and may be false although nobody has room.
    bool is_full(std::size_t group, std::int64_t blocks) const {
        return static_cast<double>(blocks) > groups_[group].room_blocks;
    }
    DecisionLog& log() { return log_; }

    std::vector<std::uint8_t> save() const;
    Status load(std::span<const std::uint8_t> bytes);  // state is unchanged after an error

  private:
    static constexpr double kClosed = -1;
    struct Pending {
        std::int64_t number = 0;
        std::int64_t kv_tokens = 0, blocks = 0, growth_tokens = 0;
    };
    struct Rank {
        DecodeRankReport report;
        std::vector<Pending> ledger;  // a few; oldest first
        std::int64_t pending_blocks = 0, pending_growth = 0;
        std::int64_t number_last = 0;
        std::int64_t slow_steps = 0;
        std::int64_t moved_us = 0;
    };
    // What choosing reads of ranks, report and ledger together, or of groups as means over their
    // ranks: side by side, as numbers to calculate with; closed ones fill the last lane.
    struct Views {
        std::vector<double> sequences, kv_tokens;
        std::vector<double> per_rank;     // 1 / ranks, of which these are sums
        std::vector<double> room_blocks;  // the most that a request may need, or kClosed
        std::vector<double> scores;       // of the choice in work
        void resize(std::size_t size);
    };
    struct Group {
        std::vector<Rank> ranks;
        Views views;
        bool is_draining = false;
        std::uint64_t turn = 0;  // of round_robin
        std::int64_t live = 0;
        DecodeLoad sum;                // of views of live ranks
        std::int64_t open = 0;         // live ranks with a slot
        double room_blocks = kClosed;  // at least that of each rank
    };
    struct Means {
        double sequences = 1, kv_tokens = 1;
    };

    static Means means_of(const DecodeLoad& sum, std::int64_t live);
    double us_of(const DecodeLoad& load) const {
        return settings_.cost.rank_us(load.sequences, load.kv_tokens);
    }
    void refresh(Group& group, std::size_t rank);
    static void add(Group& group, std::size_t rank, const Pending& pending);
    void promise(std::size_t group, std::size_t rank, const Pending& pending);
    static bool is_open(const Group& group, std::size_t rank);
    static DecodeLoad load_of(const Group& group, std::size_t rank);
    void find_room(Group& group, std::size_t rank) const;
    void mirror(std::size_t group);
    std::optional<std::size_t> best_rank(std::size_t group, double kv_tokens, std::int64_t blocks);
    std::optional<std::size_t> best_group(double kv_tokens, std::int64_t blocks);
    std::optional<std::size_t> best_of(Views& views, std::size_t count, std::uint64_t first,
                                       DecodeRule rule, const Means& means, double kv_tokens,
                                       double blocks) const;
    void score(Views& views, DecodeRule rule, const Means& means, double kv_tokens) const;
    static void score_split(Views& views, const Means& means, double kv_tokens);
    DecodeReason refusal() const;
    DecodePlacement place_one(const DecodeRequest& request, std::int64_t now_us);

    DecodeSettings settings_;
    std::vector<Group> groups_;
    Views views_;                 // of groups
    std::uint64_t rotation_ = 0;  // of ties
    DecisionLog log_;
    std::vector<std::size_t> order_;  // of the batch in work
    DecodeLoad all_;                  // of all groups, while a batch is placed
    std::int64_t all_live_ = 0;       // ranks
};

}  // namespace fathom
