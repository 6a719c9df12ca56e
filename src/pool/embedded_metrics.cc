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

// The registry, and the labels that all have.
struct Of {
    MetricsRegistry& registry;
    const std::string& backend;

    MetricLabels labels() const { return {{"backend", backend}}; }
    MetricLabels labels(std::string label, std::string_view value) const {
        return {{"backend", backend}, {std::move(label), std::string(value)}};
    }
};

Counter& count(const Of& of, const char* name, const char* help) {
    return of.registry.counter(name, help, of.labels());
}

Gauge& gauge(const Of& of, const char* name, const char* help) {
    return of.registry.gauge(name, help, of.labels());
}

Gauge& segments(const Of& of, const char* state) {
    return of.registry.gauge("kvpool_segments", "Segments by state.", of.labels("state", state));
}

Histogram& histogram(const Of& of, const char* name, const char* help,
                     const std::vector<double>& bounds) {
    return of.registry.histogram(name, help, bounds, of.labels());
}

}  // namespace

EmbeddedMetrics::EmbeddedMetrics(MetricsRegistry& r, const std::string& b)
    : get_bytes(count({r, b}, "kvpool_get_bytes_total", "Payload bytes of hits.")),
      put_bytes(count({r, b}, "kvpool_put_bytes_total", "Payload bytes of stored blocks.")),
      renewed_blocks(count({r, b}, "kvpool_renewed_blocks_total", "Blocks written anew in time.")),
      scrub_bytes(
          count({r, b}, "kvpool_scrub_bytes_total", "Bytes read to check what lies there.")),
      scrub_blocks(count({r, b}, "kvpool_scrub_blocks_total", "Blocks checked where they lie.")),
      deadline_exceeded(
          count({r, b}, "kvpool_deadline_exceeded_total", "Calls that ended at their deadline.")),
      io_errors(
          count({r, b}, "kvpool_io_errors_total", "Reads, writes and file operations failed.")),
      sync_errors(count({r, b}, "kvpool_sync_errors_total", "Syncs that failed.")),
      lost_files(count({r, b}, "kvpool_lost_files_total", "Files moved to lost/.")),
      clock_jumps(
          count({r, b}, "kvpool_clock_jumps_total", "Jumps of the wall clock by over 1 h.")),
      segments_open(segments({r, b}, "open")),
      segments_sealed(segments({r, b}, "sealed")),
      segments_dying(segments({r, b}, "dying")),
      allocated_bytes(
          gauge({r, b}, "kvpool_allocated_bytes", "Bytes that the pool takes of its disk.")),
      index_entries(gauge({r, b}, "kvpool_index_entries", "Blocks that can be found.")),
      index_bytes(gauge({r, b}, "kvpool_index_bytes", "Memory of the index.")),
      unsynced_bytes(
          gauge({r, b}, "kvpool_unsynced_bytes", "Bytes that a loss of power would take.")),
      inflight_io(gauge({r, b}, "kvpool_inflight_io", "Requests to the disk in flight.")),
      queued_blocks(gauge({r, b}, "kvpool_queued_blocks", "Blocks of calls that have not ended.")),
      open_seconds(gauge({r, b}, "kvpool_open_seconds", "How long opening the pool took.")),
      gc_lag(gauge({r, b}, "kvpool_gc_lag_seconds",
                   "How long the segment that is due first should have been removed.")),
      epoch_lag(gauge({r, b}, "kvpool_epoch_lag_seconds",
                      "How long a removed segment has waited for its reads to end.")),
      get_seconds(histogram({r, b}, "kvpool_get_seconds", "Time of a get.", kSeconds)),
      put_seconds(histogram({r, b}, "kvpool_put_seconds", "Time of a put.", kSeconds)),
      prefix_hit_blocks(histogram({r, b}, "kvpool_prefix_hit_blocks",
                                  "Blocks found by prefix lookups.", kBlocks)),
      ttl_left_at_hit(histogram({r, b}, "kvpool_ttl_left_at_hit_seconds",
                                "Life left to blocks when hit.", kLifeSeconds)),
      age_at_evict(histogram({r, b}, "kvpool_age_at_evict_seconds", "Age of segments when they go.",
                             kLifeSeconds)) {
    const Of of{r, b};
    for (std::size_t i = 0; i < get_blocks.size(); ++i) {
        get_blocks[i] = &r.counter("kvpool_get_blocks_total", "Blocks asked for, by answer.",
                                   of.labels("status", get_status_name(static_cast<GetStatus>(i))));
    }
    for (std::size_t i = 0; i < put_blocks.size(); ++i) {
        put_blocks[i] =
            &r.counter("kvpool_put_blocks_total", "Blocks offered, by outcome.",
                       of.labels("outcome", put_outcome_name(static_cast<PutOutcome>(i))));
    }
    constexpr std::array<std::string_view, kMissCauses> kCauses = {"absent",  "expired",   "hole",
                                                                   "corrupt", "collision", "tag"};
    for (std::size_t i = 0; i < misses.size(); ++i) {
        misses[i] = &r.counter("kvpool_miss_blocks_total", "Blocks not given, by cause.",
                               of.labels("cause", kCauses[i]));
    }
    for (std::size_t i = 1; i < faults.size(); ++i) {
        faults[i] = &r.counter("kvpool_corrupt_total", "Slots that were not the block looked for.",
                               of.labels("where", slot_fault_name(static_cast<SlotFault>(i))));
    }
    constexpr std::array<std::string_view, kGcCauses> kGc = {"ttl", "capacity", "drop", "empty"};
    for (std::size_t i = 0; i < gc_segments.size(); ++i) {
        gc_segments[i] = &r.counter("kvpool_gc_segments_total", "Segments removed, by cause.",
                                    of.labels("cause", kGc[i]));
    }
}

}  // namespace fathom
