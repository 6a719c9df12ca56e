// Conformance of stores that several processes have open at once: what one does, others see.
#include <thread>

#include "pool/testing/store_conformance.h"

namespace fathom::testing {

void link_shared_tests() {}

// Only some programs have such stores.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SharedStoreConformance);

void SharedStoreConformance::SetUp() {
    StoreConformance::SetUp();
    swap_stores();
    open();
}

void SharedStoreConformance::TearDown() {
    swap_stores();
    if (store_ != nullptr) store_->close(soon());
    store_.reset();
    swap_stores();
    StoreConformance::TearDown();
}

TEST_P(SharedStoreConformance, WhatOneStoredTheOtherFinds) {
    const std::vector<BlockName> names = chain_names(1, 20);
    put(names, 1);
    rig_->let_others_see();
    swap_stores();
    expect_writer(names, 1);
    EXPECT_EQ(start_prefix(*store_, keys_of(names), soon()).wait().blocks, names.size());
    for (const PutOutcome outcome : put(names, 2))
        EXPECT_EQ(put_outcome_name(outcome), "exists");
    const std::vector<BlockName> more = chain_names(2, 20);
    put(more, 2);
    rig_->let_others_see();
    swap_stores();
    expect_writer(names, 1);
    expect_writer(more, 2);
}

// Both may have stored their bytes before either knew of the other: each read gives one of the two.
TEST_P(SharedStoreConformance, TwoThatStoreTheSameBlocksAreBothFine) {
    const std::vector<BlockName> names = chain_names(1, 50);
    const WritePages first(names, 1, payload_bytes_), second(names, 2, payload_bytes_);
    const auto first_call = start_put(*store_, first.requests(), {}, soon());
    swap_stores();
    const auto second_call = start_put(*store_, second.requests(), {}, soon());
    first_call.wait_released();
    second_call.wait_released();
    for (std::size_t i = 0; i < names.size(); ++i) {
        const PutOutcome outcomes[] = {first_call.wait().blocks[i], second_call.wait().blocks[i]};
        bool stored = false;
        for (const PutOutcome outcome : outcomes) {
            stored = stored || outcome == PutOutcome::stored;
            EXPECT_TRUE(outcome == PutOutcome::stored || outcome == PutOutcome::exists ||
                        outcome == PutOutcome::in_flight)
                << put_outcome_name(outcome);
        }
        EXPECT_TRUE(stored) << "block " << i;
    }
    rig_->let_others_see();
    for (int side = 0; side < 2; ++side) {
        const Read read = get(names);
        for (std::size_t i = 0; i < names.size(); ++i) {
            ASSERT_EQ(get_status_name(read.blocks[i]), "hit");
            const auto writer = payload_writer(names[i].key, read.payloads[i]);
            ASSERT_TRUE(writer.has_value());
            const PutResult& result = *writer == 1 ? first_call.wait() : second_call.wait();
            EXPECT_EQ(put_outcome_name(result.blocks[i]), "stored");
        }
        swap_stores();
    }
}

TEST_P(SharedStoreConformance, WhatOneDropsIsGoneForTheOther) {
    const std::vector<BlockName> mine = chain_names(1, 20, 1), theirs = chain_names(1, 20, 2);
    put(mine, 1);
    put(theirs, 1);
    rig_->let_others_see();
    swap_stores();
    expect_writer(mine, 1);
    ASSERT_TRUE(start_drop(*store_, oracle_namespace(1), soon()).wait().ok());
    expect_absent(mine);
    rig_->let_others_see();
    swap_stores();
    expect_absent(mine);
    expect_writer(theirs, 1);
}

TEST_P(SharedStoreConformance, OneMayEndAndComeBackWhileTheOtherGoesOn) {
    const std::vector<BlockName> names = chain_names(1, 20), more = chain_names(2, 20);
    put(names, 1);
    rig_->let_others_see();
    store_->close(soon());
    store_.reset();
    swap_stores();
    expect_writer(names, 1);
    put(more, 2);
    rig_->let_others_see();
    swap_stores();
    open();
    expect_writer(names, 1);
    expect_writer(more, 2);
}

// Each puts and reads the same blocks from threads of its own.
TEST_P(SharedStoreConformance, ReadersAmongBothSeeWholeBlocks) {
    constexpr std::uint32_t kBlocks = 30;
    const std::vector<BlockName> names = chain_names(1, kBlocks);
    BlockStore* const stores[] = {store_.get(), other_.get()};
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            BlockStore& store = *stores[thread % 2];
            for (int round = 0; round < 10; ++round) {
                const WritePages writes(names, thread + 1, payload_bytes_);
                start_put(store, writes.requests(), {}, soon()).wait_released();
                const ReadPages reads(names, payload_bytes_);
                const auto call = start_get(store, reads.requests(), soon());
                call.wait_released();
                for (std::size_t i = 0; i < names.size(); ++i) {
                    if (call.wait().blocks[i] != GetStatus::hit) continue;
                    EXPECT_TRUE(payload_writer(names[i].key, reads.pages[i].payload()))
                        << "bytes of nobody";
                }
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
}

}  // namespace fathom::testing
