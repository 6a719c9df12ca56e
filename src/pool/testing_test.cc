// What the conformance suite trusts: the oracle of contents, the store that fails, the thread.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "pool/mem_store.h"
#include "pool/store_thread.h"
#include "pool/testing/faulty_store.h"
#include "pool/testing/store_conformance.h"

namespace fathom {
namespace {

using namespace testing;

constexpr std::int64_t kPayloadBytes = 500;

TEST(ContentOracleTest, KnowsWhosePayloadItIs) {
    const BlockKey key = oracle_name(1, 1).key;
    std::vector<std::uint8_t> payload = oracle_payload(key, 7, kPayloadBytes);
    EXPECT_EQ(payload_writer(key, payload), std::uint64_t{7});
    EXPECT_EQ(payload_writer(oracle_name(1, 2).key, payload), std::nullopt);
    for (std::size_t i = 0; i < payload.size(); ++i) {
        payload[i] ^= 0x10;
        EXPECT_EQ(payload_writer(key, payload), std::nullopt) << "byte " << i;
        payload[i] ^= 0x10;
    }
}

TEST(ContentOracleTest, SaysWhatIsWrongWithARead) {
    const BlockName name = oracle_name(1, 1);
    const std::vector<std::uint8_t> first = oracle_payload(name.key, 1, kPayloadBytes);
    const std::vector<std::uint8_t> second = oracle_payload(name.key, 2, kPayloadBytes);
    ContentOracle oracle;
    EXPECT_EQ(oracle.check(name, GetStatus::miss, {}), "");
    EXPECT_NE(oracle.check(name, GetStatus::hit, first), "");  // nobody put it
    oracle.put(name, 1, PutOutcome::failed);
    EXPECT_NE(oracle.check(name, GetStatus::hit, first), "");
    oracle.put(name, 1, PutOutcome::timeout);
    EXPECT_EQ(oracle.check(name, GetStatus::hit, first), "");
    EXPECT_EQ(oracle.check(name, GetStatus::miss, {}), "");
    oracle.put(name, 1, PutOutcome::stored);
    oracle.put(name, 2, PutOutcome::exists);
    EXPECT_EQ(oracle.check(name, GetStatus::hit, first), "");
    EXPECT_NE(oracle.check(name, GetStatus::hit, second), "");
    EXPECT_NE(oracle.check(name, GetStatus::miss, {}), "");
    oracle.may_have_lost();
    EXPECT_EQ(oracle.check(name, GetStatus::miss, {}), "");
    oracle.expired(name);
    EXPECT_NE(oracle.check(name, GetStatus::hit, first), "");
}

class FaultyStoreTest : public ::testing::Test {
  protected:
    FaultyStoreTest() { clock_.advance_us(1'000'000'000); }
    void open(const FaultOptions& options) {
        if (store_ != nullptr) store_->close(soon());
        auto memory = std::move(
            *MemStore::create({.payload_bytes = kPayloadBytes, .capacity_bytes = 1 << 22}, clock_));
        store_ = std::make_unique<FaultyStore>(std::move(memory), FaultOptions{}, clock_);
        const WritePages pages(names_, 1, kPayloadBytes);
        start_put(*store_, pages.requests(), {}, soon()).wait_released();
        store_->set_options(options);
    }
    ~FaultyStoreTest() override { store_->close(soon()); }
    Deadline soon() const { return {clock_.now_us() + kWaitUs}; }

    const std::vector<BlockName> names_ = chain_names(1, 200);
    ManualClock clock_;
    std::unique_ptr<FaultyStore> store_;
};

TEST_F(FaultyStoreTest, FailsTheSameWayForTheSameSeed) {
    const auto run = [&](std::uint64_t seed) {
        open({.seed = seed, .get_error = 0.2, .get_miss = 0.2, .get_corrupt = 0.2});
        const ReadPages pages(names_, kPayloadBytes);
        const auto call = start_get(*store_, pages.requests(), soon());
        call.wait_released();
        return call.wait().blocks;
    };
    const std::vector<GetStatus> first = run(1);
    EXPECT_EQ(first, run(1));
    EXPECT_NE(first, run(2));
    for (const GetStatus status :
         {GetStatus::hit, GetStatus::miss, GetStatus::corrupt, GetStatus::io_error})
        EXPECT_GT(std::count(first.begin(), first.end(), status), 10) << get_status_name(status);
}

// Damage that a store does not see is found by the oracle, every time.
TEST_F(FaultyStoreTest, TheOracleFindsEveryLie) {
    open({.seed = 3, .get_lie = 0.5});
    const ReadPages pages(names_, kPayloadBytes);
    const auto call = start_get(*store_, pages.requests(), soon());
    call.wait_released();
    EXPECT_EQ(call.wait().leading_hits, names_.size());
    std::ptrdiff_t lies = 0;
    for (std::size_t i = 0; i < names_.size(); ++i)
        lies += payload_writer(names_[i].key, pages.pages[i].payload()) ? 0 : 1;
    EXPECT_GT(lies, 60);
    EXPECT_LT(lies, 140);
}

TEST_F(FaultyStoreTest, LosesWritesThatItCallsStored) {
    open({.seed = 4, .put_error = 0.3, .put_lost = 0.3});
    const std::vector<BlockName> names = chain_names(2, 200);
    const WritePages pages(names, 1, kPayloadBytes);
    const auto call = start_put(*store_, pages.requests(), {}, soon());
    call.wait_released();
    const auto& outcomes = call.wait().blocks;
    const auto stored = std::count(outcomes.begin(), outcomes.end(), PutOutcome::stored);
    EXPECT_EQ(stored + std::count(outcomes.begin(), outcomes.end(), PutOutcome::failed), 200);
    const auto present = start_exists(*store_, keys_of(names), soon()).wait().present;
    const auto there = std::count(present.begin(), present.end(), true);
    EXPECT_GT(there, 60);
    EXPECT_LT(there, stored);
}

// A read that was given up writes its page all the same, and only then gives it back.
TEST_F(FaultyStoreTest, LateReadsWriteBeforeTheyRelease) {
    for (const bool cancel : {false, true}) {
        open({.delayed = 1, .delay_us = 10'000});
        const ReadPages pages({names_[0]}, kPayloadBytes);
        const auto call = start_get(*store_, pages.requests(), {clock_.now_us() + 1'000});
        store_->settle();
        if (cancel) {
            call.cancel();
        } else {
            clock_.advance_us(1'000);
        }
        EXPECT_EQ(get_status_name(call.wait().blocks[0]), cancel ? "cancelled" : "timeout");
        EXPECT_FALSE(call.released());
        clock_.advance_us(10'000);
        call.wait_released();
        EXPECT_EQ(payload_writer(names_[0].key, pages.pages[0].payload()), std::uint64_t{1});
    }
}

// Whatever fails, what is called a hit is right.
TEST_F(FaultyStoreTest, AmongFaultsEveryHitIsRight) {
    open({.seed = 9,
          .get_error = 0.1,
          .get_miss = 0.1,
          .get_corrupt = 0.1,
          .put_error = 0.2,
          .delayed = 0.2,
          .delay_us = 10});
    RandomStream random(9);
    ContentOracle oracle;
    for (const BlockName& name : names_)
        oracle.put(name, 1, PutOutcome::stored);
    std::int64_t hits = 0;
    for (std::uint64_t step = 2; step < 300; ++step) {
        std::vector<BlockName> some;
        for (int i = 0; i < 8; ++i)
            some.push_back(random.next_below(2) == 0
                               ? names_[random.next_below(names_.size())]
                               : oracle_name(5, static_cast<std::uint32_t>(random.next_below(50))));
        const WritePages writes(some, step, kPayloadBytes);
        const ReadPages reads(some, kPayloadBytes);
        const auto put_call = start_put(*store_, writes.requests(), {}, soon());
        store_->settle();
        clock_.advance_us(20);
        put_call.wait_released();
        for (std::size_t i = 0; i < some.size(); ++i)
            oracle.put(some[i], step, put_call.wait().blocks[i]);
        oracle.may_have_lost();  // faults of reads are misses
        const auto get_call = start_get(*store_, reads.requests(), soon());
        store_->settle();
        clock_.advance_us(20);
        get_call.wait_released();
        for (std::size_t i = 0; i < some.size(); ++i) {
            const GetStatus status = get_call.wait().blocks[i];
            hits += status == GetStatus::hit;
            ASSERT_EQ(oracle.check(some[i], status, reads.pages[i].payload()), "")
                << "step " << step;
        }
    }
    EXPECT_GT(hits, 500);
}

TEST(StoreThreadTest, RunsTasksInOrderAndTimersWhenTheyAreDue) {
    ManualClock clock;
    StoreThread thread(clock);
    std::vector<int> ran;  // the thread's, until it is drained
    StoreThread::Timer dropped;
    thread.post([&] {
        EXPECT_TRUE(thread.on_thread());
        thread.at(200, [&] { ran.push_back(200); });
        thread.at(100, [&] {
            ran.push_back(100);
            thread.at(150, [&] { ran.push_back(150); });
        });
        dropped = thread.at(120, [&] { ran.push_back(120); });
    });
    thread.post([&] { ran.push_back(1); });
    thread.drain();
    EXPECT_EQ(ran, (std::vector<int>{1}));
    EXPECT_FALSE(thread.on_thread());
    thread.post([&] { thread.cancel(dropped); });
    thread.drain();
    clock.advance_us(199);
    thread.drain();  // what is due runs behind the task that came first
    thread.drain();
    EXPECT_EQ(ran, (std::vector<int>{1, 100, 150}));
    thread.stop();
    EXPECT_EQ(ran, (std::vector<int>{1, 100, 150}));
}

}  // namespace
}  // namespace fathom
