// A store that fails as told: errors, misses, damage and delays in front of another store, each a
// function of (seed, call, block), so that a failure is found again by its seed. For tests alone.
//
// Whatever it does, it keeps the promises about calls: they end at their deadline or soon after a
// cancel, while what they began goes on behind them: a read that was given up still writes its
// destination later, before it is released. `never` breaks the first promise: such calls end when
// the store is closed.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "pool/block_store.h"

namespace fathom::testing {

struct FaultOptions {
    std::uint64_t seed = 1;
    // Shares of blocks.
    double get_error = 0;  // io_error
    double get_miss = 0;   // a miss although it is there
    // One bit of the destination is turned over, and the block is called corrupt, as a store does
    // that checks; or a hit, as one does that does not: only an oracle can tell.
    double get_corrupt = 0, get_lie = 0;
    double put_error = 0;  // failed
    double put_lost = 0;   // called stored and is not
    // Shares of calls.
    double delayed = 0;         // begins only after delay_us
    std::int64_t delay_us = 0;  // on the clock
    double never = 0;           // is neither begun nor answered
};

class FaultyStore : public BlockStore {
  public:
    FaultyStore(std::unique_ptr<BlockStore> store, const FaultOptions& options, const Clock& clock);
    ~FaultyStore() override;

    // From the next call on. Any thread.
    void set_options(const FaultOptions& options);
    // Waits until every call made before has begun or is being delayed.
    void settle();

    std::int64_t payload_bytes() const override { return store_->payload_bytes(); }
    StoreOpPtr exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) override;
    StoreOpPtr longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                              PrefixDone done) override;
    StoreOpPtr get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) override;
    StoreOpPtr put(std::vector<PutRequest> requests, const PutOptions& options, Deadline deadline,
                   PutCalls calls) override;
    StoreOpPtr drop_namespace(const NamespaceId& ns, Deadline deadline,
                              std::function<void(Status status)> done) override;
    StoreHealth health() const override { return store_->health(); }
    void close(Deadline deadline) override;

  private:
    class Core;
    std::unique_ptr<BlockStore> store_;
    std::shared_ptr<Core> core_;  // shared with handles of calls, which may outlive the store
};

}  // namespace fathom::testing
