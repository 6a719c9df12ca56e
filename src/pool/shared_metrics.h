// What a shared store counts of the others' blocks (kvpool.md 14), under the backend "peers"; its
// own pool is an embedded one and counts for itself. The registry shows it.
#pragma once

#include <array>

#include "base/metrics.h"
#include "pool/block_store.h"
#include "pool/slot.h"

namespace fathom {

struct SharedMetrics {
    explicit SharedMetrics(MetricsRegistry& registry);

    // The core's.
    std::array<Counter*, 6> get_blocks{};  // by GetStatus
    std::array<Counter*, static_cast<std::size_t>(SlotFault::tag) + 1> faults{};
    Counter &get_bytes, &deadline_exceeded, &dedup_blocks;
    Gauge &index_entries, &index_bytes;
    Histogram& prefix_hit_blocks;
    // Of both threads.
    Counter& io_errors;
    // The looks'.
    Counter& tended;
    Gauge &pools, &segments_open, &segments_sealed, &allocated_bytes, &drops;
    Histogram& look_seconds;
};

}  // namespace fathom
