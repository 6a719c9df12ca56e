// The pool and the network as a fleet feels them (serving.md 4.2). What a prompt finds:
//
//   traces    the blocks of the pool's model (replay/cache_model.h), which holds what earlier
//             requests wrote when they were done
//   sessions  what the session's last call left, if its gap is within the time to live; with a
//             capacity, also within the time in which as much is written (first written, first
//             gone)
//
// A window (the sliding-window state at the end of the hit) is there when that call is at most its
// time to live ago. Bytes take a fixed latency and their turn on a link, first come first served;
// the mean equals that of fair sharing when transfers are alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/event_queue.h"
#include "sim/fleet/fleet_config.h"
#include "sim/fleet/workload.h"
#include "sim/replay/cache_model.h"

namespace fathom {

// Work-conserving, one transfer at a time.
class Link {
  public:
    explicit Link(double bytes_per_s = 1) : ns_per_byte_(1e9 / bytes_per_s) {}
    // When `bytes` that want to go at now_ns have gone.
    SimTime pass(SimTime now_ns, std::int64_t bytes) {
        free_ns_ = std::max(free_ns_, now_ns) +
                   static_cast<SimTime>(static_cast<double>(bytes) * ns_per_byte_);
        return free_ns_;
    }

  private:
    double ns_per_byte_;
    SimTime free_ns_ = 0;
};

struct PoolHit {
    std::int64_t tokens = 0;  // whole blocks of 128, and never the last token
    bool is_window_found = false;
};

class KvModel {
  public:
    // written_bytes_s: what sessions write on average, for the time that a capacity lasts.
    KvModel(const FleetConfig& config, double written_bytes_s);

    PoolHit look_up(const Arrival& arrival);
    // What a finished request leaves; returns the bytes that were new.
    std::int64_t store(const Arrival& arrival, SimTime now_ns, std::int64_t hit_tokens);
    // When KV of `tokens` has arrived from the pool.
    SimTime read(SimTime now_ns, std::int64_t tokens, Link& port);
    std::int64_t kv_bytes(std::int64_t tokens) const {
        return tokens * config_.network.token_bytes;
    }
    // The link of an engine or a rank of so many cards.
    Link make_port(std::int64_t cards) const;
    SimTime latency_ns() const;

  private:
    bool has_window(const Arrival& arrival, std::int64_t hit_blocks);

    FleetConfig config_;
    double retention_us_;
    Link store_link_;
    std::optional<CacheModel> cache_;
    std::vector<SimTime> window_us_;  // by block: last use as an end of a prompt, −1 none
};

}  // namespace fathom
