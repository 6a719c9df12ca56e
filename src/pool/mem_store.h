// A pool in the memory of this process: the smallest store that keeps every promise of
// block_store.h. For tests, for trying things out, and as what the other stores are compared with.
//
// One thread owns all blocks and takes the running calls in turns, a few blocks of each, so that a
// short call behind a long one still meets its deadline. Blocks expire by their class
// (class_life.h; on the clock's now_us(), as nothing outlives the process). Above 90 % of the
// capacity the blocks that would expire first go, down to 85 %.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/metrics.h"
#include "pool/block_store.h"

namespace fathom {

struct MemStoreOptions {
    std::int64_t payload_bytes = 0;
    std::int64_t capacity_bytes = 0;  // of payloads
    std::int64_t calls_max = 4096;    // running at a time; more are refused with resource_exhausted
};

struct MemStoreCounters {
    Counter collisions;  // reads whose name agreed in the key alone
    Counter corrupt;     // blocks whose bytes were no longer what was put
    Counter expired;
    Counter evicted;
};

class MemStore : public BlockStore {
  public:
    // invalid_argument when a size is not positive or no block fits. The clock must outlive the
    // store.
    static Result<std::unique_ptr<MemStore>> create(const MemStoreOptions& options,
                                                    const Clock& clock);
    ~MemStore() override;

    std::int64_t payload_bytes() const override;
    StoreOpPtr exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) override;
    StoreOpPtr longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                              PrefixDone done) override;
    StoreOpPtr get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) override;
    StoreOpPtr put(std::vector<PutRequest> requests, const PutOptions& options, Deadline deadline,
                   PutCalls calls) override;
    StoreOpPtr drop_namespace(const NamespaceId& ns, Deadline deadline,
                              std::function<void(Status status)> done) override;
    StoreHealth health() const override;
    void close(Deadline deadline) override;

    const MemStoreCounters& counters() const;

  private:
    class Owner;
    explicit MemStore(std::unique_ptr<Owner> owner);
    std::unique_ptr<Owner> owner_;
};

}  // namespace fathom
