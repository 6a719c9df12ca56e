// The balanced bound of a fleet (serving.md 4.4): how many requests a second its cards could serve
// with every step full, every rank equal, moe_lb 1, all KV there and no queue.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/fleet/fleet_config.h"
#include "sim/fleet/workload.h"

namespace fathom {

struct BoundRates {
    double prefill = 0, decode = 0;  // requests a second
    double both() const { return std::min(prefill, decode); }
};
// `book`: at least one call.
BoundRates bound_rates(const FleetConfig& config, const std::vector<SessionCall>& book);

}  // namespace fathom
