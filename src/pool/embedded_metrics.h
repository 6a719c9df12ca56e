// What an embedded store counts (kvpool.md 14). Owner thread only; the registry shows it.
#pragma once

#include <array>
#include <string>

#include "base/metrics.h"
#include "pool/block_store.h"
#include "pool/slot.h"

namespace fathom {

enum class MissCause : std::uint8_t { absent, expired, hole, corrupt, collision, tag };
inline constexpr int kMissCauses = 6;
enum class GcCause : std::uint8_t { ttl, capacity, drop, empty };
inline constexpr int kGcCauses = 4;

struct EmbeddedMetrics {
    EmbeddedMetrics(MetricsRegistry& registry, const std::string& backend);

    std::array<Counter*, 6> get_blocks{};   // by GetStatus
    std::array<Counter*, 10> put_blocks{};  // by PutOutcome
    std::array<Counter*, kMissCauses> misses{};
    std::array<Counter*, 9> faults{};  // by SlotFault: what was found instead of a block
    std::array<Counter*, kGcCauses> gc_segments{};
    Counter &get_bytes, &put_bytes, &renewed_blocks, &scrub_bytes, &scrub_blocks,
        &deadline_exceeded, &io_errors, &sync_errors, &lost_files, &clock_jumps;
    Gauge &segments_open, &segments_sealed, &segments_dying, &allocated_bytes, &index_entries,
        &index_bytes, &unsynced_bytes, &inflight_io, &queued_blocks, &open_seconds, &gc_lag,
        &epoch_lag;
    Histogram &get_seconds, &put_seconds, &prefix_hit_blocks, &ttl_left_at_hit, &age_at_evict;
};

}  // namespace fathom
