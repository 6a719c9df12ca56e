// Runs a workload against something that answers requests, and keeps a record of each: at most so
// many at a time, at given times or as soon as there is room. It always ends: a target keeps each
// request within its time limit, and an interrupt cancels what is under way.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/metrics.h"
#include "cli/bench/workload.h"
#include "cli/interrupts.h"

namespace fathom {

class LoadTarget {
  public:
    using Done = std::function<void(RequestRecord)>;

    virtual ~LoadTarget() = default;
    // Sends a request. `done` gets its record exactly once, on any thread (inside start() too),
    // within the target's time limit or soon after cancel_all().
    virtual void start(std::int64_t index, const LoadRequest& request, Done done) = 0;
    virtual void cancel_all() = 0;
};

struct LoadPlan {
    std::int64_t concurrency = 1;           // requests under way at most
    std::vector<std::int64_t> arrivals_us;  // one a request, ascending; empty: at once
    // Kept under way from before the first request until the last has ended, beside the others.
    // When one ends the next copy follows, which differs from its beginning on: no cache helps it.
    const LoadRequest* background = nullptr;
};

struct LoadResult {
    std::vector<RequestRecord> records;     // in order of ending
    std::vector<RequestRecord> background;  // copies that ended before the last request did
    bool interrupted = false;
};

// `on_progress` is called with the number of ended requests now and then. The calling thread waits.
LoadResult run_load(LoadTarget& target, std::span<const LoadRequest> requests, const LoadPlan& plan,
                    Interrupts& interrupts, const std::function<void(std::int64_t)>& on_progress);

}  // namespace fathom
