// The KV pool: where computed KV lives on after the sequence, the process and the machine that
// made it. A block is the stored KV of 128 tokens under a 32-byte name (kvpool.md 4); a store keeps
// blocks and gives them back, or says that it does not have them.
//
//   engine ── lookup ─> longest_prefix, get ──> BlockStore: mem | embedded | mount | rados
//          ── persist ─> exists, put ─────────>   behind decorators: breaker, quota, faulty
//
// What holds for every store (one conformance suite, store_conformance.h, says so):
//   * A block is written once. The first writer wins; bytes of a name never change.
//   * Any doubt is a miss, and a miss is not an error: the engine computes instead. Every hit was
//     checked end to end: its bytes, its whole name and its place.
//   * A block is visible when it is wholly there, or not at all. exists() implies readable.
//   * Every call ends: it has a deadline, and its `done` runs exactly once, at the deadline at the
//     latest. A call may be cancelled; then it ends soon.
//   * Pages given to a call belong to the store until its `released` runs, exactly once, at or
//     after `done`. What a read that came too late writes, it writes before that.
//
// Stores are thread safe. Callbacks run on a thread of the store, never inside the call that was
// given them; they must be quick and must not wait for the same store.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/block_key.h"
#include "base/result.h"
#include "base/traffic_class.h"

namespace fathom {

// On the clock's now_us(). A store does not begin what is past it.
struct Deadline {
    std::int64_t at_us = 0;
};

// A running call. Dropping it changes nothing; cancel() ends the call soon (any thread, any time).
class StoreOp {
  public:
    virtual ~StoreOp() = default;
    virtual void cancel() = 0;
};
using StoreOpPtr = std::shared_ptr<StoreOp>;

// Where a block's bytes go: payload_bytes of the store, and room for a whole slot when `whole_slot`
// (then the address is aligned to 4 KiB and the store may read straight into it; what follows the
// payload is undefined afterwards).
struct BlockDestination {
    std::uint8_t* page = nullptr;
    bool whole_slot = false;
};
struct GetRequest {
    BlockName name;
    BlockDestination destination;
};
enum class GetStatus : std::uint8_t { hit, miss, corrupt, timeout, io_error, cancelled };
std::string_view get_status_name(GetStatus status);
struct GetResult {
    std::vector<GetStatus> blocks;  // beside the requests
    // Of hits, when they expire by the wall clock (0: unknown); beside the requests, or empty.
    std::vector<std::int64_t> expiry_unix_ms = {};
    std::size_t leading_hits = 0;  // length of the leading run of hits
    Status status;                 // of the call; errors name path, cause and remedy
};

struct PutRequest {
    BlockName name;
    const std::uint8_t* page = nullptr;  // payload_bytes; unchanged until released
    // XXH3-128 of the payload as the producer had it (payload_digest), before any copy. Absent: the
    // store computes it when it first sees the bytes.
    std::array<std::uint8_t, 16> digest{};
    bool has_digest = false;
};
enum class PutOutcome : std::uint8_t {
    stored,
    exists,     // somebody's bytes are there
    renewed,    // were there and near their end; a new copy took over (PutOptions)
    in_flight,  // another writer is at it
    busy,       // the store's queue is full; try again later
    full,       // no space, GC has been told
    quota,      // of the share group
    timeout,
    cancelled,
    failed,  // nothing is visible
};
std::string_view put_outcome_name(PutOutcome outcome);
struct PutResult {
    std::vector<PutOutcome> blocks;  // beside the requests
    Status status;                   // the first cause of a failure, if there was one
};
struct PutOptions {
    TrafficClass traffic_class = TrafficClass::agent;
    // A block that is there but has less of its life left than this is written anew (kvpool.md 6);
    // 0: never.
    std::int64_t renew_before_ms = 0;
};

struct StoreHealth {
    enum class State { ok, degraded, unavailable } state = State::ok;
    std::string reason = {};  // with what to do about it
};

class BlockStore {
  public:
    virtual ~BlockStore() = default;

    // Bytes of every block of this store.
    virtual std::int64_t payload_bytes() const = 0;

    using ExistsDone = std::function<void(std::vector<bool> present, Status status)>;
    virtual StoreOpPtr exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) = 0;

    // How many leading blocks of a chain are likely there: a hint, found by binary search, that the
    // reads behind it confirm. At the deadline: what is known by then.
    using PrefixDone = std::function<void(std::size_t blocks, Status status)>;
    virtual StoreOpPtr longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                                      PrefixDone done) = 0;

    struct GetCalls {
        std::function<void(GetResult result)> done;
        std::function<void()> released;  // may be empty
    };
    virtual StoreOpPtr get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) = 0;

    struct PutCalls {
        std::function<void(PutResult result)> done;
        std::function<void()> released;  // may be empty
    };
    virtual StoreOpPtr put(std::vector<PutRequest> requests, const PutOptions& options,
                           Deadline deadline, PutCalls calls) = 0;

    // Nothing of the namespace is found any more once done(OK) has run, in this life or a later
    // one.
    virtual StoreOpPtr drop_namespace(const NamespaceId& ns, Deadline deadline,
                                      std::function<void(Status status)> done) = 0;

    virtual StoreHealth health() const = 0;  // any thread
    // Ends what runs (with `cancelled` after the deadline) and refuses what comes. Blocks until no
    // I/O targets any page. Called once, by the owner, before the destructor.
    virtual void close(Deadline deadline) = 0;
};

// XXH3-128 of a payload, in canonical (big-endian) byte order.
std::array<std::uint8_t, 16> payload_digest(const std::uint8_t* payload, std::int64_t bytes);

}  // namespace fathom
