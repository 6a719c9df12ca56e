// A pool in a Ceph RADOS cluster, for any number of processes at a time (kvpool.md 8): one object a
// block, in a pool that may be erasure-coded, and no service of our own beside the cluster.
//
//   put     the block's name goes to a list (rados_names.h), then one operation makes the object,
//           its bytes and its attributes, unless it is there: written once, whole or not at all
//   get     one operation reads bytes and attributes; the slot is checked as on any disk (slot.h)
//   exists  reads when the block ends, not its bytes; a prefix is searched with seven of these at a
//           time, for a third of the round trips of a binary search
//   expiry  every process sweeps the lists that are due and removes their blocks, with the end as
//           a guard in the same operation: one that was renewed meanwhile stays. When the cluster
//           is full the list that ends first goes before its time
//
// One thread owns everything; librados's threads only send it messages. No operation of the cluster
// outlasts `timeout_s`, and no call its deadline, whatever the cluster does: pages of a call are
// never given to librados.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/metrics.h"
#include "pool/block_store.h"
#include "pool/class_life.h"
#include "pool/key_ring.h"
#include "pool/rados_cluster.h"

namespace fathom {

struct RadosOptions {
    RadosClusterOptions cluster;
    std::int64_t payload_bytes = 0;
    // Keys of namespaces (kvpool.md 10); null: encrypted slots do not open. With `encrypt` every
    // put is encrypted, and slots that are not are not believed.
    std::unique_ptr<KeyRing> keys = {};
    bool encrypt = false;  // needs keys
    int io_depth = 32;     // reads in flight, and writes
    int stat_depth = 128;
    std::array<ClassLife, kTrafficClasses> lives = kClassLives;
    std::int64_t queued_blocks_max = 65'536;  // beyond them puts are busy and gets refused
    std::int64_t list_bytes = std::int64_t{4} << 20;
    std::int64_t sweep_interval_us = 60'000'000;
    double sweep_blocks_per_s = 500;     // of one process
    std::int64_t beat_us = 5'000'000;    // how often a cluster that nobody asks is looked at
    const Clock* clock = nullptr;        // null: the real one
    MetricsRegistry* metrics = nullptr;  // null: not shown
};

class RadosStore : public BlockStore {
  public:
    // Connects, and makes the pool's POOL object when it is absent. Errors name pool or file, cause
    // and remedy: unavailable when the cluster does not answer; unsupported in a build without
    // librados and for a pool of another format; invalid_argument for one of another size of block.
    static Result<std::unique_ptr<RadosStore>> open(RadosOptions options);
    // Closes, without waiting for calls, unless close() was called.
    ~RadosStore() override;

    std::int64_t payload_bytes() const override;
    StoreOpPtr exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) override;
    StoreOpPtr longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                              PrefixDone done) override;
    StoreOpPtr get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) override;
    StoreOpPtr put(std::vector<PutRequest> requests, const PutOptions& options, Deadline deadline,
                   PutCalls calls) override;
    // Of what another process is putting meanwhile, some may stay until it ends.
    StoreOpPtr drop_namespace(const NamespaceId& ns, Deadline deadline,
                              std::function<void(Status status)> done) override;
    // degraded, "degraded-stop: …", when placement groups have lost so many devices that the
    // cluster stops their I/O (min_size); unavailable when no monitor answers either.
    StoreHealth health() const override;
    void close(Deadline deadline) override;

    // Removes what is expired, without pacing.
    StoreOpPtr collect(Deadline deadline, std::function<void(Status status)> done);

  private:
    struct Front;
    explicit RadosStore(std::shared_ptr<Front> front);
    std::shared_ptr<Front> front_;  // shared with the handles of calls, which may outlive the store
};

}  // namespace fathom
