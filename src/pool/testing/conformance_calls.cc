// Conformance: how calls begin and end.
#include <algorithm>
#include <thread>

#include "base/queue.h"
#include "pool/testing/store_conformance.h"

namespace fathom::testing {

void link_call_tests() {}

TEST_P(StoreConformance, BeginsNothingThatIsPastItsDeadline) {
    const std::vector<BlockName> there = chain_names(1, 4), fresh = chain_names(2, 4);
    put(there, 1);
    for (const std::int64_t at_us :
         {std::int64_t{0}, rig_->clock().now_us() - 1'000'000, rig_->clock().now_us()}) {
        SCOPED_TRACE(at_us);
        const Deadline past{at_us};
        const ReadPages reads(there, payload_bytes_);
        const Call<GetResult> get_call = start_get(*store_, reads.requests(), past);
        for (const GetStatus status : get_call.wait().blocks)
            EXPECT_EQ(get_status_name(status), "timeout");
        get_call.wait_released();
        const WritePages writes(fresh, 2, payload_bytes_);
        const Call<PutResult> put_call = start_put(*store_, writes.requests(), {}, past);
        for (const PutOutcome outcome : put_call.wait().blocks)
            EXPECT_EQ(put_outcome_name(outcome), "timeout");
        put_call.wait_released();
        const ExistsAnswer answer = start_exists(*store_, keys_of(there), past).wait();
        EXPECT_EQ(answer.status.code(), StatusCode::deadline_exceeded);
        EXPECT_EQ(start_prefix(*store_, keys_of(there), past).wait().blocks, 0u);
        EXPECT_EQ(start_drop(*store_, there[0].ns, past).wait().code(),
                  StatusCode::deadline_exceeded);
    }
    expect_writer(there, 1);
    expect_absent(fresh);
}

// Whatever a deadline cuts off, what was read is right, and what says so was stored.
TEST_P(StoreConformance, TinyDeadlinesLeaveOnlyRightAnswers) {
    const std::vector<BlockName> there = chain_names(1, 64);
    put(there, 1);
    for (std::int64_t us = 1; us <= 1'000'000; us *= 10) {
        SCOPED_TRACE(us);
        const ReadPages reads(there, payload_bytes_);
        const Call<GetResult> get_call = start_get(*store_, reads.requests(), in_us(us));
        const std::vector<BlockName> fresh = chain_names(static_cast<std::uint64_t>(us) + 1, 64);
        const WritePages writes(fresh, 2, payload_bytes_);
        const Call<PutResult> put_call = start_put(*store_, writes.requests(), {}, in_us(us));
        get_call.wait_released();
        put_call.wait_released();
        const GetResult result = get_call.wait();
        for (std::size_t i = 0; i < there.size(); ++i) {
            if (result.blocks[i] == GetStatus::hit) {
                EXPECT_EQ(payload_writer(there[i].key, reads.pages[i].payload()), std::uint64_t{1});
            } else {
                EXPECT_EQ(get_status_name(result.blocks[i]), "timeout");
            }
        }
        ContentOracle oracle;
        for (std::size_t i = 0; i < fresh.size(); ++i)
            oracle.put(fresh[i], 2, put_call.wait().blocks[i]);
        const Read read = get(fresh);
        for (std::size_t i = 0; i < fresh.size(); ++i)
            EXPECT_EQ(oracle.check(fresh[i], read.blocks[i], read.payloads[i]), "");
    }
}

// Cancels meet a call at every stage: before it is looked at, among its blocks, at its end. Its
// pages are used again at once when they are released.
TEST_P(StoreConformance, CancelledCallsEndOnceAndLeaveOnlyRightAnswers) {
    const std::vector<BlockName> there = chain_names(1, 48);
    put(there, 1);
    ContentOracle oracle;
    for (std::uint64_t spins = 0; spins < 60; ++spins) {
        SCOPED_TRACE(spins);
        ReadPages reads(there, payload_bytes_);
        const std::vector<BlockName> fresh = chain_names(100 + spins, 16);
        WritePages writes(fresh, 2, payload_bytes_);
        const Call<GetResult> get_call = start_get(*store_, reads.requests(), soon());
        const Call<PutResult> put_call = start_put(*store_, writes.requests(), {}, soon());
        const Call<ExistsAnswer> exists_call = start_exists(*store_, keys_of(there), soon());
        const Call<PrefixAnswer> prefix_call = start_prefix(*store_, keys_of(there), soon());
        for (std::uint64_t i = 0; i < spins; ++i)
            std::this_thread::yield();
        get_call.cancel();
        put_call.cancel();
        exists_call.cancel();
        prefix_call.cancel();
        get_call.cancel();
        const GetResult result = get_call.wait();
        get_call.wait_released();
        for (std::size_t i = 0; i < there.size(); ++i) {
            if (result.blocks[i] == GetStatus::hit) {
                EXPECT_EQ(payload_writer(there[i].key, reads.pages[i].payload()), std::uint64_t{1});
            } else {
                EXPECT_EQ(get_status_name(result.blocks[i]), "cancelled");
            }
        }
        put_call.wait_released();
        for (std::vector<std::uint8_t>& payload : writes.payloads)
            std::fill(payload.begin(), payload.end(), std::uint8_t{0});
        for (std::size_t i = 0; i < fresh.size(); ++i)
            oracle.put(fresh[i], 2, put_call.wait().blocks[i]);
        const Read read = get(fresh);
        for (std::size_t i = 0; i < fresh.size(); ++i)
            EXPECT_EQ(oracle.check(fresh[i], read.blocks[i], read.payloads[i]), "");
        exists_call.wait();
        prefix_call.wait();
    }
    expect_writer(there, 1);
}

TEST_P(StoreConformance, CancellingWhatHasEndedOrWasForgottenChangesNothing) {
    const std::vector<BlockName> names = chain_names(1, 4);
    const WritePages writes(names, 1, payload_bytes_);
    Call<PutResult> put_call = start_put(*store_, writes.requests(), {}, soon());
    put_call.forget_op();
    put_call.wait_released();
    const ReadPages reads(names, payload_bytes_);
    const Call<GetResult> get_call = start_get(*store_, reads.requests(), soon());
    get_call.wait_released();
    get_call.cancel();
    EXPECT_EQ(get_call.wait().leading_hits, 4u);
    expect_writer(names, 1);
}

TEST_P(StoreConformance, AnswersEmptyBatches) {
    start_get(*store_, {}, soon()).wait_released();
    start_put(*store_, {}, {}, soon()).wait_released();
    EXPECT_TRUE(start_exists(*store_, {}, soon()).wait().status.ok());
    EXPECT_EQ(start_prefix(*store_, {}, soon()).wait().blocks, 0u);
}

TEST_P(StoreConformance, AnswersLargeBatches) {
    const std::vector<BlockName> asked = chain_names(1, 10'000);
    const auto stored = static_cast<std::ptrdiff_t>(rig_->traits.large_batch);
    const std::vector<BlockName> names(asked.begin(), asked.begin() + stored);
    for (const PutOutcome outcome : put(names, 1))
        ASSERT_EQ(put_outcome_name(outcome), "stored");
    EXPECT_EQ(start_prefix(*store_, keys_of(asked), soon()).wait().blocks, names.size());
    const std::vector<bool> present = exists(asked);
    EXPECT_EQ(std::count(present.begin(), present.end(), true), stored);
    expect_writer(names, 1);
}

TEST_P(StoreConformance, APrefixEndsWhereARunOfBlocksEnds) {
    const std::vector<BlockName> names = chain_names(1, 70);
    const auto prefix = [&] { return start_prefix(*store_, keys_of(names), soon()).wait().blocks; };
    const auto range = [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
        return std::vector<BlockName>(names.begin() + begin, names.begin() + end);
    };
    for (const std::ptrdiff_t end : {1, 2, 33, 64, 69}) {
        put(range(0, end), 1);
        EXPECT_EQ(prefix(), static_cast<std::size_t>(end));
    }
    put(range(69, 70), 1);
    EXPECT_EQ(prefix(), 70u);
}

TEST_P(StoreConformance, WithAHoleAPrefixIsNoShorterThanWhatIsWhole) {
    const std::vector<BlockName> names = chain_names(1, 50);
    put(std::vector<BlockName>(names.begin(), names.begin() + 20), 1);
    put(std::vector<BlockName>(names.begin() + 21, names.begin() + 40), 1);
    const std::size_t blocks = start_prefix(*store_, keys_of(names), soon()).wait().blocks;
    EXPECT_TRUE(blocks == 20 || blocks == 40) << blocks;
    const ReadPages reads(names, payload_bytes_);
    const Call<GetResult> call = start_get(*store_, reads.requests(), soon());
    EXPECT_EQ(call.wait().leading_hits, 20u);
    call.wait_released();
}

TEST_P(StoreConformance, CallbacksMayCallTheStore) {
    const std::vector<BlockName> names = chain_names(1, 4);
    put(names, 1);
    const ReadPages reads(names, payload_bytes_);
    BoundedQueue<std::size_t> hits(1);
    BoundedQueue<bool> released(1);
    store_->exists(keys_of(names), soon(), [&](std::vector<bool>, Status) {
        store_->get(
            reads.requests(), soon(),
            {.done = [&](GetResult result) { hits.try_push(std::move(result.leading_hits)); },
             .released = [&] { released.try_push(true); }});
    });
    EXPECT_EQ(hits.pop(kWaitUs), std::size_t{4});
    ASSERT_TRUE(released.pop(kWaitUs).has_value());
}

TEST_P(StoreConformance, ClosingABusyStoreEndsEveryCall) {
    const std::vector<BlockName> there = chain_names(1, 64);
    put(there, 1);
    for (const std::int64_t close_us : {std::int64_t{0}, std::int64_t{100}, kWaitUs}) {
        SCOPED_TRACE(close_us);
        std::vector<std::unique_ptr<ReadPages>> reads;
        std::vector<std::unique_ptr<WritePages>> writes;
        std::vector<Call<GetResult>> gets;
        std::vector<Call<PutResult>> puts;
        for (std::uint64_t i = 0; i < 8; ++i) {
            reads.push_back(std::make_unique<ReadPages>(there, payload_bytes_));
            gets.push_back(start_get(*store_, reads.back()->requests(), soon()));
            writes.push_back(
                std::make_unique<WritePages>(chain_names(100 + i, 64), 2, payload_bytes_));
            puts.push_back(start_put(*store_, writes.back()->requests(), {}, soon()));
        }
        store_->close(in_us(close_us));
        for (std::size_t i = 0; i < gets.size(); ++i) {
            EXPECT_TRUE(gets[i].released() && puts[i].released())
                << "close came back before all pages were released";
            gets[i].wait_released();
            puts[i].wait_released();
            const GetResult result = gets[i].wait();
            for (std::size_t block = 0; block < there.size(); ++block) {
                if (result.blocks[block] != GetStatus::hit) continue;
                EXPECT_EQ(payload_writer(there[block].key, reads[i]->pages[block].payload()),
                          std::uint64_t{1});
            }
        }
        store_.reset();
        open();
        if (rig_->traits.durable) {
            expect_writer(there, 1);
        } else {
            put(there, 1);
        }
    }
}

TEST_P(StoreConformance, AClosedStoreRefusesAndAnswers) {
    const std::vector<BlockName> names = chain_names(1, 2);
    put(names, 1);
    store_->close(soon());
    const ReadPages reads(names, payload_bytes_);
    const Call<GetResult> get_call = start_get(*store_, reads.requests(), soon());
    get_call.wait_released();
    EXPECT_EQ(get_call.wait().leading_hits, 0u);
    EXPECT_EQ(get_call.wait().status.code(), StatusCode::unavailable);
    const WritePages writes(chain_names(2, 2), 1, payload_bytes_);
    const Call<PutResult> put_call = start_put(*store_, writes.requests(), {}, soon());
    put_call.wait_released();
    for (const PutOutcome outcome : put_call.wait().blocks)
        EXPECT_EQ(put_outcome_name(outcome), "failed");
    EXPECT_EQ(start_exists(*store_, keys_of(names), soon()).wait().status.code(),
              StatusCode::unavailable);
    EXPECT_EQ(start_prefix(*store_, keys_of(names), soon()).wait().blocks, 0u);
    EXPECT_FALSE(start_drop(*store_, names[0].ns, soon()).wait().ok());
    store_.reset();
}

}  // namespace fathom::testing
