// What a simulated fleet did: distributions, sums, and where the time of its cards went. Sums of
// card-time are integers, so that they add up exactly.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/event_queue.h"
#include "sim/experts/expert_figures.h"
#include "sim/fleet/fleet_config.h"

namespace fathom {

// Counts of positive values in classes of equal width on a logarithmic axis, 64 to a doubling: a
// percentile is off by at most 1.1 %. Below 1 everything counts as 1.
class LogHistogram {
  public:
    void add(double value);
    std::int64_t count() const { return count_; }
    double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
    // Of share in [0, 1]; 0 without values.
    double percentile(double share) const;
    void merge(const LogHistogram& other);

  private:
    std::vector<std::int64_t> classes_;
    std::int64_t count_ = 0;
    double sum_ = 0;
};

// Where a card's time goes. `work` is what the balanced bound would need as well: the same requests
// on the same cards with every step full, every rank equal, moe_lb 1 and all KV there. Where drafts
// are modelled, for the tokens that were accepted.
enum class CardTime : std::uint8_t {
    work,
    dp_imbalance,   // waiting for the slowest rank
    moe_imbalance,  // waiting for the slowest expert rank
    step_fixed,     // fixed cost of steps beyond what full steps have
    noise,          // steps against their model, and stalls: below 0 where steps were shorter
    kv_wait,        // granted prompts whose KV is on its way, and nothing else to do
    blocked,        // finished prompts that no decode rank takes
    redone,         // work that was done before
    failed,         // broken engines
    lifecycle,      // engines that start or drain
    idle,           // no work
    // Of decode steps whose drafts are modelled: what the bound, which has the table of drafts,
    // would not need for the tokens that were accepted. Last, as reports without drafts lack it.
    rejected_drafts,
};
inline constexpr std::size_t kCardTimes = 12;
std::string_view card_time_name(CardTime kind);

struct CardLedger {
    std::array<std::int64_t, kCardTimes> ns{};  // card-nanoseconds
    std::int64_t total_ns = 0;                  // cards × time

    void add(CardTime kind, std::int64_t card_ns) { ns[static_cast<std::size_t>(kind)] += card_ns; }
    void add(const CardLedger& other);
    std::int64_t sum_ns() const;
    double share(CardTime kind) const;
};

struct RequestFigures {
    std::int64_t finished = 0, within_slo = 0;
    LogHistogram ttft_ms, tpot_ms, e2e_ms, queue_ms;
};

struct FleetSample {  // of one interval of the time series
    double at_s = 0;
    double prefill_use = 0, decode_use = 0;            // of card-time, in steps
    std::int64_t prefill_ready = 0, decode_ready = 0;  // engines and groups
    std::int64_t input_tokens = 0, first_tokens = 0;   // without which the next ones say nothing
    double hit_share = 0;
    double ttft_p50_ms = 0, ttft_p99_ms = 0;
    double tokens_in_s = 0, tokens_out_s = 0;
    std::int64_t waiting = 0, decoding = 0, in_flight = 0;
    std::array<double, kExpertRoles> moe_balance{};  // only with a process of experts
    double draft_rows = 0,
           draft_tokens = 0;  // of a sequence and step; only where drafts are modelled
};

struct ScalingFigures {
    std::int64_t started = 0, drains = 0;
    std::array<int, 2> turns{};  // of prefill and decode, from growing to shrinking or back
};

// Of all drains (policy/fleet_drain.h).
struct DrainFigures {
    std::int64_t begun = 0, refused = 0;
    std::int64_t copied_ahead = 0, adopted = 0, resumed = 0, handed_back = 0;
    std::int64_t long_pauses = 0;  // beyond the larger of 200 ms and two steps
    LogHistogram moves_ms;         // of a drain, from the freeze to the last adoption or its end
};

struct FleetTotals {
    std::int64_t events = 0;
    // Requests: arrived = rejected + closed + finished + in flight at the end.
    std::int64_t arrived = 0, rejected = 0, closed = 0, finished = 0, in_flight = 0, resumed = 0;
    // Tokens of accepted prompts: accepted = hit + computed + not yet computed − replayed − redone.
    std::int64_t input_tokens = 0, hit_tokens = 0, output_tokens = 0;
    std::int64_t computed_tokens = 0, replayed_tokens = 0, redone_tokens = 0;
    std::int64_t moved = 0;    // adopted by another decode group, with their KV
    std::int64_t retried = 0;  // by clients that were refused
    // Chats with answers of at most 1,024 tokens on decode groups that began to drain, and those of
    // them that ended there within the grace.
    std::int64_t short_chats = 0, short_chats_ended = 0;
    std::int64_t window_wanted = 0, window_hits = 0;
    std::int64_t pool_read_bytes = 0, pool_written_bytes = 0, handoff_bytes = 0;
    std::int64_t prefill_steps = 0, decode_steps = 0;
    double decode_rank_us = 0, decode_max_us = 0;  // sums, for the lock-step efficiency
    double decode_sequence_steps = 0, decode_rank_steps = 0;
};

// Of all requests that finished behind the warm-up, whenever they came: what the fleet gives, and
// what is paid for.
struct ServedTokens {
    std::int64_t input_tokens = 0, hit_tokens = 0, output_tokens = 0;
};

struct FleetResult {
    FleetConfig config;
    double rate = 0;  // requests a second that the workload brings, on average over duration_s
    double measured_s = 0;  // without the warm-up; 0 when the run ended in it
    FleetTotals totals;     // of the whole run
    // Of requests that came behind the warm-up; bytes and steps of that time.
    FleetTotals counted;
    ServedTokens served;
    CardLedger prefill, decode;
    std::array<RequestFigures, kPrefillClasses> by_class;
    std::array<RequestFigures, kTrafficKinds> by_traffic;
    RequestFigures all;
    LogHistogram move_ms;  // from leaving a group to arriving in another
    // Of those that were resumed: from when they lost their group to the next token; the most
    // tokens that were computed for one until it had that; and how many needed more than what lies
    // behind their last whole block and 128 tokens.
    LogHistogram gap_ms;
    std::int64_t recomputed_tokens_max = 0, replays_beyond_block = 0;
    ScalingFigures scaling;
    DrainFigures drains;
    std::array<ExpertFigures, kExpertRoles> experts;  // prefill, decode; only with a process
    DraftFigures drafts, drafts_all;  // behind the warm-up, of the whole run; only where modelled
    std::vector<FleetSample> series;
    std::uint64_t prefill_decisions = 0, decode_decisions = 0, fleet_decisions = 0;  // hashes
    std::uint64_t hash = 0;  // of every event and decision
    // What must hold of the whole run; empty when all does. Sentences.
    std::vector<std::string> violations;

    // The kinds that can occur in this run: those from the first on.
    std::size_t card_times() const {
        return kCardTimes - (config.decode.drafts.is_modelled() ? 0 : 1);
    }
    double efficiency() const;  // share of card-time that is `work`, both sides
    double hit_share() const;
    double card_hours() const;        // behind the warm-up, of cards that were switched on
    double cost_per_million() const;  // of input and output tokens
    double revenue_per_card_hour() const;
};

}  // namespace fathom
