// Where the requests of a configuration come from, and what is known of them before.
#pragma once

#include <memory>

#include "sim/fleet/fleet_config.h"
#include "sim/fleet/workload.h"

namespace fathom {

struct Traffics {  // one of the two
    std::unique_ptr<Workload> open;
    std::unique_ptr<Clients> clients;
    WorkloadMeans means;
    double rate = 0;  // requests a second on average; 0: not known before

    double written_tokens_s() const {
        return rate * (means.input_tokens - means.hit_tokens + means.output_tokens);
    }
};
// Errors of opening a trace.
Result<Traffics> open_traffics(const FleetConfig& config);

}  // namespace fathom
