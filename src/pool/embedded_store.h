// A store in a directory of one process (kvpool.md 5); several share one through shared_store.h.
//
//   DIR/POOL                            which pool this is
//   DIR/LOCK                            held while a process has it open
//   DIR/seg/<class>/<bucket>/<id>.seg   64 MiB of blocks of one class that expire together
//   DIR/lost/                           files found in the pool that are not of it
//
// One thread owns index, segments and I/O; calls come to it as messages, and their callbacks run on
// it. A put copies its block to a slot, seals it and writes it at once past the page cache; the
// block is found as soon as the write is done and survives a loss of power after the next group
// sync. A get reads the whole slot, straight into the destination where that has room, and checks
// it there. Nothing is ever overwritten: a segment fills, is sealed by a footer of its keys, is
// read until it expires or space is short, and its file is removed when no read is in it any more.
//
// Whatever the disk does, the answer is a checked block or a miss.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/metrics.h"
#include "pool/block_store.h"
#include "pool/class_life.h"
#include "pool/file_layer.h"
#include "pool/key_ring.h"
#include "pool/segment_watcher.h"

namespace fathom {

struct EmbeddedOptions {
    std::string directory;  // made when its parent is there
    std::int64_t payload_bytes = 0;
    std::int64_t capacity_bytes = 0;  // of files; at least eight segments
    int io_depth = 32;                // reads in flight, and writes
    std::array<ClassLife, kTrafficClasses> lives = kClassLives;
    bool sync_every_put = false;  // stored means durable; otherwise groups:
    std::int64_t sync_bytes = std::int64_t{32} << 20;
    std::int64_t sync_interval_us = 250'000;
    // Above the first share of the capacity the segments that expire first go, down to the second.
    double high_watermark = 0.90, low_watermark = 0.85;
    double gc_segments_per_s = 16;
    std::int64_t scrub_bytes_per_s = std::int64_t{8} << 20;   // 0: only when asked
    std::int64_t renew_bytes_per_s = std::int64_t{32} << 20;  // copies of renew_before
    std::int64_t queued_blocks_max = 65'536;  // beyond them puts are busy and gets refused
    int open_files_max = 512;
    // Keys of namespaces (kvpool.md 10); null: encrypted slots do not open. With `encrypt` every
    // put is encrypted, and slots that are not are neither found nor believed.
    std::unique_ptr<KeyRing> keys = {};
    bool encrypt = false;                   // needs keys
    const Clock* clock = nullptr;           // null: the real one
    MetricsRegistry* metrics = nullptr;     // null: not shown
    std::string backend = "embedded";       // label of its metrics
    SegmentWatcher* watcher = nullptr;      // may be null
    std::unique_ptr<FileLayer> files = {};  // null: the real ones
};

// Requests that a store with this io_depth has in flight at most: what its files must allow.
int embedded_ring_depth(int io_depth);

// Totals of a pool as it is now.
struct PoolUsage {
    struct PerClass {
        std::int64_t segments = 0, blocks = 0, allocated_bytes = 0;
    };
    std::array<PerClass, kTrafficClasses> classes{};
    std::int64_t blocks = 0, allocated_bytes = 0, index_bytes = 0, lost_files = 0;
    std::int64_t unsynced_bytes = 0;
    std::int64_t earliest_expiry_unix_ms = 0;  // 0: no segment
    // Blocks that were there when it was opened: by namespace_tag, then by expiry.
    std::map<std::uint64_t, std::map<std::int64_t, std::int64_t>> opened_with;
};
// What others take of the same capacity, when several pools share one (shared_store.h).
struct OthersUsage {
    std::int64_t allocated_bytes = 0;
    // Only what expires before this is given up for space, as long as there is room for a segment
    // at all: something of the others goes first.
    std::int64_t evict_before_unix_ms = std::numeric_limits<std::int64_t>::max();
};
struct ScrubReport {
    std::int64_t segments = 0, blocks = 0, bytes = 0, bad_blocks = 0;
};

class EmbeddedStore : public BlockStore {
  public:
    // Opens or makes the pool, and reads what is there. Errors name path, cause and remedy:
    // unavailable when another process has it; unsupported for a pool of another format;
    // invalid_argument for one of another size of block. Nothing is deleted then.
    static Result<std::unique_ptr<EmbeddedStore>> open(EmbeddedOptions options);
    // Closes, without waiting for calls, unless close() was called.
    ~EmbeddedStore() override;

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

    // Removes what is expired, and what is above the low watermark if the high one is passed,
    // without pacing; done when the files are gone.
    StoreOpPtr collect(Deadline deadline, std::function<void(Status status)> done);
    // Reads and checks every block of the sealed segments; bad ones are forgotten for good.
    StoreOpPtr scrub(Deadline deadline,
                     std::function<void(ScrubReport report, Status status)> done);
    StoreOpPtr usage(Deadline deadline, std::function<void(PoolUsage usage, Status status)> done);
    // From the next turn on; not after close().
    void set_others(const OthersUsage& others);

    // For who rebuilds what was lost. A sealed segment of this pool that was put where it belongs
    // becomes part of it.
    StoreOpPtr adopt(TrafficClass traffic_class, std::int64_t bucket_start_ms, std::uint64_t id,
                     Deadline deadline, std::function<void(Status status)> done);
    // The slot of a sealed segment is good again; it is found if its key leads nowhere else.
    StoreOpPtr restore(const BlockKey& key, std::uint64_t segment, std::uint32_t slot,
                       Deadline deadline, std::function<void(Status status)> done);

  private:
    struct Front;
    explicit EmbeddedStore(std::shared_ptr<Front> front);

    std::shared_ptr<Front> front_;  // shared with the handles of calls, which may outlive the store
    std::thread thread_;
};

}  // namespace fathom
