// A fleet in virtual time (serving.md 4): traffic, prefill engines, hand-off, decode groups, pool
// and network, driven by the policies that live services use. The same configuration gives the same
// result, bit for bit.
//
//   arrival ─pool─▶ prefill queues ─▶ engine (loads KV, steps) ─first token─▶ decode rank ─▶ done
//                        ▲                                       transfer         │
//                        └──────────── resumed after a breakdown ◀────────────────┘
//
// One thread. Memory grows with the requests in flight, not with those that were.
#pragma once

#include <functional>

#include "base/result.h"
#include "sim/fleet/fleet_result.h"

namespace fathom {

struct FleetHooks {
    // Called often, while a fleet is set up as well, with simulated and wanted seconds; false ends
    // the run as cancelled.
    std::function<bool(double done_s, double total_s)> progress;
};

// invalid_argument for a configuration that check_fleet refuses or a trace that cannot be read.
Result<FleetResult> run_fleet(const FleetConfig& config, const FleetHooks& hooks = {});

}  // namespace fathom
