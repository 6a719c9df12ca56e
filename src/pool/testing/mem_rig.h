// A rig over MemStore on a clock moved by hand, and ways to put other stores in front of it.
#pragma once

#include <memory>

#include "pool/mem_store.h"
#include "pool/testing/store_rig.h"

namespace fathom::testing {

class MemRig : public StoreRig {
  public:
    // Wall time begins in 2025: stores round it to buckets.
    MemRig() { clock_.advance_us(1'750'000'000'123'456); }

    Result<std::unique_ptr<BlockStore>> open(std::int64_t payload_bytes) override {
        FATHOM_ASSIGN(std::unique_ptr<MemStore> store, open_memory(payload_bytes));
        return std::unique_ptr<BlockStore>(std::move(store));
    }
    const Clock& clock() const override { return clock_; }
    bool advance_us(std::int64_t delta_us) override {
        clock_.advance_us(delta_us);
        return true;
    }
    std::optional<std::uint64_t> collisions(BlockStore&) override {
        return memory_->counters().collisions.value();
    }

  protected:
    Result<std::unique_ptr<MemStore>> open_memory(std::int64_t payload_bytes) {
        FATHOM_ASSIGN(std::unique_ptr<MemStore> store,
                      MemStore::create(
                          {.payload_bytes = payload_bytes, .capacity_bytes = std::int64_t{1} << 30},
                          clock()));
        memory_ = store.get();
        return store;
    }

    ManualClock clock_;
    MemStore* memory_ = nullptr;  // of the open store, at the bottom of its decorators
};

inline StoreKind mem_kind() {
    return {"mem", [] { return std::make_unique<MemRig>(); }};
}

}  // namespace fathom::testing
