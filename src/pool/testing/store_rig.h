// What the conformance suite needs of a store to be tested, and calls that wait for their answer
// and watch that the promises about callbacks are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "pool/block_store.h"

namespace fathom::testing {

// One test's store and its surroundings: a folder, a cluster, a clock. A test opens the store as
// often as it likes; each life ends with close(), and only the suite of shared stores has two at a
// time.
class StoreRig {
  public:
    virtual ~StoreRig() = default;
    virtual Result<std::unique_ptr<BlockStore>> open(std::int64_t payload_bytes) = 0;
    virtual const Clock& clock() const = 0;
    // Moves the clock; tests that need it are skipped where it returns false (no manual clock).
    virtual bool advance_us(std::int64_t delta_us) = 0;
    // What the open store has counted as collisions; tests of the count are skipped where nothing.
    virtual std::optional<std::uint64_t> collisions(BlockStore&) { return std::nullopt; }
    // Of shared stores: until what one has stored or dropped is seen by the others.
    virtual void let_others_see() {}

    struct Traits {
        bool durable = false;                  // closed in order, a store has its blocks again
        std::uint32_t large_batch = 10'000;    // blocks of a large batch of puts and gets
        std::int64_t expiry_slack_ms = 1'000;  // how long after TTL and bucket a block may linger
    } traits;
};

// A kind of store: its name in the tests' names and how to make a rig for one test.
struct StoreKind {
    std::string name;
    std::function<std::unique_ptr<StoreRig>()> make;
};

// Memory for one block's destination, aligned and large enough for a whole slot, with guards behind
// it. intact(): nothing was written behind what the destination allows.
class Page {
  public:
    Page(std::int64_t payload_bytes, bool whole_slot);
    BlockDestination destination() const { return {.page = page_, .whole_slot = whole_slot_}; }
    std::span<std::uint8_t> payload() const { return {page_, payload_bytes_}; }
    bool intact() const;

  private:
    struct Free {
        void operator()(std::uint8_t* memory) const;
    };
    std::size_t payload_bytes_, usable_bytes_ = 0;
    bool whole_slot_;
    std::unique_ptr<std::uint8_t, Free> memory_;
    std::uint8_t* page_ = nullptr;
};

// The answer of one call, filled by its callbacks and checked for: done once, released once and not
// before done, neither inside the call. Waits are real time and bounded by kWaitUs, after which the
// call counts as one that never ends.
inline constexpr std::int64_t kWaitUs = 60'000'000;

struct ExistsAnswer {
    std::vector<bool> present;
    Status status;
};
struct PrefixAnswer {
    std::size_t blocks = 0;
    Status status;
};

// A call in progress. wait() gives its answer once it is done, wait_released() waits until its
// pages are the caller's again. Failures are reported as gtest failures.
template <typename Answer>
class Call {
  public:
    const Answer& wait() const;
    void wait_released() const;
    bool done() const;
    bool released() const;
    void cancel() const { op_->cancel(); }
    void forget_op() { op_.reset(); }

    struct State;
    Call(std::shared_ptr<State> state, StoreOpPtr op)
        : state_(std::move(state)), op_(std::move(op)) {}

  private:
    std::shared_ptr<State> state_;
    StoreOpPtr op_;
};

extern template class Call<GetResult>;
extern template class Call<PutResult>;
extern template class Call<ExistsAnswer>;
extern template class Call<PrefixAnswer>;
extern template class Call<Status>;

Call<GetResult> start_get(BlockStore& store, std::vector<GetRequest> requests, Deadline deadline);
Call<PutResult> start_put(BlockStore& store, std::vector<PutRequest> requests,
                          const PutOptions& options, Deadline deadline);
Call<ExistsAnswer> start_exists(BlockStore& store, std::vector<BlockKey> keys, Deadline deadline);
Call<PrefixAnswer> start_prefix(BlockStore& store, std::vector<BlockKey> chain, Deadline deadline);
Call<Status> start_drop(BlockStore& store, const NamespaceId& ns, Deadline deadline);

}  // namespace fathom::testing
