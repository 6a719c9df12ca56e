// The decode groups of a simulated fleet. Placement is the policy's own (policy/decode_balancer.h);
// a step takes what its formula says, by the slowest rank.
//
// A rank costs the same however many sequences it has: it knows how many there are, their KV as a
// sum, and a clock of accepted tokens that each of them has advanced by. A sequence that comes with
// f tokens to go ends when the clock has gone on by f and by what its own luck makes of that, drawn
// when it comes; so a heap of ends is all that is kept. With `is_per_sequence` acceptance is drawn
// for every sequence and step instead, to see what the shortcut costs; and where drafts are
// modelled (verify_side.h) by what each verified.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "policy/decode_balancer.h"
#include "policy/fleet_drain.h"
#include "sim/event_queue.h"
#include "sim/fleet/fleet_config.h"
#include "sim/fleet/fleet_result.h"
#include "sim/fleet/verify_side.h"
#include "sim/quad_heap.h"
#include "sim/sim_random.h"

namespace fathom {

struct DecodeSeat {
    std::uint32_t group = 0, rank = 0;
};
struct DecodeEntry {
    std::uint32_t slot = 0;           // the caller's name for the request
    std::int32_t context_tokens = 0;  // prompt
    std::int32_t left_tokens = 0;     // to generate, >= 1
    std::int32_t growth_tokens = 0;   // what the balancer was told
    double begin = 0;                 // on its rank's clock, while it runs

    // Of the whole life, with the token that prefill made.
    std::int64_t blocks() const {
        return (std::int64_t{context_tokens} + left_tokens + 1 + 127) / 128;
    }
};

class DecodeSide {
  public:
    class Host {
      public:
        virtual ~Host() = default;
        // Of an adopted sequence. The host keeps it beside the request that it belongs to.
        virtual DecodeEntry& entry_of(std::uint32_t slot) = 0;
        virtual void prefetch(std::uint32_t slot) const = 0;  // entry_of() and decoded() are next
        virtual void decoded(std::uint32_t slot) = 0;
        // Its group broke down after it had generated so many tokens here.
        virtual void lost(std::uint32_t slot, std::int64_t generated) = 0;
        // The same, but its KV is there and goes along to another group.
        virtual void moved(std::uint32_t slot, std::int64_t generated) = 0;
        // Was told to leave the group, and had ended by the time it would have.
        virtual void stayed(std::uint32_t slot, std::size_t group) = 0;
    };
    // `goes_on` is asked for each group, and behind false nothing works.
    DecodeSide(const DecodeSideConfig& config, std::uint64_t seed, EventQueue& events, Host& host,
               const std::function<bool()>& goes_on);

    // The balancer's answers to a batch. The caller promises each that was placed.
    void place(const std::vector<DecodeRequest>& batch, std::vector<DecodePlacement>* out);
    void prefetch(const DecodePlacement& placement) const;  // into the cache, for a promise()
    // It holds its blocks from now until it ends.
    void promise(const DecodeSeat& seat, const DecodeEntry& entry);
    // A placed sequence has arrived. It joins the group's next step.
    void adopt(const DecodeSeat& seat, std::uint32_t slot);
    // Grows when the group breaks down: what was promised before must not be adopted.
    std::uint32_t epoch(std::size_t group) const { return groups_[group].epoch; }
    void on_step(std::size_t group, std::uint32_t epoch);
    void break_down(std::size_t group);
    void start(std::size_t group);  // behind a repair, or from nothing
    void drain(std::size_t group);  // nothing new comes
    // What it decodes, or will from its next step on.
    void list(std::size_t group, std::vector<DrainSequence>* out) const;
    std::int64_t arriving(std::size_t group) const;  // placed, and not here yet
    // Do the other working groups have the slots and blocks for what is here?
    bool has_room_elsewhere(std::size_t group) const;
    double step_us(std::size_t group) const;  // of the step in work, or the last
    // At the end of the step in work it goes, with its KV.
    void leave(std::size_t group, std::uint32_t slot);
    // Of a promise: it will not be adopted.
    void withdraw(const DecodeSeat& seat, const DecodeEntry& entry);
    // Loses what it still has; its cards count no more.
    void stop(std::size_t group);
    void prepare(std::size_t group);  // its cards are there again and do nothing until it starts

    bool is_up(std::size_t group) const { return groups_[group].is_up(); }
    // The slowest expert rank over their mean, of steps from now on.
    void set_moe_balance(double balance) { config_.policy.cost.moe_balance = balance; }

    void count_from(SimTime from_ns);
    void close_spans();

    std::int64_t sequences() const { return sequences_; }
    std::int64_t used_blocks() const;
    std::int64_t generated_tokens() const { return generated_tokens_; }
    const CardLedger& ledger() const { return ledger_; }
    std::int64_t steps() const { return steps_; }
    std::int64_t step_ns() const { return step_ns_; }
    double rank_us() const { return rank_us_; }
    double max_us() const { return max_us_; }
    double sequence_steps() const { return sequence_steps_; }
    double rank_steps() const { return rank_steps_; }
    void finish(FleetResult& result);               // decisions, and figures of drafts
    VerifySide* drafts() { return verify_.get(); }  // null where they are a table
    // Rows and accepted tokens of a sequence and step at so many sequences a rank.
    static SpeculationPoint speculation_at(const DecodeSideConfig& config, double sequences);
    // The most sequences of a card, up to its limit, whose tokens take at most so long each, when
    // all ranks are equal and contexts cost nothing.
    static double sequences_within(const DecodeSideConfig& config, double tpot_ms);
    // The part of a step with so many sequences a card that grows with them.
    static double load_share(const DecodeSideConfig& config, double sequences);
    // Card-time of a token at full, equal ranks: the bound's.
    static double bound_us_per_token(const DecodeSideConfig& config, double kv_tokens_each);

  private:
    struct Sequence {
        double end = 0;  // on the rank's clock
        std::uint32_t slot = 0;
    };
    struct EndsBefore {
        bool operator()(const Sequence& a, const Sequence& b) const {
            return a.end != b.end ? a.end < b.end : a.slot < b.slot;
        }
    };
    struct Rank {
        QuadHeap<Sequence, EndsBefore> running;
        double next_end = 0;  // the top's, if there is one
        double clock = 0;
        double base_kv = 0;  // Σ (context − begin): KV is that + running · clock
        std::int64_t promised = 0, promised_kv = 0;  // placed and not here yet
        std::int64_t used_blocks = 0, growth_tokens = 0, acked = 0;
        SimRandom acceptance;
    };
    enum class Mode : std::uint8_t { works, drains, broken, prepares, off };
    struct Group {
        std::vector<Rank> ranks;
        std::vector<std::pair<std::uint32_t, std::uint32_t>> joining;  // rank, slot
        std::vector<std::uint32_t> leaving;                 // slots, in the order in which they go
        std::deque<std::vector<DecodeRankReport>> reports;  // oldest first
        SimRandom noise;
        std::uint32_t epoch = 1;
        std::int64_t step_number = 0;
        bool is_stepping = false;
        Mode mode = Mode::works;
        bool is_up() const { return mode == Mode::works || mode == Mode::drains; }
        SimTime span_ns = 0;
        CardLedger step;
    };

    // Of a step with so many sequences on a rank.
    struct Pace {
        double rows = 1, accepted = 1;
        double variance = 0;         // of what one sequence accepts
        double deviation = 0;        // of the mean of all
        double least = 1, most = 1;  // of that mean
    };
    Pace pace_at(std::int64_t sequences) const;
    const Pace& pace_of(std::size_t sequences);

    double clock_tokens(Rank& rank, std::int64_t tokens);
    double plan_drafts(std::size_t group);
    void count_rejected(Group& group, SimTime moe_ns, SimTime bound_fixed_ns);
    void advance_drafted(Rank& rank);
    static std::int64_t generated_drafted(const Rank& rank, const DecodeEntry& entry);
    void begin_step(std::size_t group);
    void advance(Rank& rank);
    void fetch_heap(const Rank& rank);
    void take_ended(Rank& rank);
    void end_sequences(Group& group);
    static void order_ends(Rank& rank);  // behind a change in the middle
    static SimTime ns_of(double us);
    void count_step(Group& group, SimTime duration_ns, double extra_us);
    void report(std::size_t group, bool is_now);
    DecodeRankReport report_of(const Group& group, const Rank& rank) const;
    void close_span(Group& group);
    void empty(std::size_t group);
    void send_off(std::size_t group);
    std::int64_t generated_by(const Rank& rank, const Sequence& sequence) const;
    double kv_of(const Rank& rank) const;

    DecodeSideConfig config_;
    EventQueue& events_;
    Host& host_;
    DecodeBalancer balancer_;
    std::unique_ptr<VerifySide> verify_;
    std::vector<std::vector<VerifySide::Seat>> seats_;  // of a group, for it
    std::vector<Group> groups_;
    SimTime count_from_ns_ = 0;
    CardLedger ledger_;
    std::int64_t sequences_ = 0, generated_tokens_ = 0, steps_ = 0, step_ns_ = 0;
    double rank_us_ = 0, max_us_ = 0, sequence_steps_ = 0, rank_steps_ = 0;
    std::vector<DecodeLoad> loads_;
    std::vector<double> works_us_;   // of the step that begins, by rank, without its rows
    std::vector<double> needed_us_;  // by the bound, for its tokens
    std::vector<std::pair<Rank*, std::uint32_t>> ended_;  // of the step in work
    std::vector<Pace> paces_;                             // by the number of sequences
};

}  // namespace fathom
