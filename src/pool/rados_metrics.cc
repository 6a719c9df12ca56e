#include "pool/rados_metrics.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom {

namespace {

const std::vector<double> kSeconds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                      0.05,   0.1,   0.25,   0.5,   1,    5};
const std::vector<double> kBlocks = {0, 1, 4, 16, 64, 256, 1024, 4096, 16384};
const std::vector<double> kLifeSeconds = {60,     600,     3'600,   6 * 3'600,
                                          86'400, 172'800, 345'600, 604'800};

MetricLabels rados() {
    return {{"backend", "rados"}};
}
MetricLabels rados(std::string label, std::string_view value) {
    return {{"backend", "rados"}, {std::move(label), std::string(value)}};
}

Counter& count(MetricsRegistry& registry, const char* name, const char* help) {
    return registry.counter(name, help, rados());
}
Counter& miss(MetricsRegistry& registry, const char* cause) {
    return registry.counter("kvpool_miss_blocks_total", "Blocks not given, by cause.",
                            rados("cause", cause));
}
Counter& removed(MetricsRegistry& registry, const char* cause) {
    return registry.counter("kvpool_gc_blocks_total", "Blocks removed one by one, by cause.",
                            rados("cause", cause));
}
Gauge& gauge(MetricsRegistry& registry, const char* name, const char* help) {
    return registry.gauge(name, help, rados());
}

}  // namespace

RadosMetrics::RadosMetrics(MetricsRegistry& r)
    : absent(miss(r, "absent")),
      expired(miss(r, "expired")),
      corrupt(miss(r, "corrupt")),
      collision(miss(r, "collision")),
      tag(miss(r, "tag")),
      get_bytes(count(r, "kvpool_get_bytes_total", "Payload bytes of hits.")),
      put_bytes(count(r, "kvpool_put_bytes_total", "Payload bytes of stored blocks.")),
      renewed_blocks(count(r, "kvpool_renewed_blocks_total", "Blocks written anew in time.")),
      deadline_exceeded(
          count(r, "kvpool_deadline_exceeded_total", "Calls that ended at their deadline.")),
      timeouts(count(r, "kvpool_io_timeouts_total", "Requests that the cluster did not answer.")),
      io_errors(count(r, "kvpool_io_errors_total", "Reads, writes and file operations failed.")),
      quarantined(removed(r, "corrupt")),
      swept(removed(r, "ttl")),
      evicted(removed(r, "capacity")),
      dropped(removed(r, "drop")),
      inflight_io(gauge(r, "kvpool_inflight_io", "Requests to the disk in flight.")),
      queued_blocks(gauge(r, "kvpool_queued_blocks", "Blocks of calls that have not ended.")),
      io_stopped(gauge(r, "kvpool_io_stopped", "1 while the cluster does no I/O for some blocks.")),
      get_seconds(r.histogram("kvpool_get_seconds", "Time of a get.", kSeconds, rados())),
      put_seconds(r.histogram("kvpool_put_seconds", "Time of a put.", kSeconds, rados())),
      prefix_hit_blocks(r.histogram("kvpool_prefix_hit_blocks", "Blocks found by prefix lookups.",
                                    kBlocks, rados())),
      ttl_left_at_hit(r.histogram("kvpool_ttl_left_at_hit_seconds", "Life left to blocks when hit.",
                                  kLifeSeconds, rados())) {
    for (std::size_t i = 0; i < get_blocks.size(); ++i) {
        get_blocks[i] = &r.counter("kvpool_get_blocks_total", "Blocks asked for, by answer.",
                                   rados("status", get_status_name(static_cast<GetStatus>(i))));
    }
    for (std::size_t i = 0; i < put_blocks.size(); ++i) {
        put_blocks[i] = &r.counter("kvpool_put_blocks_total", "Blocks offered, by outcome.",
                                   rados("outcome", put_outcome_name(static_cast<PutOutcome>(i))));
    }
    for (std::size_t i = 1; i < faults.size(); ++i) {
        faults[i] = &r.counter("kvpool_corrupt_total", "Slots that were not the block looked for.",
                               rados("where", slot_fault_name(static_cast<SlotFault>(i))));
    }
}

}  // namespace fathom
