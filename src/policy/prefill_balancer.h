// The prefill dispatcher (serving.md 2.1): waiting prompts stand in four queues, one a length
// class, and engines pull from them what their ranks can compute soon. Nothing is pushed, and where
// a prompt's prefix was computed decides its cost, never its place.
//
//   admit ─▶ class 0 ▭▭▭▭▭▭▭  ◀─pull── engines of class 0 ──▶ grants, each a lease with an attempt
//            class 1 ▭▭▭      ◀─pull── engines of class 1
//            class 2 ▭        ◀─pull── …        every round the engines are divided anew by demand
//            class 3 ▭▭                         (prefill_division.h)
//
// A rank's quota is H·τ less the predicted cost of everything it was granted and has not computed.
// The fullest quota takes the first of up to 16 prompts of its class that it covers. A prompt that
// no quota covers goes, as a debt, to a rank with less than one step of work; and one that was
// passed over 8 times while at the head must be taken by the next rank that has its blocks. If none
// has, one rank takes nothing else until it does. So nobody starves.
//
// An engine that falls silent loses its leases: its requests return to the front of their queues
// with the next attempt, and answers to an older attempt are ignored.
//
// Owned by one thread. Times are microseconds of the caller's clock and must not run backwards.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "policy/decision_log.h"
#include "policy/id_map.h"
#include "policy/prefill_cost.h"
#include "policy/prefill_division.h"
#include "policy/prefill_step.h"

namespace fathom {

// Reasons of decisions; values are part of the log's format.
enum class PrefillReason : std::uint16_t {
    // grants
    fits_quota = 0,
    debt = 1,       // its cost exceeds every quota; the rank is nearly idle
    head_lock = 2,  // was passed over too often
    steal_shorter = 3,
    steal_longer = 4,
    // pulls without a grant
    no_quota = 16,
    no_credits = 17,
    nothing_waits = 18,
    nothing_fits = 19,
    rank_dead = 20,
    decode_full = 21,  // too many finished prompts wait for decode
    stale_epoch = 22,
    unknown_engine = 23,
    // admission
    accepted = 32,
    queued_late = 33,  // accepted although it will be late
    tenant_limit = 34,
    too_late = 35,
    queue_full = 36,
    too_long = 37,
    exceeds_rank = 38,
    duplicate = 39,
    shed = 40,
    never_started = 41,
    // returns
    engine_lost = 48,
    lease_expired = 49,
    returned = 50,
    finished = 51,
    cancelled = 52,
    // divisions
    round = 64,
};
std::string_view prefill_reason_name(PrefillReason reason);

enum class AdmissionMode { reject, queue, shed };

struct PrefillSettings {
    PrefillCosts costs;
    std::array<double, kPrefillClasses> tau_us = {150e3, 150e3, 250e3, 400e3};
    double horizon_steps = 2;  // H
    std::int64_t look_ahead = 16;
    std::int64_t skips_max = 8;
    std::int64_t round_us = 2'000'000;
    // Demand is multiplied by this when engines are divided: room for bursts of the short classes,
    // whose wait is felt, from the long ones, which are long anyway.
    std::array<double, kPrefillClasses> headroom = {2, 1.5, 1.2, 1};
    std::int64_t lease_us = 3'000'000;
    // Division ignores its limit on changes above this backlog of the whole fleet.
    double urgent_backlog_us = 5e6;
    bool is_stealing = true;       // engines without work of their own take from other classes
    double steal_use_max = 0.70;   // of its quota, for an engine to take from a longer class
    double held_share_max = 0.60;  // of a rank's blocks, by prompts that wait for decode

    AdmissionMode mode = AdmissionMode::queue;
    std::array<double, kPrefillClasses> ttft_limit_us = {10e6, 20e6, 60e6, 180e6};
    std::int64_t queue_requests_max = 100'000;  // of a class
    std::int64_t start_limit_us = 600'000'000;  // waiting longer, a request is closed
    double planned_use = 0.90;           // u: the part of the engines' time that becomes work
    std::int64_t token_bytes_max = 128;  // of the tokenizer

    Status check() const;
};

struct PrefillEngine {
    std::int64_t ranks = 1;            // 1 to 1,024
    std::int64_t blocks_per_rank = 0;  // of KV
    // All ranks work on each request together; every one is charged cost/ranks × 1.1.
    bool is_context_parallel = false;
    bool can_lose_rank = false;  // runs on with a dead rank
};

struct PrefillRequest {
    std::uint64_t id = 0;
    std::int64_t total_tokens = 0;
    std::int64_t hit_tokens = 0;
    bool is_window_found = true;
    std::int64_t deadline_us = 0;  // its place in the queue; by default the time of admission
    std::int64_t priority = 0;     // larger is dearer; matters when some are shed
    bool is_over_tenant_limit = false;
};

struct PrefillAdmission {
    bool is_accepted = false;
    PrefillReason reason = PrefillReason::accepted;
    double ttft_us = 0;  // predicted
    std::int64_t retry_after_us = 0;
    std::optional<std::uint64_t> shed_id;  // another request, dropped for this one
};

struct PrefillRankReport {
    bool is_alive = true;
    std::int64_t free_blocks = 0;
    std::int64_t held_blocks = 0;  // of prompts that are finished and not taken by decode
    double backlog_us = 0;         // predicted cost of all granted and not computed
    double giant_us = 0;           // the part of it by requests of more than one step
    std::int64_t cap_tokens = std::int64_t{1} << 40;  // it takes no more new tokens now
};

struct PrefillPull {
    std::size_t engine = 0;
    std::int64_t epoch = 0;  // grows with each start of the engine
    std::int64_t credits = 0;
    std::span<const PrefillRankReport> ranks;
};

inline constexpr std::int64_t kAllRanks = -1;
struct PrefillGrant {
    std::uint64_t id = 0;
    std::size_t engine = 0;
    std::int64_t rank = 0;  // kAllRanks under context parallelism
    std::int64_t attempt = 0;
    std::int64_t lease_until_us = 0;
    double cost_us = 0;
    PrefillWork work;
    PrefillReason reason = PrefillReason::fits_quota;
};

class PrefillBalancer {
  public:
    // The settings must pass their check.
    explicit PrefillBalancer(const PrefillSettings& settings, std::size_t log_records = 0);

    // Engines, by an index of the caller's. Joining again with a larger epoch is a restart.
    void join(std::size_t engine, std::int64_t epoch, const PrefillEngine& what,
              std::int64_t now_us);
    void lose(std::size_t engine, std::int64_t now_us);  // returns what it was granted
    bool is_live(std::size_t engine) const;

    // Before a prompt is tokenized: is one of so many bytes refused, however it is cut into tokens?
    PrefillAdmission admit_bytes(std::int64_t bytes, std::int64_t now_us) const;
    PrefillAdmission admit(const PrefillRequest& request, std::int64_t now_us);
    void cancel(std::uint64_t id, std::int64_t now_us);

    // Appends grants. Renews the engine's leases, as heartbeat() does after each step.
    PrefillReason pull(const PrefillPull& pull, std::int64_t now_us,
                       std::vector<PrefillGrant>* grants);
    void heartbeat(std::size_t engine, std::int64_t epoch, std::int64_t now_us);

    // Of a granted request. False when the attempt is not the present one: the caller must drop
    // whatever it did for it.
    bool finish(std::uint64_t id, std::int64_t attempt, std::int64_t now_us);
    // What finish() will look at for these, into the cache: decides nothing.
    void prefetch(std::span<const std::uint64_t> ids) const { entries_.prefetch(ids); }
    bool give_back(std::uint64_t id, std::int64_t attempt, std::int64_t now_us);

    // At least every few hundred milliseconds: lapsed leases, requests that waited too long (they
    // are appended to `closed`), and the division of a new round.
    void tick(std::int64_t now_us, std::vector<std::uint64_t>* closed);

    void observe_step(std::size_t engine, std::size_t length_class, double predicted_us,
                      double observed_us, const PrefillCorrection::Excuse& excuse,
                      std::int64_t now_us);
    bool drifted(std::size_t engine, std::int64_t now_us) const;

    std::int64_t waiting(std::size_t length_class) const;
    std::int64_t granted() const { return granted_; }
    // Of the live engines: ranks that serve a class, and the blocks that one request could have at
    // most; -1 without any. Kept, so that admission does not look at every engine.
    std::int64_t live_ranks(std::size_t serves) const { return live_.ranks[serves]; }
    std::int64_t most_blocks() const { return live_.most_blocks; }
    double backlog_us(std::size_t length_class) const;  // predicted cost of its queue
    std::size_t class_of_engine(std::size_t engine) const { return engines_[engine].serves; }
    // τ of an engine's steps.
    double tau_us(std::size_t engine) const { return settings_.tau_us[engines_[engine].serves]; }
    DecisionLog& log() { return log_; }

    std::vector<std::uint8_t> save() const;
    // Into a balancer of the same settings; its state is unchanged after an error.
    Status load(std::span<const std::uint8_t> bytes);

  private:
    struct Entry {
        PrefillRequest request;
        PrefillWork work;
        std::size_t length_class = 0;
        std::int64_t blocks = 0;
        std::int64_t cost_us = 0;   // without an engine's correction
        std::int64_t since_us = 0;  // of waiting
        std::uint64_t order = 0;    // of admission
        std::int64_t attempt = 0;
        std::int64_t skips = 0;
        bool is_front = false;  // was granted before
        std::optional<std::size_t> engine;
    };
    struct Engine {
        bool is_live = false;
        PrefillEngine what;
        std::int64_t epoch = 0;
        std::int64_t heard_us = 0;
        std::int64_t backlog_us = 0;
        std::size_t serves = 0;
        PrefillCorrection correction;
        std::vector<std::uint64_t> granted;
    };
    struct ShedKey {  // lowest priority first, then newest
        std::int64_t priority = 0;
        std::uint64_t newness = 0;
        std::uint64_t id = 0;
        friend auto operator<=>(const ShedKey&, const ShedKey&) = default;
    };
    struct Queue {
        std::deque<std::uint64_t> ids;  // sorted by comes_before
        std::set<ShedKey> shed_order;   // under AdmissionMode::shed: who goes first
        std::int64_t cost_us = 0;
        // What a round could use of it: a request runs on one rank, so no more than a round each.
        std::int64_t usable_us = 0;
        std::int64_t arrived_us = 0;  // usable cost admitted in this round
        std::int64_t used_us = 0;     // cost granted to engines of this class in this round
        std::int64_t used_before_us = 0, offered_before_us = 0;  // in the last round
        std::optional<std::uint64_t> locked;
        // With `locked`: the rank that takes nothing else.
        std::optional<std::size_t> aside_engine;
        std::int64_t aside_rank = 0;
    };
    // Sums over the live engines, taken anew whenever one comes, goes or changes its class.
    struct Live {
        ClassCounts engines{};
        std::array<std::int64_t, kPrefillClasses> ranks{};
        std::int64_t most_blocks = -1;
    };
    // A rank while its pull is served.
    struct PullRank {
        double quota_us = 0, backlog_us = 0, giant_us = 0;
        double giant_limit_us = 0;  // no more than this of giant_us is charged to the quota
        std::int64_t free_blocks = 0, blocks = 0, cap_tokens = 0;
        bool is_open = true;
    };
    struct Picked {
        std::uint64_t id = 0;
        PrefillReason reason = PrefillReason::fits_quota;
    };

    bool comes_before(const Entry& a, const Entry& b) const;
    void enqueue(std::uint64_t id);
    void remove_from_queue(std::uint64_t id);
    void drop_grant(Entry& entry);
    void requeue(std::uint64_t id, PrefillReason reason, std::int64_t now_us);
    void close_grants(Engine& engine, PrefillReason reason, std::int64_t now_us);
    void erase(std::uint64_t id);
    void unlock(std::uint64_t id);

    std::int64_t usable_us(const Entry& entry) const {
        return std::min(entry.cost_us, settings_.round_us);
    }
    void set_work(Entry& entry) const;  // class, work and blocks, from the request
    Status load_entries(StateReader& in, std::size_t limit);
    static ShedKey shed_key(const Entry& entry);
    PrefillReason check_pull(const PrefillPull& pull) const;
    PrefillReason open_ranks(const PrefillPull& pull);
    void join_ranks();
    std::optional<std::size_t> fullest_quota() const;
    std::optional<Picked> pick(std::size_t length_class, std::size_t engine, std::size_t rank,
                               bool has_debt);
    std::optional<Picked> pick_own(std::size_t engine, std::size_t rank);
    std::optional<Picked> steal(std::size_t engine, std::size_t rank, std::int64_t now_us);
    std::optional<Picked> take_aside(std::size_t engine, std::size_t rank, bool* is_aside);
    PrefillGrant grant(const Picked& picked, std::size_t engine, std::size_t rank,
                       std::int64_t now_us);
    double cost_on(const Entry& entry, const Engine& engine) const;
    bool own_queue_empty(std::size_t serves) const;

    PrefillAdmission judge(const PrefillRequest& request, std::int64_t cost_us,
                           std::int64_t blocks) const;
    double wait_us(std::size_t length_class) const;
    void divide(std::int64_t now_us);
    void relabel(const ClassCounts& counts, std::int64_t now_us);
    // Live engines of classes with engines to spare, those first that hold most of this class, then
    // those with least to do.
    std::vector<Engine*> nearest_to(std::size_t length_class, const ClassCounts& spare);
    void count_live();
    void count_in(const Engine& engine);

    PrefillSettings settings_;
    std::vector<Engine> engines_;
    Live live_;
    std::array<Queue, kPrefillClasses> queues_;
    std::array<std::size_t, kPrefillClasses> served_by_ = {0, 1, 2, 3};
    IdMap<Entry> entries_;                    // never iterated for a decision
    std::deque<std::uint64_t> by_admission_;  // with ids that are gone or granted
    std::int64_t granted_ = 0;
    std::uint64_t order_next_ = 0;
    std::uint64_t rotation_ = 0;  // of ties
    std::int64_t round_end_us_ = 0;
    bool has_divided_ = false;
    DecisionLog log_;

    std::vector<PullRank> ranks_;  // of the pull in work
};

}  // namespace fathom
