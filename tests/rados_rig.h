// The cluster that all tests of a program share, and stores in it: each rig has a rados namespace
// of its own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "ceph_cluster.h"
#include "pool/rados_store.h"
#include "pool/testing/store_rig.h"

namespace fathom::testing {

inline std::unique_ptr<CephCluster>& shared_cluster() {
    static std::unique_ptr<CephCluster> cluster;
    return cluster;
}

// Started before the first test and gone after the last one.
class CephEnvironment : public ::testing::Environment {
  public:
    explicit CephEnvironment(CephCluster::Options options) : options_(options) {}
    void SetUp() override {
        if (!CephCluster::installed()) GTEST_SKIP() << "no Ceph on this machine";
        shared_cluster() = std::make_unique<CephCluster>();
        const std::string wrong = shared_cluster()->start(options_);
        ASSERT_EQ(wrong, "");
    }
    void TearDown() override { shared_cluster().reset(); }

  private:
    const CephCluster::Options options_;
};

inline RadosOptions rados_options(const std::string& rados_namespace, std::int64_t payload_bytes) {
    RadosOptions options;
    options.cluster = {.conf = shared_cluster()->conf(),
                       .user = "admin",
                       .keyring = {},
                       .pool = CephCluster::kPool,
                       .index_pool = CephCluster::kIndexPool,
                       .rados_namespace = rados_namespace};
    options.payload_bytes = payload_bytes;
    return options;
}

inline std::string new_rados_namespace() {
    static std::atomic<int> made{0};
    return "test" + std::to_string(made++);
}

// On a clock moved by hand.
class RadosRig : public StoreRig {
  public:
    RadosRig() {
        clock_.advance_us(1'750'000'000'123'456);
        traits.durable = true;
        traits.large_batch = 400;
    }
    Result<std::unique_ptr<BlockStore>> open(std::int64_t payload_bytes) override {
        RadosOptions options = rados_options(namespace_, payload_bytes);
        options.cluster.pool = CephCluster::kSmallPool;
        options.clock = &clock_;
        options.metrics = &metrics_;
        FATHOM_ASSIGN(std::unique_ptr<RadosStore> store, RadosStore::open(std::move(options)));
        return std::unique_ptr<BlockStore>(std::move(store));
    }
    const Clock& clock() const override { return clock_; }
    bool advance_us(std::int64_t delta_us) override {
        clock_.advance_us(delta_us);
        return true;
    }
    std::optional<std::uint64_t> collisions(BlockStore&) override {
        return metrics_
            .counter("kvpool_corrupt_total", "Slots that were not the block looked for.",
                     {{"backend", "rados"}, {"where", "collision"}})
            .value();
    }

  private:
    const std::string namespace_ = new_rados_namespace();
    ManualClock clock_;
    MetricsRegistry metrics_;
};

}  // namespace fathom::testing
