#include "pool/breaker_store.h"

#include <gtest/gtest.h>

#include "pool/mem_store.h"
#include "pool/testing/faulty_store.h"
#include "pool/testing/store_conformance.h"

namespace fathom {
namespace {

using namespace testing;
using State = BreakerStore::State;

constexpr std::int64_t kPayloadBytes = 100;

class BreakerTest : public ::testing::Test {
  protected:
    BreakerTest() {
        clock_.advance_us(1'000'000'000);
        auto memory = std::move(
            *MemStore::create({.payload_bytes = kPayloadBytes, .capacity_bytes = 1 << 20}, clock_));
        auto faulty = std::make_unique<FaultyStore>(std::move(memory), FaultOptions{}, clock_);
        faulty_ = faulty.get();
        const BreakerOptions options{.calls_seen = 16,
                                     .calls_min = 8,
                                     .slow_us = 10'000,
                                     .open_us = 1'000'000,
                                     .open_us_max = 3'000'000,
                                     .grace_us = 5'000,
                                     .metrics = &metrics_};
        store_ = std::make_unique<BreakerStore>(std::move(faulty), options, clock_);
        put();
    }
    ~BreakerTest() override { store_->close(in_us(kWaitUs)); }

    Deadline in_us(std::int64_t us) const { return {clock_.now_us() + us}; }
    PutResult put() {
        const WritePages pages({oracle_name(1, 1)}, 1, kPayloadBytes);
        const auto call = start_put(*store_, pages.requests(), {}, in_us(kWaitUs));
        call.wait_released();
        store_->settle();
        return call.wait();
    }
    GetResult get() {
        const ReadPages pages({oracle_name(1, 1)}, kPayloadBytes);
        const auto call = start_get(*store_, pages.requests(), in_us(kWaitUs));
        call.wait_released();
        store_->settle();
        return call.wait();
    }
    // A read that is answered only after so long.
    void get_slowly(std::int64_t delay_us) {
        faulty_->set_options({.delayed = 1, .delay_us = delay_us});
        const ReadPages pages({oracle_name(1, 1)}, kPayloadBytes);
        const auto call = start_get(*store_, pages.requests(), in_us(kWaitUs));
        faulty_->settle();
        clock_.advance_us(delay_us);
        call.wait_released();
        store_->settle();
        faulty_->set_options({});
    }
    void open_by_errors() {
        faulty_->set_options({.get_error = 1});
        for (int i = 0; i < 16 && store_->state() == State::closed; ++i)
            get();
        ASSERT_EQ(store_->state(), State::open);
    }
    double state_shown() {
        return metrics_.gauge("kvpool_breaker_state", "Breaker in front of the pool").value();
    }
    std::uint64_t refused() {
        return metrics_.counter("kvpool_breaker_refused_total", "Calls answered with misses")
            .value();
    }

    ManualClock clock_;
    MetricsRegistry metrics_;
    FaultyStore* faulty_ = nullptr;
    std::unique_ptr<BreakerStore> store_;
};

TEST_F(BreakerTest, ASoundStoreIsAlwaysAsked) {
    for (int i = 0; i < 50; ++i)
        EXPECT_EQ(get().leading_hits, 1u);
    EXPECT_EQ(store_->state(), State::closed);
    EXPECT_EQ(store_->health().state, StoreHealth::State::ok);
}

TEST_F(BreakerTest, OpensToMissesWhenCallsFail) {
    open_by_errors();
    faulty_->set_options({});
    const std::uint64_t before = refused();
    const GetResult result = get();
    EXPECT_EQ(get_status_name(result.blocks[0]), "miss");
    EXPECT_EQ(result.status.code(), StatusCode::unavailable);
    EXPECT_EQ(put_outcome_name(put().blocks[0]), "busy");
    EXPECT_EQ(start_prefix(*store_, {oracle_name(1, 1).key}, in_us(kWaitUs)).wait().blocks, 0u);
    EXPECT_FALSE(start_exists(*store_, {oracle_name(1, 1).key}, in_us(kWaitUs)).wait().present[0]);
    EXPECT_EQ(refused(), before + 4);
    EXPECT_EQ(store_->health().state, StoreHealth::State::degraded);
    EXPECT_NE(store_->health().reason.find("failed"), std::string::npos);
    EXPECT_EQ(state_shown(), 2);
}

TEST_F(BreakerTest, AFewFailuresAmongManyCallsDoNotOpenIt) {
    for (int i = 0; i < 60; ++i) {
        faulty_->set_options({.get_error = i % 3 == 0 ? 1.0 : 0.0});
        get();
        ASSERT_EQ(store_->state(), State::closed) << i;
    }
}

TEST_F(BreakerTest, AProbeThatComesBackWellClosesIt) {
    open_by_errors();
    faulty_->set_options({});
    clock_.advance_us(999'999);
    EXPECT_EQ(get().leading_hits, 0u);
    clock_.advance_us(1);
    EXPECT_EQ(get().leading_hits, 1u);
    EXPECT_EQ(store_->state(), State::closed);
    EXPECT_EQ(state_shown(), 0);
    EXPECT_EQ(get().leading_hits, 1u);
}

TEST_F(BreakerTest, OneCallAtATimeProbes) {
    open_by_errors();
    clock_.advance_us(1'000'000);
    faulty_->set_options({.delayed = 1, .delay_us = 5'000});
    const ReadPages pages({oracle_name(1, 1)}, kPayloadBytes);
    const auto probe = start_get(*store_, pages.requests(), in_us(kWaitUs));
    faulty_->settle();
    EXPECT_EQ(store_->state(), State::probing);
    EXPECT_EQ(get().leading_hits, 0u);
    EXPECT_FALSE(probe.done());
    clock_.advance_us(5'000);
    probe.wait_released();
    store_->settle();
    EXPECT_EQ(store_->state(), State::closed);
}

TEST_F(BreakerTest, WaitsLongerAfterEachFailedProbeUpToALimit) {
    open_by_errors();
    for (const std::int64_t wait_us : {1'000'000, 2'000'000, 3'000'000, 3'000'000}) {
        SCOPED_TRACE(wait_us);
        clock_.advance_us(wait_us - 1);
        EXPECT_EQ(get_status_name(get().blocks[0]), "miss");
        clock_.advance_us(1);
        EXPECT_EQ(get_status_name(get().blocks[0]), "io_error");
        EXPECT_EQ(store_->state(), State::open);
    }
}

TEST_F(BreakerTest, OpensWhenCallsAreSlowAndClosesWhenTheyAreFastAgain) {
    for (int i = 0; i < 16 && store_->state() == State::closed; ++i)
        get_slowly(20'000);
    ASSERT_EQ(store_->state(), State::open);
    EXPECT_NE(store_->health().reason.find("slow"), std::string::npos);
    clock_.advance_us(1'000'000);
    get_slowly(20'000);  // a probe as slow as the others
    EXPECT_EQ(store_->state(), State::open);
    clock_.advance_us(2'000'000);
    EXPECT_EQ(get().leading_hits, 1u);
    EXPECT_EQ(store_->state(), State::closed);
}

TEST_F(BreakerTest, EndsCallsThatTheStoreNeverAnswers) {
    faulty_->set_options({.never = 1});
    const ReadPages pages({oracle_name(1, 1)}, kPayloadBytes);
    const auto late = start_get(*store_, pages.requests(), in_us(1'000));
    const ReadPages other_pages({oracle_name(1, 1)}, kPayloadBytes);
    const auto cancelled = start_get(*store_, other_pages.requests(), in_us(kWaitUs));
    faulty_->settle();
    cancelled.cancel();
    store_->settle();
    EXPECT_FALSE(late.done());
    EXPECT_FALSE(cancelled.done());
    clock_.advance_us(6'000);
    EXPECT_EQ(get_status_name(late.wait().blocks[0]), "timeout");
    EXPECT_EQ(get_status_name(cancelled.wait().blocks[0]), "cancelled");
    EXPECT_FALSE(late.released()) << "the store still has the page";
    EXPECT_FALSE(cancelled.released());
    store_->close(in_us(0));
    EXPECT_TRUE(late.released());
    EXPECT_TRUE(cancelled.released());
}

TEST_F(BreakerTest, AStoreThatNeverAnswersOpensIt) {
    faulty_->set_options({.never = 1});
    for (int i = 0; i < 16 && store_->state() == State::closed; ++i) {
        const auto call = start_exists(*store_, {oracle_name(1, 1).key}, in_us(1'000));
        faulty_->settle();
        store_->settle();
        clock_.advance_us(6'000);
        EXPECT_EQ(call.wait().status.code(), StatusCode::deadline_exceeded);
        store_->settle();
    }
    EXPECT_EQ(store_->state(), State::open);
}

TEST_F(BreakerTest, ADropPassesWhileItIsOpen) {
    open_by_errors();
    faulty_->set_options({});
    EXPECT_TRUE(start_drop(*store_, oracle_namespace(0), in_us(kWaitUs)).wait().ok());
    clock_.advance_us(1'000'000);
    EXPECT_EQ(get_status_name(get().blocks[0]), "miss");
    EXPECT_EQ(store_->state(), State::closed);
}

}  // namespace
}  // namespace fathom
