// A pool over several devices that outlives the loss of some of them (kvpool.md 7): an embedded
// store on each device, and parity over their sealed segments.
//
//   key ──> device ──> EmbeddedStore      healthy reads and all writes touch one device
//   k sealed segments of one class and bucket, on k devices ──> m parity files on m others
//
// A block that its device cannot give, because the slot is damaged or the device gone, is rebuilt
// from the same row of k others, checked as any other and served. What is damaged is written anew
// where it was; a device that was replaced by an empty directory gets its segments back. With more
// than m losses in a stripe its lost blocks are misses, and the rest stays.
//
// What is protected: sealed segments. A stripe is made as soon as k segments are there; what is
// left when its bucket is over, or when the pool is closed, makes shorter stripes with the same m
// parity files. What is newer is as safe as its device.
//
// Which devices belong together, and which of them missed something, they say themselves
// (ec_files.h). A device that was away while the pool was written is not read again as it is: what
// was dropped meanwhile would be back. It must be emptied, and is rebuilt then.
//
// Callbacks run on a thread of the store. One more reads for rebuilding, one works in the
// background (ec_keeper.h).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pool/ec_code.h"
#include "pool/embedded_store.h"

namespace fathom {

struct EcOptions {
    std::vector<std::string> directories;  // of devices; at least k + m
    EcShape shape;
    std::int64_t payload_bytes = 0;
    std::int64_t capacity_bytes = 0;  // of files of each device, parity included
    // As of an embedded store; every device's has a ring of its own.
    std::function<Result<std::unique_ptr<KeyRing>>()> keys = {};
    bool encrypt = false;
    // What else holds of each device's store; directory, sizes, keys, clock, metrics and watcher
    // are the pool's.
    std::function<EmbeddedOptions()> device = {};
    // Reads and writes to make and mend stripes, together; 0: no limit.
    std::int64_t work_bytes_per_s = std::int64_t{128} << 20;
    const Clock* clock = nullptr;        // null: the real one
    MetricsRegistry* metrics = nullptr;  // null: not shown
    // Files of the workers; null: the real ones.
    std::function<Result<std::unique_ptr<FileLayer>>(int depth)> files = {};
};

struct EcUsage {
    std::int64_t devices = 0, devices_open = 0;
    std::int64_t stripes = 0, parity_bytes = 0;
    std::int64_t unprotected_segments = 0;  // sealed, and of no stripe
    std::int64_t lost_blocks = 0;           // found by rebuilding only
    std::int64_t repairs_left = 0;  // files and rows to be rebuilt on devices that are there
    std::int64_t repaired_blocks = 0;
};

class EcCore;

class EcStore : public BlockStore {
  public:
    // Opens or makes the set. Errors name path, cause and remedy: unavailable when another process
    // has it or no device is there; invalid_argument for directories that hold something else, or
    // another shape. Devices that are missing, unreadable, foreign or out of date do not keep it
    // from opening; health() names them.
    static Result<std::unique_ptr<EcStore>> open(EcOptions options);
    ~EcStore() override;

    std::int64_t payload_bytes() const override;
    StoreOpPtr exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) override;
    StoreOpPtr longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                              PrefixDone done) override;
    StoreOpPtr get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) override;
    StoreOpPtr put(std::vector<PutRequest> requests, const PutOptions& options, Deadline deadline,
                   PutCalls calls) override;
    // While a device is lost this costs its blocks of the stripes in which the namespace has
    // blocks.
    StoreOpPtr drop_namespace(const NamespaceId& ns, Deadline deadline,
                              std::function<void(Status status)> done) override;
    StoreHealth health() const override;
    // Seals what is open and protects it, until the deadline.
    void close(Deadline deadline) override;

    // Looks through all slots and all parity now; done when what was found is mended, as far as it
    // can be.
    StoreOpPtr scrub(Deadline deadline, std::function<void(Status status)> done);
    // Done when there is nothing to build, to mend or to remove.
    StoreOpPtr settle(Deadline deadline, std::function<void(Status status)> done);
    EcUsage usage() const;                // as of a moment ago
    std::int64_t degraded_reads() const;  // blocks served by rebuilding them
    std::size_t devices() const;
    // The store of one device, by place; null when it is not open. For tools.
    EmbeddedStore* device(std::size_t position);

  private:
    explicit EcStore(std::shared_ptr<EcCore> core);

    std::shared_ptr<EcCore> core_;  // shared with the handles of calls, which may outlive the store
};

}  // namespace fathom
