// What the fleet knows of a request that is under way.
#pragma once

#include <cstdint>

#include "policy/prefill_cost.h"
#include "sim/fleet/decode_side.h"
#include "sim/fleet/kv_model.h"
#include "sim/fleet/workload.h"

namespace fathom {

// In the order in which it is needed: a request is looked at some times, seconds apart, and each
// line of memory that is read then comes from far away.
struct RequestState {
    std::int64_t first_input_tokens = 0, output_tokens = 0;  // as they came
    std::int64_t hit_tokens = 0;
    SimTime arrived_ns = 0, first_token_ns = 0;
    DecodeEntry entry;

    std::uint32_t attempt = 0;
    bool in_use = false, is_counted = false, is_redone = false, has_first_token = false;
    bool is_granted = false, is_placed = false;
    bool is_unspoilt = false;        // an engine that drains handed it back before it began
    bool is_resumed = false;         // its state of the last window was lost
    bool is_short_draining = false;  // a short chat on a group that drains
    DecodeSeat seat;
    std::uint32_t group_epoch = 0;
    std::uint32_t engine = 0, rank = 0;  // of prefill
    // Its KV lies on a decode rank that it leaves, not with prefill.
    std::int32_t leaves_rank = -1;  // over all groups
    std::int64_t blocks = 0;        // on the prefill rank, until decode has it
    double owed_us = 0;             // predicted prefill, until it is done or given up
    SimTime left_ns = 0;            // its rank, or was lost
    SimTime granted_ns = 0;
    std::uint64_t serial = 0;
    PrefillWork work;
};
struct alignas(64) Request : RequestState {
    Arrival arrival;  // after a breakdown with what was generated as part of the prompt
};
static_assert(sizeof(Request) == 256);
inline constexpr RequestState kNewRequest;

// A short chat's answer (serving.md 4.6): most of chat's end far below.
inline constexpr std::int64_t kShortOutputTokens = 1'024;

// What the balancers are told of outputs to come is what came so far.
struct OutputGuess {
    double mean = 0, p90 = 0;
    void learn(std::int64_t output_tokens);
};

void count_admitted(const Request& request, const PoolHit& hit, FleetTotals& totals);
void count_finished(const Request& request, SimTime now_ns, const SloConfig& slo,
                    RequestFigures& figures);

}  // namespace fathom
