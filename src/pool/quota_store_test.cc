#include "pool/quota_store.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pool/class_life.h"
#include "pool/mem_store.h"
#include "pool/quota_ledger.h"
#include "pool/segment.h"
#include "pool/testing/faulty_store.h"
#include "pool/testing/store_conformance.h"

namespace fathom {
namespace {

using namespace testing;

constexpr std::int64_t kPayloadBytes = 100;

class QuotaTest : public ::testing::Test {
  protected:
    QuotaTest() { clock_.advance_us(1'000'000'000); }
    ~QuotaTest() override { store_->close(soon()); }

    void open(const QuotaLimits& limits, std::int64_t capacity_blocks = 10'000) {
        auto memory = std::move(*MemStore::create(
            {.payload_bytes = kPayloadBytes, .capacity_bytes = capacity_blocks * kPayloadBytes},
            clock_));
        auto faulty = std::make_unique<FaultyStore>(std::move(memory), FaultOptions{}, clock_);
        faulty_ = faulty.get();
        store_ = std::make_unique<QuotaStore>(
            std::move(faulty), QuotaOptions{.limits = limits, .metrics = &metrics_}, clock_);
    }
    Deadline soon() const { return {clock_.now_us() + kWaitUs}; }
    PutResult put(const std::vector<BlockName>& names,
                  TrafficClass traffic_class = TrafficClass::agent) {
        const WritePages pages(names, 1, kPayloadBytes);
        const auto call =
            start_put(*store_, pages.requests(), {.traffic_class = traffic_class}, soon());
        call.wait_released();
        return call.wait();
    }
    static std::ptrdiff_t count(const PutResult& result, PutOutcome outcome) {
        return std::count(result.blocks.begin(), result.blocks.end(), outcome);
    }
    std::ptrdiff_t present(const std::vector<BlockName>& names) {
        const auto there = start_exists(*store_, keys_of(names), soon()).wait().present;
        return std::count(there.begin(), there.end(), true);
    }

    ManualClock clock_;
    MetricsRegistry metrics_;
    FaultyStore* faulty_ = nullptr;
    std::unique_ptr<QuotaStore> store_;
};

TEST_F(QuotaTest, ANamespaceHoldsNoMoreThanItsBytes) {
    open({.bytes_max = 10 * kPayloadBytes});
    const PutResult result = put(chain_names(1, 15));
    EXPECT_EQ(count(result, PutOutcome::stored), 10);
    EXPECT_EQ(count(result, PutOutcome::quota), 5);
    EXPECT_EQ(put_outcome_name(result.blocks[9]), "stored");
    EXPECT_EQ(put_outcome_name(result.blocks[10]), "quota");
    EXPECT_EQ(present(chain_names(1, 15)), 10);
    EXPECT_EQ(count(put(chain_names(1, 10, 1)), PutOutcome::stored), 10);  // another tenant's
    EXPECT_EQ(metrics_.counter("kvpool_quota_refused_blocks_total", "Refused").value(), 5u);
}

TEST_F(QuotaTest, WhatExpiresOrIsDroppedMakesRoom) {
    open({.bytes_max = 10 * kPayloadBytes});
    put(chain_names(1, 10), TrafficClass::ephemeral);
    EXPECT_EQ(count(put(chain_names(2, 3)), PutOutcome::quota), 3);
    clock_.advance_us((kHourMs + 5 * kMinuteMs) * 1000);
    EXPECT_EQ(count(put(chain_names(2, 12)), PutOutcome::stored), 10);
    ASSERT_TRUE(start_drop(*store_, oracle_namespace(0), soon()).wait().ok());
    EXPECT_EQ(count(put(chain_names(3, 12)), PutOutcome::stored), 10);
}

TEST_F(QuotaTest, WhatWasNotStoredTakesNoRoom) {
    open({.bytes_max = 10 * kPayloadBytes});
    faulty_->set_options({.put_error = 1});
    EXPECT_EQ(count(put(chain_names(1, 10)), PutOutcome::failed), 10);
    faulty_->set_options({});
    EXPECT_EQ(count(put(chain_names(1, 5)), PutOutcome::stored), 5);
    EXPECT_EQ(count(put(chain_names(1, 5)), PutOutcome::exists), 5);
    EXPECT_EQ(count(put(chain_names(2, 5)), PutOutcome::stored), 5);
}

TEST_F(QuotaTest, PutsBeyondARateWaitForTimeToPass) {
    open({.put_bytes_per_s = 100 * kPayloadBytes, .put_burst_bytes = 20 * kPayloadBytes});
    EXPECT_EQ(count(put(chain_names(1, 30)), PutOutcome::stored), 20);
    EXPECT_EQ(count(put(chain_names(2, 5)), PutOutcome::quota), 5);
    clock_.advance_us(100'000);  // ten blocks
    EXPECT_EQ(count(put(chain_names(2, 30)), PutOutcome::stored), 10);
    clock_.advance_us(60'000'000);
    EXPECT_EQ(count(put(chain_names(3, 30)), PutOutcome::stored), 20);  // no more than the burst
}

TEST_F(QuotaTest, MeasuredUsageReplacesWhatWasCounted) {
    open({.bytes_max = 10 * kPayloadBytes});
    put(chain_names(1, 10));
    const std::int64_t later_ms = clock_.wall_unix_ms() + kHourMs;
    const std::uint64_t tag = namespace_tag(oracle_namespace(0));
    store_->set_usage(tag, {{later_ms, kPayloadBytes}, {later_ms + 1, 3 * kPayloadBytes}});
    EXPECT_EQ(count(put(chain_names(2, 10)), PutOutcome::stored), 6);
    store_->set_usage(tag, {{later_ms, 10 * kPayloadBytes}});
    EXPECT_EQ(count(put(chain_names(3, 10)), PutOutcome::quota), 10);
}

// One tenant works on 10 blocks, two of them new in each turn; the other, if it floods, puts four
// times what fits. What the first finds of what it had.
class FloodTest : public QuotaTest {
  protected:
    double hit_rate(const QuotaLimits& limits, bool flood) {
        if (store_ != nullptr) store_->close(soon());
        open(limits, 120);
        const std::vector<BlockName> mine = chain_names(1, 42, 1);
        std::ptrdiff_t found = 0, looked_up = 0;
        for (std::size_t turn = 0; turn < 16; ++turn) {
            const auto at = [&](std::size_t n) {
                return mine.begin() + static_cast<std::ptrdiff_t>(n);
            };
            const std::size_t end = 10 + 2 * turn;
            const std::vector<BlockName> had(at(2 * turn), at(end));
            if (turn > 0) {
                found += present(had);
                looked_up += static_cast<std::ptrdiff_t>(had.size());
            }
            put({at(2 * turn), at(end + 2)});
            if (flood) put(chain_names(100 + turn, 500, 2));
            clock_.advance_us(3'600'000'000);
        }
        return static_cast<double>(found) / static_cast<double>(looked_up);
    }
};

TEST_F(FloodTest, MovesTheHitRateOfOthersByLessThanAPoint) {
    const QuotaLimits limits{.bytes_max = 45 * kPayloadBytes};
    const double alone = hit_rate(limits, false);
    EXPECT_GT(alone, 0.9);
    EXPECT_NEAR(hit_rate(limits, true), alone, 0.01);
    EXPECT_LT(hit_rate({}, true), alone - 0.2);  // what the quota is for
}

TEST_F(QuotaTest, CancellingReachesAPutThatIsWithTheStore) {
    open({.bytes_max = 10 * kPayloadBytes});
    faulty_->set_options({.delayed = 1, .delay_us = 1000});
    const WritePages pages(chain_names(1, 10), 1, kPayloadBytes);
    const auto call = start_put(*store_, pages.requests(), {}, soon());
    store_->settle();
    faulty_->settle();
    call.cancel();
    EXPECT_EQ(count(call.wait(), PutOutcome::cancelled), 10);
    clock_.advance_us(1000);
    call.wait_released();
    faulty_->set_options({});
    EXPECT_EQ(count(put(chain_names(2, 10)), PutOutcome::stored), 10);
}

TEST(QuotaLedgerTest, ForgetsTenantsThatHoldNothing) {
    QuotaLedger ledger({.bytes_max = 1 << 20}, kPayloadBytes);
    for (std::uint64_t i = 0; i < 10'000; ++i) {
        const NamespaceId ns = oracle_namespace(i);
        ASSERT_TRUE(ledger.reserve(ns, 0, static_cast<std::int64_t>(i)));
        ledger.stored(ns, static_cast<std::int64_t>(i) + 10);
    }
    EXPECT_LE(ledger.namespaces(), 2048u);
    EXPECT_EQ(ledger.bytes(oracle_namespace(9'999), 9'999), kPayloadBytes);
    EXPECT_EQ(ledger.bytes(oracle_namespace(9'999), 20'000), 0);
}

}  // namespace
}  // namespace fathom
