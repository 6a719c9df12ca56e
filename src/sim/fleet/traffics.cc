#include "sim/fleet/traffics.h"

#include <utility>
#include <vector>

#include "sim/fleet/bound.h"

namespace fathom {

Result<Traffics> open_traffics(const FleetConfig& config) {
    Traffics traffics;
    const WorkloadConfig& workload = config.workload;
    if (workload.source == WorkloadSource::trace) {
        FATHOM_ASSIGN(traffics.open, open_trace_workload(workload, config.seed));
        return traffics;
    }
    std::vector<SessionCall> book = write_session_book(workload, config.seed, kSessionBookCalls);
    traffics.means = session_means(book, config.pool);
    if (workload.source == WorkloadSource::clients) {
        traffics.clients = std::make_unique<Clients>(workload, config.seed, std::move(book));
        return traffics;
    }
    const double bound = bound_rates(config, book).both();
    traffics.rate = workload.rate > 0 ? workload.rate : workload.load * bound;
    traffics.open = make_session_workload(workload, config.seed, std::move(book), traffics.rate);
    return traffics;
}

}  // namespace fathom
