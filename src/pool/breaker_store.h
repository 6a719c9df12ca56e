// A breaker in front of a store that may be down or slow: while too many calls fail or take too
// long it does not ask the store at all, so that a sick pool costs its users nothing but misses.
//
//   closed ── too many of the last calls failed or were slow ──> open: everything is a miss
//     ^                                                            │ after a while
//     └────── the probe came back well ── probing: one call <──────┘ longer after each failure
//
// It also keeps the promise about deadlines for a store that breaks it: a call that is not answered
// by its deadline and a grace, or that does not end when cancelled, is ended here. Its pages stay
// the store's until that releases them.
//
// drop_namespace always passes: erasing a tenant is not a matter of speed.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/metrics.h"
#include "pool/block_store.h"

namespace fathom {

struct BreakerOptions {
    int calls_seen = 64;                    // the last calls that count
    int calls_min = 8;                      // it does not open before it has seen so many
    double failed_share_max = 0.5;          // opens above
    double slow_share_max = 0.8;            // …
    std::int64_t slow_us = 100'000;         // a call that takes longer is slow
    std::int64_t slow_us_per_block = 0;     // … so much longer for each block of a get or put
    std::int64_t open_us = 1'000'000;       // from opening to the first probe; doubles with each
    std::int64_t open_us_max = 60'000'000;  // failed probe, up to this
    std::int64_t grace_us = 20'000;         // after which a call that should have ended is ended
    MetricsRegistry* metrics = nullptr;     // kvpool_breaker_state, kvpool_breaker_refused_total
};

class BreakerStore : public BlockStore {
  public:
    // The clock and the registry outlive the store.
    BreakerStore(std::unique_ptr<BlockStore> store, const BreakerOptions& options,
                 const Clock& clock);
    ~BreakerStore() override;

    std::int64_t payload_bytes() const override { return store_->payload_bytes(); }
    StoreOpPtr exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) override;
    StoreOpPtr longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                              PrefixDone done) override;
    StoreOpPtr get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) override;
    StoreOpPtr put(std::vector<PutRequest> requests, const PutOptions& options, Deadline deadline,
                   PutCalls calls) override;
    StoreOpPtr drop_namespace(const NamespaceId& ns, Deadline deadline,
                              std::function<void(Status status)> done) override;
    // degraded while it is not closed, with what opened it; else the store's own.
    StoreHealth health() const override;
    void close(Deadline deadline) override;

    enum class State { closed, probing, open };
    State state() const;
    // Waits until every answer that a user has got is judged.
    void settle();

  private:
    class Core;
    std::unique_ptr<BlockStore> store_;
    std::shared_ptr<Core> core_;  // shared with handles of calls, which may outlive the store
};

}  // namespace fathom
