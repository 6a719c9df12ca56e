// The prefill engines of a simulated fleet. Dispatch and the content of steps are the policies' own
// (policy/prefill_balancer.h, policy/prefill_step.h); this gives them engines that take as long as
// the cost model says, with noise, and KV that arrives when it arrives.
//
//   admit ─▶ balancer ─grant─▶ loading ─KV is there─▶ job ─steps─▶ host.prefilled ─▶ held
//                                                                          release ─▶ free blocks
//
// An engine pulls whenever it plans a step, and when it is idle and something came in.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "policy/fleet_drain.h"
#include "policy/prefill_balancer.h"
#include "sim/event_queue.h"
#include "sim/fleet/fleet_config.h"
#include "sim/fleet/fleet_event.h"
#include "sim/fleet/fleet_result.h"
#include "sim/sim_random.h"

namespace fathom {

class PrefillSide {
  public:
    class Host {
      public:
        virtual ~Host() = default;
        // When the KV that a granted request begins with is in the engine's memory.
        virtual SimTime load_kv(const PrefillGrant& grant) = 0;
        virtual bool is_redone(std::uint64_t id) const = 0;
        virtual void granted(const PrefillGrant& grant) = 0;
        virtual void prefetch(std::uint64_t id) const = 0;  // prefilled() is next
        // Its last token is computed, and the first output token with it. Its blocks stay taken.
        virtual void prefilled(std::uint64_t id, std::size_t engine, std::size_t rank,
                               std::int64_t blocks) = 0;
    };

    // Large fleets take seconds to set up: `goes_on` is asked for each engine, and behind false
    // nothing works.
    PrefillSide(const PrefillSideConfig& config, std::uint64_t seed, EventQueue& events, Host& host,
                const std::function<bool()>& goes_on);

    PrefillAdmission admit(const PrefillRequest& request);
    void on_step(std::size_t engine, std::uint32_t epoch);
    void on_wake(std::size_t engine, std::uint32_t epoch);
    // Into the cache: for a step that soon ends, and for a release().
    void prefetch(std::size_t engine) const;
    void prefetch_rank(std::size_t engine, std::size_t rank) const;
    // Lapsed waits are appended to `closed`; idle engines look again.
    void on_poll(std::vector<std::uint64_t>* closed);
    // Decode took a prompt, or nobody wants it any more.
    void release(std::size_t engine, std::size_t rank, std::int64_t blocks);
    void break_down(std::size_t engine);
    // Ready to work: behind a repair, or a start.
    void start(std::size_t engine);
    void drain(std::size_t engine);  // it pulls nothing more
    // Its prompts, by request: started once a token of it is being computed.
    void list(std::size_t engine, std::vector<DrainSequence>* out) const;
    std::int64_t ranks_holding(std::size_t engine) const;  // prompts that decode has not taken
    bool has_room_elsewhere(std::size_t engine) const;     // there is another that works
    // Into its queue again; what was computed of it is lost. Returns the tokens that were not.
    std::int64_t hand_back(std::size_t engine, std::uint64_t id);
    // Gone: its cards count no more. An empty engine, or one that never ran.
    void stop(std::size_t engine);
    // Its cards are there again and do nothing until it starts.
    void prepare(std::size_t engine);

    // Of every engine from the first boundary of its time behind `from_ns` on.
    void count_from(SimTime from_ns);
    void close_spans();  // at the end of a run

    // Works or drains. Its epoch grows when it breaks down or goes.
    bool is_up(std::size_t engine) const { return is_up(engines_[engine]); }
    std::uint32_t epoch(std::size_t engine) const { return engines_[engine].epoch; }
    // The slowest expert rank over their mean, of steps from now on.
    void set_moe_balance(double balance);

    std::int64_t waiting() const;
    std::int64_t held_blocks() const { return held_total_; }
    std::int64_t used_blocks() const;
    const CardLedger& ledger() const { return ledger_; }
    std::int64_t computed_tokens() const { return computed_tokens_; }
    std::int64_t pending_tokens() const;  // granted, not computed
    std::int64_t redone_tokens() const { return redone_tokens_; }
    std::int64_t steps() const { return steps_; }
    std::int64_t step_ns() const { return step_ns_; }  // of all cards
    std::uint64_t decision_hash() { return balancer_.log().hash(); }
    PrefillBalancer& balancer() { return balancer_; }

  private:
    struct Granted {
        std::uint64_t id = 0;
        std::int64_t attempt = 0, blocks = 0;
        bool is_redone = false;
    };
    struct Loading {
        PrefillJob job;
        Granted granted;
        SimTime ready_ns = 0;
    };
    struct Rank {
        std::vector<Granted> granted;  // beside the engine's jobs of this rank
        std::vector<Loading> loading;
        std::int64_t free_blocks = 0, held_blocks = 0;
    };
    enum class Mode : std::uint8_t { works, drains, broken, prepares, off };
    struct Engine {
        std::span<Rank> ranks;                    // of ranks_
        std::span<std::vector<PrefillJob>> jobs;  // of jobs_, one list a rank
        std::vector<PlannedSlice> slices;         // of the step in work
        SimRandom noise;
        std::uint32_t epoch = 1;
        bool is_stepping = false, is_listed_idle = false;
        Mode mode = Mode::works;
        CardTime idle_kind = CardTime::idle;
        SimTime span_ns = 0;  // where the present span of its ledger began
        CardLedger step;      // of the step in work
    };

    void fetch_lists(const Engine& engine) const;
    void fetch_ending(const Engine& engine);
    void pull(std::size_t engine);
    void admit_loaded(Engine& engine);
    void begin_step(std::size_t engine);
    void count_step(Engine& engine, const PrefillStep& step, double tau_us, SimTime duration_ns);
    void rest(std::size_t index);
    void close_span(Engine& engine);
    void list_idle(std::size_t engine);
    static bool is_up(const Engine& engine) {
        return engine.mode == Mode::works || engine.mode == Mode::drains;
    }
    void wake(std::size_t engine);
    void ask_idle(std::size_t length_class);
    void drop_step(Engine& engine);
    SimTime now_ns() const { return events_.now_ns(); }
    std::int64_t now_us() const { return events_.now_ns() / 1000; }

    PrefillSideConfig config_;
    EventQueue& events_;
    Host& host_;
    PrefillBalancer balancer_;
    PrefillStepPlanner planner_;
    std::vector<Engine> engines_;
    std::vector<Rank> ranks_;  // of all engines
    std::vector<std::vector<PrefillJob>> jobs_;
    std::array<std::deque<std::size_t>, kPrefillClasses> idle_;  // engines, by what they serve
    SimTime count_from_ns_ = 0;
    CardLedger ledger_;
    std::int64_t computed_tokens_ = 0, redone_tokens_ = 0, held_total_ = 0, steps_ = 0;
    std::int64_t step_ns_ = 0;
    std::vector<PrefillRankReport> reports_;
    std::vector<PrefillGrant> grants_;
    std::vector<double> redone_us_;
    std::vector<std::uint64_t> ending_;  // requests, of the step that ends
};

}  // namespace fathom
