#include "pool/health_watch.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "pool/testing/wait.h"

namespace fathom {
namespace {

// Has the health that it is told; nothing else is asked of it.
class IllStore final : public BlockStore {
  public:
    std::int64_t payload_bytes() const override { return 10'000; }
    StoreOpPtr longest_prefix(std::vector<BlockKey>, Deadline, PrefixDone) override { return {}; }
    StoreOpPtr exists(std::vector<BlockKey>, Deadline, ExistsDone) override { return {}; }
    StoreOpPtr get(std::vector<GetRequest>, Deadline, GetCalls) override { return {}; }
    StoreOpPtr put(std::vector<PutRequest>, const PutOptions&, Deadline, PutCalls) override {
        return {};
    }
    StoreOpPtr drop_namespace(const NamespaceId&, Deadline, std::function<void(Status)>) override {
        return {};
    }
    StoreHealth health() const override { return told.get(); }
    void close(Deadline) override {}

    LatestValue<StoreHealth> told;
};

TEST(HealthWatch, ShowsWhatItSeesAndThatItIsWellAgain) {
    IllStore store;
    MetricsRegistry metrics;
    store.told.set({.state = StoreHealth::State::unavailable, .reason = "no monitor answers"});
    const HealthWatch watch(store, metrics, 1'000);
    EXPECT_EQ(watch.seen().reason, "no monitor answers");
    const auto shows = [&](StoreHealth::State state, const char* line) {
        store.told.set({.state = state, .reason = "a disk is gone"});
        const std::int64_t end_us = real_clock().now_us() + 60'000'000;
        while (real_clock().now_us() < end_us)
            if (watch.seen().state == state && metrics.expose().find(line) != std::string::npos)
                return true;
        return false;
    };
    EXPECT_TRUE(shows(StoreHealth::State::degraded, "\nkvpool_health 1\n"));
    EXPECT_TRUE(shows(StoreHealth::State::ok, "\nkvpool_health 0\n"));
}

}  // namespace
}  // namespace fathom
