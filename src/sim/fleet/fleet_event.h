// The kinds of events of a fleet; `subject` and `detail` mean what stands beside them.
#pragma once

#include <cstdint>

namespace fathom {

// Values are part of the hash of a run: append only.
enum class FleetEvent : std::uint32_t {
    arrival,
    prefill_step,  // subject: engine, detail: its epoch
    prefill_wake,  // KV for an idle engine has arrived
    prefill_poll,  // the dispatcher's own upkeep
    decode_step,   // subject: group, detail: its epoch
    place,         // finished prompts to decode ranks
    adopt,         // subject: request slot, detail: its attempt
    sample,
    break_down,     // subject: unit (lifecycle.h)
    repair,         // subject: unit, detail: its turn
    started,        // the same
    drain_begin,    // what the configuration plans
    drain_check,    // subject: unit, detail: its turn
    plan,           // the autoscaler
    client,         // subject: client; it sends its next request
    expert_sample,  // subject: role (0 prefill, 1 decode), as of the next
    expert_turn,
};

}  // namespace fathom
