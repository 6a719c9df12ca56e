// Looks at a store's health every second and shows it: to the metrics as kvpool_health, and to who
// asks how the server is. Stores say themselves in the log what ails them.
#pragma once

#include <cstdint>
#include <thread>

#include "base/metrics.h"
#include "base/queue.h"
#include "pool/block_store.h"
#include "pool/store_mailbox.h"

namespace fathom {

class HealthWatch {
  public:
    static constexpr std::int64_t kLookUs = 1'000'000;

    // Store and registry outlive it. Its first look is over when it has been made.
    HealthWatch(const BlockStore& store, MetricsRegistry& metrics, std::int64_t look_us = kLookUs);
    ~HealthWatch();
    HealthWatch(const HealthWatch&) = delete;
    HealthWatch& operator=(const HealthWatch&) = delete;

    StoreHealth seen() const { return seen_.get(); }  // at the last look; any thread

  private:
    void look();

    const BlockStore& store_;
    Gauge& gauge_;
    LatestValue<StoreHealth> seen_;
    BoundedQueue<bool> ended_{1};
    std::thread thread_;
};

}  // namespace fathom
