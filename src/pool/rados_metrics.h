// What a rados store counts (kvpool.md 14). Owner thread only; the registry shows it.
#pragma once

#include <array>

#include "base/metrics.h"
#include "pool/block_store.h"
#include "pool/slot.h"

namespace fathom {

struct RadosMetrics {
    explicit RadosMetrics(MetricsRegistry& registry);

    std::array<Counter*, 6> get_blocks{};   // by GetStatus
    std::array<Counter*, 10> put_blocks{};  // by PutOutcome
    std::array<Counter*, 9> faults{};       // by SlotFault: what was found instead of a block
    Counter &absent, &expired, &corrupt, &collision, &tag;  // misses by cause
    Counter &get_bytes, &put_bytes, &renewed_blocks, &deadline_exceeded, &timeouts, &io_errors,
        &quarantined, &swept, &evicted, &dropped;
    Gauge &inflight_io, &queued_blocks, &io_stopped;
    Histogram &get_seconds, &put_seconds, &prefix_hit_blocks, &ttl_left_at_hit;
};

}  // namespace fathom
