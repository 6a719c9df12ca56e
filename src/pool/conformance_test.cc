// The stores of this library through the conformance suite, and decorators in front of them.
#include "pool/breaker_store.h"
#include "pool/quota_store.h"
#include "pool/testing/ec_rig.h"
#include "pool/testing/embedded_rig.h"
#include "pool/testing/faulty_store.h"
#include "pool/testing/mem_rig.h"
#include "pool/testing/shared_rig.h"
#include "pool/testing/store_conformance.h"

namespace fathom::testing {
namespace {

using Decorate =
    std::function<std::unique_ptr<BlockStore>(std::unique_ptr<BlockStore>, const Clock&)>;

class DecoratedRig : public MemRig {
  public:
    explicit DecoratedRig(Decorate decorate) : decorate_(std::move(decorate)) {
        traits.large_batch = 1000;  // what is behind it has had more
    }
    Result<std::unique_ptr<BlockStore>> open(std::int64_t payload_bytes) override {
        FATHOM_ASSIGN(std::unique_ptr<MemStore> store, open_memory(payload_bytes));
        return decorate_(std::move(store), clock());
    }

  private:
    const Decorate decorate_;
};

StoreKind decorated(std::string name, Decorate decorate) {
    return {std::move(name), [decorate] { return std::make_unique<DecoratedRig>(decorate); }};
}

// A clock that also moves by itself, a little with every look, so that delays end.
class TickingClock : public Clock {
  public:
    explicit TickingClock(const Clock& clock) : clock_(clock) {}
    std::int64_t now_us() const override { return clock_.now_us() + 5 * looks_.fetch_add(1); }
    std::int64_t wall_unix_ms() const override { return clock_.wall_unix_ms(); }

  private:
    const Clock& clock_;
    mutable std::atomic<std::int64_t> looks_{0};
};

// A third of the calls begin late: cancels, deadlines and closing meet them before they do.
class LateRig : public MemRig {
  public:
    LateRig() { traits.large_batch = 1000; }
    Result<std::unique_ptr<BlockStore>> open(std::int64_t payload_bytes) override {
        FATHOM_ASSIGN(std::unique_ptr<MemStore> store, open_memory(payload_bytes));
        return std::unique_ptr<BlockStore>(std::make_unique<FaultyStore>(
            std::move(store), FaultOptions{.seed = 3, .delayed = 0.33, .delay_us = 40}, ticking_));
    }
    const Clock& clock() const override { return ticking_; }

  private:
    const TickingClock ticking_{clock_};
};

StoreKind breaker_kind() {
    return decorated("breaker", [](std::unique_ptr<BlockStore> store, const Clock& clock) {
        return std::make_unique<BreakerStore>(std::move(store), BreakerOptions{}, clock);
    });
}

StoreKind quota_kind() {
    return decorated("quota", [](std::unique_ptr<BlockStore> store, const Clock& clock) {
        const QuotaOptions options{.limits = {.bytes_max = std::int64_t{1} << 40}};
        return std::make_unique<QuotaStore>(std::move(store), options, clock);
    });
}

// As a server has them, in front of a store that is late.
StoreKind stack_kind() {
    return decorated("stack", [](std::unique_ptr<BlockStore> store, const Clock& clock) {
        auto late = std::make_unique<FaultyStore>(std::move(store), FaultOptions{}, clock);
        auto breaker = std::make_unique<BreakerStore>(std::move(late), BreakerOptions{}, clock);
        return std::make_unique<QuotaStore>(std::move(breaker), QuotaOptions{}, clock);
    });
}

// Several openers of one store in memory, as processes have one pool on a shared file system.
class Opener : public BlockStore {
  public:
    explicit Opener(BlockStore& store) : store_(store) {}
    std::int64_t payload_bytes() const override { return store_.payload_bytes(); }
    StoreOpPtr exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) override {
        return store_.exists(std::move(keys), deadline, std::move(done));
    }
    StoreOpPtr longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                              PrefixDone done) override {
        return store_.longest_prefix(std::move(chain), deadline, std::move(done));
    }
    StoreOpPtr get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) override {
        return store_.get(std::move(requests), deadline, std::move(calls));
    }
    StoreOpPtr put(std::vector<PutRequest> requests, const PutOptions& options, Deadline deadline,
                   PutCalls calls) override {
        return store_.put(std::move(requests), options, deadline, std::move(calls));
    }
    StoreOpPtr drop_namespace(const NamespaceId& ns, Deadline deadline,
                              std::function<void(Status status)> done) override {
        return store_.drop_namespace(ns, deadline, std::move(done));
    }
    StoreHealth health() const override { return store_.health(); }
    void close(Deadline) override {}

  private:
    BlockStore& store_;
};

class OpenersRig : public MemRig {
  public:
    Result<std::unique_ptr<BlockStore>> open(std::int64_t payload_bytes) override {
        if (store_ == nullptr) {
            FATHOM_ASSIGN(store_, open_memory(payload_bytes));
        }
        return std::unique_ptr<BlockStore>(std::make_unique<Opener>(*store_));
    }

  private:
    std::unique_ptr<MemStore> store_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Pool, SharedStoreConformance,
                         ::testing::Values(StoreKind{"mem",
                                                     [] { return std::make_unique<OpenersRig>(); }},
                                           shared_kind(), beside_kind()),
                         kind_name);

INSTANTIATE_TEST_SUITE_P(
    Pool, StoreConformance,
    ::testing::Values(mem_kind(), embedded_kind(), encrypted_kind(), shared_kind(), beside_kind(),
                      ec_kind({2, 1}), ec_kind({4, 2}), breaker_kind(), quota_kind(), stack_kind(),
                      StoreKind{"late", [] { return std::make_unique<LateRig>(); }}),
    kind_name);

}  // namespace fathom::testing
