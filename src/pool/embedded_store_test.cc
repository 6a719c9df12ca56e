#include "pool/embedded_store.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "pool/testing/embedded_rig.h"
#include "pool/testing/store_calls.h"

namespace fathom {
namespace {

using namespace fathom::testing;

constexpr std::int64_t kPayload = 10'000;

EmbeddedOptions options_for(const TemporaryFolder& directory) {
    EmbeddedOptions options;
    options.directory = directory.path() + "/pool";
    options.payload_bytes = kPayload;
    options.capacity_bytes = std::int64_t{4} << 30;
    options.io_depth = 8;
    return options;
}

std::unique_ptr<EmbeddedStore> open_store(EmbeddedOptions options) {
    auto store = EmbeddedStore::open(std::move(options));
    if (!store.ok()) {
        ADD_FAILURE() << store.status().to_string();
        return nullptr;
    }
    return std::move(*store);
}

std::vector<std::uint64_t> numbers_to(std::uint64_t n) {
    std::vector<std::uint64_t> numbers(n);
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
}

PoolUsage usage_of(EmbeddedStore& store) {
    std::promise<PoolUsage> done;
    (void)store.usage(kNever,
                      [&](const PoolUsage& usage, const Status&) { done.set_value(usage); });
    return done.get_future().get();
}

TEST(EmbeddedStore, GivesBackWhatWasPut) {
    const TemporaryFolder directory;
    const auto store = open_store(options_for(directory));
    const std::vector<std::uint64_t> numbers = numbers_to(100);
    const PutResult put = put_blocks(*store, numbers);
    EXPECT_TRUE(put.status.ok()) << put.status.message();
    for (const PutOutcome outcome : put.blocks)
        EXPECT_EQ(outcome, PutOutcome::stored);
    for (const bool whole_slot : {true, false}) {
        const GotBlocks got = get_blocks(*store, numbers, whole_slot);
        EXPECT_EQ(got.result.leading_hits, numbers.size());
        EXPECT_EQ(got.wrong, 0);
        EXPECT_GT(got.result.expiry_unix_ms[0], real_clock().wall_unix_ms());
    }
    EXPECT_EQ(put_block(*store, 7), PutOutcome::exists);
    EXPECT_EQ(get_block(*store, 1'000), GetStatus::miss);
}

TEST(EmbeddedStore, FindsItsBlocksWhenOpenedAgain) {
    const TemporaryFolder directory;
    const std::vector<std::uint64_t> numbers = numbers_to(50);
    for (int life = 0; life < 3; ++life) {
        const auto store = open_store(options_for(directory));
        const std::uint64_t mine = 100 + static_cast<std::uint64_t>(life);
        if (life == 0) put_blocks(*store, numbers);
        EXPECT_EQ(put_block(*store, mine), PutOutcome::stored);
        const GotBlocks got = get_blocks(*store, numbers);
        EXPECT_EQ(got.result.leading_hits, numbers.size()) << life;
        EXPECT_EQ(got.wrong, 0);
        EXPECT_EQ(usage_of(*store).blocks, 51 + life);
        store->close(kNever);
    }
}

TEST(EmbeddedStore, ASecondOpenerIsToldWhoHasThePool) {
    const TemporaryFolder directory;
    const auto store = open_store(options_for(directory));
    const auto second = EmbeddedStore::open(options_for(directory));
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), StatusCode::unavailable);
    EXPECT_NE(second.status().message().find(fmt::format("process {}", ::getpid())),
              std::string::npos)
        << second.status().message();
}

TEST(EmbeddedStore, RefusesAPoolOfAnotherSizeOfBlockAndDeletesNothing) {
    const TemporaryFolder directory;
    {
        const auto store = open_store(options_for(directory));
        put_blocks(*store, numbers_to(5));
    }
    EmbeddedOptions other = options_for(directory);
    other.payload_bytes = kPayload + 1;
    EXPECT_EQ(EmbeddedStore::open(std::move(other)).status().code(), StatusCode::invalid_argument);
    const auto store = open_store(options_for(directory));
    EXPECT_EQ(get_blocks(*store, numbers_to(5)).result.leading_hits, 5U);
}

TEST(EmbeddedStore, WorksOnThreadsWhereTheRingIsForbidden) {
    const TemporaryFolder directory;
    EmbeddedOptions options = options_for(directory);
    options.files = make_thread_file_layer(64);
    const auto store = open_store(std::move(options));
    EXPECT_EQ(store->health().state, StoreHealth::State::degraded);
    EXPECT_NE(store->health().reason.find("io_uring"), std::string::npos);
    const std::vector<std::uint64_t> numbers = numbers_to(40);
    put_blocks(*store, numbers);
    const GotBlocks got = get_blocks(*store, numbers);
    EXPECT_EQ(got.result.leading_hits, numbers.size());
    EXPECT_EQ(got.wrong, 0);
}

TEST(EmbeddedStore, ADroppedNamespaceIsGoneInThisLifeAndTheNext) {
    const TemporaryFolder directory;
    const std::vector<std::uint64_t> numbers = numbers_to(30);
    {
        const auto store = open_store(options_for(directory));
        put_blocks(*store, numbers, {}, 1);
        store->close(kNever);  // sealed
    }
    {
        const auto store = open_store(options_for(directory));
        put_blocks(*store, numbers, {}, 2);
        put_blocks(*store, {50, 51}, {}, 1);
        EXPECT_TRUE(drop_namespace(*store, 1).ok());
        EXPECT_EQ(get_block(*store, 3, 1), GetStatus::miss);
        EXPECT_EQ(get_block(*store, 50, 1), GetStatus::miss);
        EXPECT_EQ(get_block(*store, 3, 2), GetStatus::hit);
    }
    const auto store = open_store(options_for(directory));
    EXPECT_EQ(usage_of(*store).blocks, 30);
    EXPECT_EQ(get_block(*store, 3, 1), GetStatus::miss);
    EXPECT_EQ(get_block(*store, 3, 2), GetStatus::hit);
    EXPECT_EQ(put_block(*store, 3, {}, 1), PutOutcome::stored);
}

}  // namespace
}  // namespace fathom
