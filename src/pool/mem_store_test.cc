#include "pool/mem_store.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/queue.h"

#include "pool/testing/store_conformance.h"

namespace fathom {
namespace {

using namespace testing;

constexpr std::int64_t kPayloadBytes = 100;

class MemStoreTest : public ::testing::Test {
  protected:
    void open(std::int64_t blocks, std::int64_t calls_max = 4096) {
        store_ = std::move(*MemStore::create({.payload_bytes = kPayloadBytes,
                                              .capacity_bytes = blocks * kPayloadBytes,
                                              .calls_max = calls_max},
                                             clock_));
    }
    PutResult put(const std::vector<BlockName>& names, TrafficClass traffic_class) {
        const WritePages pages(names, 1, kPayloadBytes);
        const auto call =
            start_put(*store_, pages.requests(), {.traffic_class = traffic_class}, {1'000'000});
        call.wait_released();
        return call.wait();
    }
    std::ptrdiff_t present(const std::vector<BlockName>& names) {
        const std::vector<bool> there =
            start_exists(*store_, keys_of(names), {1'000'000}).wait().present;
        return std::count(there.begin(), there.end(), true);
    }

    ManualClock clock_;
    std::unique_ptr<MemStore> store_;
};

TEST_F(MemStoreTest, AboveItsHighWatermarkDropsWhatWouldExpireFirst) {
    open(100);
    put(chain_names(1, 30), TrafficClass::ephemeral);
    put(chain_names(2, 60), TrafficClass::agent);
    EXPECT_EQ(store_->counters().evicted.value(), 0u);
    put(chain_names(3, 1), TrafficClass::agent);
    EXPECT_EQ(present(chain_names(1, 30)), 24);  // 85 blocks are left
    EXPECT_EQ(store_->counters().evicted.value(), 6u);
    put(chain_names(4, 50), TrafficClass::agent);
    EXPECT_EQ(present(chain_names(1, 30)), 0);
    EXPECT_EQ(present(chain_names(4, 50)), 50);
}

TEST_F(MemStoreTest, RefusesSizesThatHoldNothing) {
    const auto status = [&](const MemStoreOptions& options) {
        return MemStore::create(options, clock_).status().code();
    };
    EXPECT_EQ(status({.payload_bytes = 0, .capacity_bytes = 100}), StatusCode::invalid_argument);
    EXPECT_EQ(status({.payload_bytes = 101, .capacity_bytes = 100}), StatusCode::invalid_argument);
    EXPECT_EQ(status({.payload_bytes = 1, .capacity_bytes = 100, .calls_max = 0}),
              StatusCode::invalid_argument);
}

// The thread is held by a callback meanwhile, so that calls gather.
TEST_F(MemStoreTest, RefusesCallsBeyondItsLimit) {
    open(100, 2);
    BoundedQueue<bool> held(1), go_on(1);
    store_->exists({}, {1'000'000}, [&](std::vector<bool>, Status) {
        held.try_push(true);
        go_on.pop(kWaitUs);
    });
    ASSERT_TRUE(held.pop(kWaitUs).has_value());
    const WritePages pages(chain_names(1, 2), 1, kPayloadBytes);
    const auto fits = start_put(*store_, pages.requests(), {}, {1'000'000});
    const auto refused = start_put(*store_, pages.requests(), {}, {1'000'000});
    go_on.try_push(true);
    EXPECT_EQ(put_outcome_name(fits.wait().blocks[1]), "stored");
    EXPECT_EQ(put_outcome_name(refused.wait().blocks[1]), "busy");
    EXPECT_EQ(refused.wait().status.code(), StatusCode::resource_exhausted);
    fits.wait_released();
    refused.wait_released();
    EXPECT_EQ(put_outcome_name(put(chain_names(2, 1), TrafficClass::agent).blocks[0]), "stored");
}

}  // namespace
}  // namespace fathom
