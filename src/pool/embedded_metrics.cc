#include "pool/embedded_metrics.h"

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

MetricLabels embedded() {
    return {{"backend", "embedded"}};
}

MetricLabels embedded(std::string label, std::string_view value) {
    return {{"backend", "embedded"}, {std::move(label), std::string(value)}};
}

Counter& count(MetricsRegistry& registry, const char* name, const char* help) {
    return registry.counter(name, help, embedded());
}

Gauge& gauge(MetricsRegistry& registry, const char* name, const char* help) {
    return registry.gauge(name, help, embedded());
}

Gauge& segments(MetricsRegistry& registry, const char* state) {
    return registry.gauge("kvpool_segments", "Segments by state.", embedded("state", state));
}

}  // namespace

EmbeddedMetrics::EmbeddedMetrics(MetricsRegistry& r)
    : get_bytes(count(r, "kvpool_get_bytes_total", "Payload bytes of hits.")),
      put_bytes(count(r, "kvpool_put_bytes_total", "Payload bytes of stored blocks.")),
      renewed_blocks(count(r, "kvpool_renewed_blocks_total", "Blocks written anew in time.")),
      scrub_bytes(count(r, "kvpool_scrub_bytes_total", "Bytes read to check what lies there.")),
      scrub_blocks(count(r, "kvpool_scrub_blocks_total", "Blocks checked where they lie.")),
      deadline_exceeded(
          count(r, "kvpool_deadline_exceeded_total", "Calls that ended at their deadline.")),
      io_errors(count(r, "kvpool_io_errors_total", "Reads, writes and file operations failed.")),
      sync_errors(count(r, "kvpool_sync_errors_total", "Syncs that failed.")),
      lost_files(count(r, "kvpool_lost_files_total", "Files moved to lost/.")),
      clock_jumps(count(r, "kvpool_clock_jumps_total", "Jumps of the wall clock by over 1 h.")),
      segments_open(segments(r, "open")),
      segments_sealed(segments(r, "sealed")),
      segments_dying(segments(r, "dying")),
      allocated_bytes(gauge(r, "kvpool_allocated_bytes", "Bytes that the pool takes of its disk.")),
      index_entries(gauge(r, "kvpool_index_entries", "Blocks that can be found.")),
      index_bytes(gauge(r, "kvpool_index_bytes", "Memory of the index.")),
      unsynced_bytes(gauge(r, "kvpool_unsynced_bytes", "Bytes that a loss of power would take.")),
      inflight_io(gauge(r, "kvpool_inflight_io", "Requests to the disk in flight.")),
      queued_blocks(gauge(r, "kvpool_queued_blocks", "Blocks of calls that have not ended.")),
      open_seconds(gauge(r, "kvpool_open_seconds", "How long opening the pool took.")),
      gc_lag(gauge(r, "kvpool_gc_lag_seconds",
                   "How long the segment that is due first should have been removed.")),
      epoch_lag(gauge(r, "kvpool_epoch_lag_seconds",
                      "How long a removed segment has waited for its reads to end.")),
      get_seconds(r.histogram("kvpool_get_seconds", "Time of a get.", kSeconds, embedded())),
      put_seconds(r.histogram("kvpool_put_seconds", "Time of a put.", kSeconds, embedded())),
      prefix_hit_blocks(r.histogram("kvpool_prefix_hit_blocks", "Blocks found by prefix lookups.",
                                    kBlocks, embedded())),
      ttl_left_at_hit(r.histogram("kvpool_ttl_left_at_hit_seconds", "Life left to blocks when hit.",
                                  kLifeSeconds, embedded())),
      age_at_evict(r.histogram("kvpool_age_at_evict_seconds", "Age of segments when they go.",
                               kLifeSeconds, embedded())) {
    for (std::size_t i = 0; i < get_blocks.size(); ++i) {
        get_blocks[i] = &r.counter("kvpool_get_blocks_total", "Blocks asked for, by answer.",
                                   embedded("status", get_status_name(static_cast<GetStatus>(i))));
    }
    for (std::size_t i = 0; i < put_blocks.size(); ++i) {
        put_blocks[i] =
            &r.counter("kvpool_put_blocks_total", "Blocks offered, by outcome.",
                       embedded("outcome", put_outcome_name(static_cast<PutOutcome>(i))));
    }
    constexpr std::array<std::string_view, kMissCauses> kCauses = {"absent",  "expired",   "hole",
                                                                   "corrupt", "collision", "tag"};
    for (std::size_t i = 0; i < misses.size(); ++i) {
        misses[i] = &r.counter("kvpool_miss_blocks_total", "Blocks not given, by cause.",
                               embedded("cause", kCauses[i]));
    }
    for (std::size_t i = 1; i < faults.size(); ++i) {
        faults[i] = &r.counter("kvpool_corrupt_total", "Slots that were not the block looked for.",
                               embedded("where", slot_fault_name(static_cast<SlotFault>(i))));
    }
    constexpr std::array<std::string_view, kGcCauses> kGc = {"ttl", "capacity", "drop", "empty"};
    for (std::size_t i = 0; i < gc_segments.size(); ++i) {
        gc_segments[i] = &r.counter("kvpool_gc_segments_total", "Segments removed, by cause.",
                                    embedded("cause", kGc[i]));
    }
}

}  // namespace fathom
