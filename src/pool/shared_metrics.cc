#include "pool/shared_metrics.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom {

namespace {

MetricLabels peers() {
    return {{"backend", "peers"}};
}
MetricLabels peers(std::string label, std::string_view value) {
    return {{"backend", "peers"}, {std::move(label), std::string(value)}};
}
Gauge& segments(MetricsRegistry& registry, const char* state) {
    return registry.gauge("kvpool_segments", "Segments by state.", peers("state", state));
}

}  // namespace

SharedMetrics::SharedMetrics(MetricsRegistry& r)
    : get_bytes(r.counter("kvpool_get_bytes_total", "Payload bytes of hits.", peers())),
      deadline_exceeded(r.counter("kvpool_deadline_exceeded_total",
                                  "Calls that ended at their deadline.", peers())),
      dedup_blocks(r.counter("kvpool_dedup_blocks_total",
                             "Blocks not stored because another process has them.")),
      index_entries(r.gauge("kvpool_index_entries", "Blocks that can be found.", peers())),
      index_bytes(r.gauge("kvpool_index_bytes", "Memory of the index.", peers())),
      prefix_hit_blocks(r.histogram("kvpool_prefix_hit_blocks", "Blocks found by prefix lookups.",
                                    {0, 1, 4, 16, 64, 256, 1024, 4096, 16384}, peers())),
      io_errors(r.counter("kvpool_io_errors_total", "Reads, writes and file operations failed.",
                          peers())),
      tended(r.counter("kvpool_tended_pools_total",
                       "Times that the pool of a process that has ended was looked after.")),
      pools(r.gauge("kvpool_peer_pools", "Pools of other processes in the shared directory.")),
      segments_open(segments(r, "open")),
      segments_sealed(segments(r, "sealed")),
      allocated_bytes(
          r.gauge("kvpool_allocated_bytes", "Bytes that the pool takes of its disk.", peers())),
      drops(r.gauge("kvpool_drops_pending",
                    "Dropped namespaces that not every pool is known to be rid of.")),
      look_seconds(r.histogram("kvpool_look_seconds", "Time of a look at the other pools.",
                               {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 25})) {
    for (std::size_t i = 0; i < get_blocks.size(); ++i) {
        get_blocks[i] = &r.counter("kvpool_get_blocks_total", "Blocks asked for, by answer.",
                                   peers("status", get_status_name(static_cast<GetStatus>(i))));
    }
    for (std::size_t i = 1; i < faults.size(); ++i) {
        faults[i] = &r.counter("kvpool_corrupt_total", "Slots that were not the block looked for.",
                               peers("where", slot_fault_name(static_cast<SlotFault>(i))));
    }
}

}  // namespace fathom
