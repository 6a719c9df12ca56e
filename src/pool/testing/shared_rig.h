// Rigs over SharedStore: several openers of one directory on a disk in memory.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pool/shared_store.h"
#include "pool/testing/memory_file_layer.h"
#include "pool/testing/store_calls.h"
#include "pool/testing/store_rig.h"

namespace fathom::testing {

inline SharedOptions shared_options(MemoryDisk& disk, const Clock& clock, MetricsRegistry* metrics,
                                    const std::string& directory, std::int64_t payload_bytes) {
    SharedOptions options;
    options.make_embedded = [&clock, metrics, directory, payload_bytes] {
        EmbeddedOptions embedded;
        embedded.directory = directory;
        embedded.payload_bytes = payload_bytes;
        embedded.capacity_bytes = std::int64_t{4} << 30;
        embedded.io_depth = 16;
        embedded.clock = &clock;
        embedded.metrics = metrics;
        return Result<EmbeddedOptions>(std::move(embedded));
    };
    options.look_us = 2'000;
    options.make_files = [&disk](int depth) {
        return Result<std::unique_ptr<FileLayer>>(disk.layer(depth));
    };
    return options;
}

// Everything that the others have is in its index, and abandoned pools are looked after.
inline void refresh(SharedStore& store) {
    std::promise<void> done;
    store.refresh([&done] { done.set_value(); });
    done.get_future().wait();
}

class SharedRig : public StoreRig {
  public:
    SharedRig() {
        clock_.advance_us(1'750'000'000'123'456);
        traits.durable = true;
    }

    Result<std::unique_ptr<BlockStore>> open(std::int64_t payload_bytes) override {
        FATHOM_ASSIGN(
            std::unique_ptr<SharedStore> store,
            SharedStore::open(shared_options(disk_, clock_, &metrics_,
                                             "/" + std::to_string(payload_bytes), payload_bytes)));
        stores_.push_back(store.get());
        return std::unique_ptr<BlockStore>(std::make_unique<Opened>(std::move(store), *this));
    }
    const Clock& clock() const override { return clock_; }
    bool advance_us(std::int64_t delta_us) override {
        clock_.advance_us(delta_us);
        return true;
    }
    std::optional<std::uint64_t> collisions(BlockStore&) override {
        return metrics_
            .counter("kvpool_corrupt_total", "Slots that were not the block looked for.",
                     {{"backend", "embedded"}, {"where", "collision"}})
            .value();
    }
    void let_others_see() override {
        for (SharedStore* store : stores_)
            refresh(*store);
    }

  private:
    // Tells the rig when it has gone.
    class Opened : public BlockStore {
      public:
        Opened(std::unique_ptr<SharedStore> store, SharedRig& rig)
            : store_(std::move(store)), rig_(rig) {}
        ~Opened() override { std::erase(rig_.stores_, store_.get()); }
        std::int64_t payload_bytes() const override { return store_->payload_bytes(); }
        StoreOpPtr exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) override {
            return store_->exists(std::move(keys), deadline, std::move(done));
        }
        StoreOpPtr longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                                  PrefixDone done) override {
            return store_->longest_prefix(std::move(chain), deadline, std::move(done));
        }
        StoreOpPtr get(std::vector<GetRequest> requests, Deadline deadline,
                       GetCalls calls) override {
            return store_->get(std::move(requests), deadline, std::move(calls));
        }
        StoreOpPtr put(std::vector<PutRequest> requests, const PutOptions& options,
                       Deadline deadline, PutCalls calls) override {
            return store_->put(std::move(requests), options, deadline, std::move(calls));
        }
        StoreOpPtr drop_namespace(const NamespaceId& ns, Deadline deadline,
                                  std::function<void(Status status)> done) override {
            return store_->drop_namespace(ns, deadline, std::move(done));
        }
        StoreHealth health() const override { return store_->health(); }
        void close(Deadline deadline) override { store_->close(deadline); }

      private:
        std::unique_ptr<SharedStore> store_;
        SharedRig& rig_;
    };

  protected:
    MemoryDisk disk_{1};
    ManualClock clock_;
    MetricsRegistry metrics_;
    std::vector<SharedStore*> stores_;
};

// With another process beside it that has the first pool and a block in it, so that every call
// looks at both.
class BesideRig : public SharedRig {
  public:
    Result<std::unique_ptr<BlockStore>> open(std::int64_t payload_bytes) override {
        if (first_ == nullptr) {
            FATHOM_ASSIGN(first_, SharedStore::open(shared_options(
                                      disk_, clock_, nullptr, "/" + std::to_string(payload_bytes),
                                      payload_bytes)));
            (void)put_block(*first_, 1, {.traffic_class = TrafficClass::chatbot}, 200);
        }
        return SharedRig::open(payload_bytes);
    }

  private:
    std::unique_ptr<SharedStore> first_;
};

inline StoreKind shared_kind() {
    return {"shared", [] { return std::make_unique<SharedRig>(); }};
}
inline StoreKind beside_kind() {
    return {"beside", [] { return std::make_unique<BesideRig>(); }};
}

}  // namespace fathom::testing
