// Several openers of one directory: what they see of each other, and what is left when one goes.
#include "pool/shared_store.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pool/drop_marks.h"
#include "pool/testing/embedded_rig.h"
#include "pool/testing/shared_rig.h"

namespace fathom {
namespace {

using namespace fathom::testing;

constexpr std::int64_t kPayload = 113'920;
constexpr std::int64_t kHourUs = 3'600'000'000;

std::vector<std::uint64_t> range(std::uint64_t begin, std::uint64_t count) {
    std::vector<std::uint64_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), begin);
    return numbers;
}

class SharedStores : public ::testing::Test {
  protected:
    SharedStores() { clock_.advance_us(1'750'000'000'123'456); }

    using Adjust = std::function<void(EmbeddedOptions& options)>;
    std::unique_ptr<SharedStore> open(const Adjust& adjust = {}, const std::string& writer = {}) {
        SharedOptions options = shared_options(disk_, clock_, nullptr, "/pool", kPayload);
        options.writer = writer;
        if (adjust) {
            options.make_embedded = [make = options.make_embedded, adjust] {
                auto embedded = make();
                adjust(*embedded);
                return embedded;
            };
        }
        auto store = SharedStore::open(std::move(options));
        EXPECT_TRUE(store.ok()) << store.status().message();
        return store.ok() ? std::move(*store) : nullptr;
    }
    static void expect_all(SharedStore& store, const std::vector<std::uint64_t>& numbers,
                           std::uint8_t ns = 1) {
        for (const bool whole_slot : {true, false}) {
            const GotBlocks got = get_blocks(store, numbers, whole_slot, ns);
            EXPECT_EQ(got.result.leading_hits, numbers.size());
            EXPECT_EQ(got.wrong, 0);
        }
        const std::vector<bool> present = blocks_exist(store, numbers, ns);
        EXPECT_EQ(std::count(present.begin(), present.end(), true),
                  static_cast<std::ptrdiff_t>(numbers.size()));
    }
    static std::ptrdiff_t present(SharedStore& store, const std::vector<std::uint64_t>& numbers,
                                  std::uint8_t ns = 1) {
        const std::vector<bool> all = blocks_exist(store, numbers, ns);
        return std::count(all.begin(), all.end(), true);
    }
    std::vector<std::string> segments_of(const std::string& directory) const {
        std::vector<std::string> found;
        for (const std::string& path : disk_.files())
            if (path.starts_with(directory + "/seg/")) found.push_back(path);
        return found;
    }
    std::vector<std::string> marks() const {
        std::vector<std::string> found;
        for (const std::string& path : disk_.files())
            if (path.find("/drops/") != std::string::npos) found.push_back(path);
        return found;
    }

    MemoryDisk disk_{7};
    ManualClock clock_;
};

TEST_F(SharedStores, SeeEachOthersBlocksFreshAndSealed) {
    const auto first = open(), second = open();
    EXPECT_EQ(first->own_directory(), "/pool");
    EXPECT_EQ(second->own_directory(), "/pool/peers/1");
    put_blocks(*first, range(0, 70));
    put_blocks(*second, range(100, 70));
    refresh(*first);
    refresh(*second);
    expect_all(*second, range(0, 70));
    expect_all(*first, range(100, 70));
    // More in the same segments, then a second one behind them: the first is sealed.
    put_blocks(*first, range(200, 30));
    refresh(*second);
    expect_all(*second, range(200, 30));
    clock_.advance_us(kHourUs);
    put_blocks(*first, range(300, 30));
    refresh(*second);
    expect_all(*second, range(0, 70));
    expect_all(*second, range(200, 30));
    expect_all(*second, range(300, 30));
    for (const PutOutcome outcome : put_blocks(*second, range(0, 70)).blocks)
        EXPECT_EQ(outcome, PutOutcome::exists);
}

TEST_F(SharedStores, SeeEachOthersBlocksWithoutBeingAsked) {
    const auto first = open(), second = open();
    put_blocks(*first, range(0, 3));
    while (present(*second, range(0, 3)) < 3)
        std::this_thread::yield();
    expect_all(*second, range(0, 3));
}

TEST_F(SharedStores, MixedBatchesKeepTheirOrder) {
    const auto first = open(), second = open();
    put_blocks(*first, {1, 3, 5});
    put_blocks(*second, {2, 4});
    refresh(*second);
    const GotBlocks got = get_blocks(*second, {1, 2, 3, 4, 5, 6, 1});
    EXPECT_EQ(got.result.leading_hits, 5U);
    EXPECT_EQ(got.result.blocks[5], GetStatus::miss);
    EXPECT_EQ(got.result.blocks[6], GetStatus::hit);
    EXPECT_EQ(got.wrong, 0);
    EXPECT_GT(got.result.expiry_unix_ms[0], clock_.wall_unix_ms());
    const PutResult put = put_blocks(*second, {1, 2, 6});
    EXPECT_EQ(put.blocks[0], PutOutcome::exists);
    EXPECT_EQ(put.blocks[1], PutOutcome::exists);
    EXPECT_EQ(put.blocks[2], PutOutcome::stored);
}

TEST_F(SharedStores, ABlockNearItsEndElsewhereIsRenewedHere) {
    const auto first = open(), second = open();
    constexpr std::int64_t kQuarterMs = 15 * 60'000;
    const PutOptions brief{.traffic_class = TrafficClass::ephemeral, .renew_before_ms = kQuarterMs};
    put_blocks(*first, range(0, 5), brief);
    refresh(*second);
    for (const PutOutcome outcome : put_blocks(*second, range(0, 5), brief).blocks)
        EXPECT_EQ(outcome, PutOutcome::exists);
    clock_.advance_us(kHourUs - 5 * 60'000'000LL);
    for (const PutOutcome outcome : put_blocks(*second, range(0, 5), brief).blocks)
        EXPECT_EQ(outcome, PutOutcome::renewed);
    clock_.advance_us(kHourUs / 2);
    expect_all(*second, range(0, 5));
    refresh(*first);
    expect_all(*first, range(0, 5));
}

TEST_F(SharedStores, WhatADeadProcessWroteIsFoundAndAdopted) {
    const auto second = [&] {
        const auto first = open();
        auto other = open();
        put_blocks(*first, range(0, 20));
        refresh(*other);
        disk_.crash_after(0);  // nothing of its end reaches the disk
        return other;
    }();
    disk_.crash_after(-1);
    expect_all(*second, range(0, 20));
    refresh(*second);  // looks after it: its segment is sealed
    refresh(*second);
    expect_all(*second, range(0, 20));
    const auto third = open();
    EXPECT_EQ(third->own_directory(), "/pool");
    expect_all(*third, range(0, 20));
    for (const PutOutcome outcome : put_blocks(*third, range(0, 20)).blocks)
        EXPECT_EQ(outcome, PutOutcome::exists);
}

TEST_F(SharedStores, AbandonedPoolsLoseWhatIsExpired) {
    const auto keeper = [&] {
        const auto first = open();
        auto second = open();
        put_blocks(*first, range(0, 20), {.traffic_class = TrafficClass::ephemeral});
        return second;
    }();
    EXPECT_EQ(segments_of("/pool").size(), 1U);
    clock_.advance_us(2 * kHourUs);
    refresh(*keeper);
    EXPECT_TRUE(segments_of("/pool").empty());
    refresh(*keeper);
    EXPECT_EQ(present(*keeper, range(0, 20)), 0);
}

TEST_F(SharedStores, ASegmentMayGoUnderIndexAndOpenRead) {
    const auto first = open(), second = open();
    put_blocks(*first, range(0, 10), {.traffic_class = TrafficClass::ephemeral});
    refresh(*second);
    AlignedPage page(kPayload);
    std::promise<GetResult> got;
    disk_.hold_reads(true);
    (void)second->get(
        {{.name = block_name(1), .destination = {page.data(), true}}}, kNever,
        {.done = [&](GetResult result) { got.set_value(std::move(result)); }, .released = {}});
    while (disk_.held_reads() == 0)
        std::this_thread::yield();
    for (const std::string& path : segments_of("/pool"))
        disk_.remove(path);
    disk_.hold_reads(false);
    const GetResult result = got.get_future().get();
    if (result.blocks[0] == GetStatus::hit) {  // the file was open already
        EXPECT_EQ(std::memcmp(page.data(), block_bytes(1, kPayload).data(), kPayload), 0);
    }
    refresh(*second);
    EXPECT_EQ(present(*second, range(0, 10)), 0);
    for (const GetStatus status : get_blocks(*second, range(0, 10)).result.blocks)
        EXPECT_EQ(status, GetStatus::miss);
    EXPECT_EQ(put_block(*second, 1), PutOutcome::stored);
    EXPECT_EQ(get_block(*second, 1), GetStatus::hit);
}

TEST_F(SharedStores, DamagedSlotsOfOthersAreMissesAndForgotten) {
    const auto first = open(), second = open();
    put_blocks(*first, range(0, 10));
    first->close(kNever);
    refresh(*second);
    expect_all(*second, range(0, 10));
    const SlotGeometry geometry = *slot_geometry(kPayload);
    const std::string path = segments_of("/pool").at(0);
    disk_.flip(path, (geometry.slot_offset(2) + 5'000) * 8);
    disk_.flip(path, (geometry.slot_offset(4) + kPayload + 20) * 8);
    const GotBlocks got = get_blocks(*second, range(0, 10));
    EXPECT_EQ(got.wrong, 0);
    EXPECT_EQ(std::count(got.result.blocks.begin(), got.result.blocks.end(), GetStatus::hit), 8);
    EXPECT_EQ(std::count(got.result.blocks.begin(), got.result.blocks.end(), GetStatus::corrupt),
              2);
    EXPECT_EQ(present(*second, range(0, 10)), 8);
}

// Whatever the disk does to what is read and written: a checked block or a miss.
TEST_F(SharedStores, ADiskThatLiesGivesNoWrongBytes) {
    const auto first = open(), second = open();
    disk_.set_faults({.read_flip = 0.02,
                      .read_misdirected = 0.02,
                      .read_short = 0.02,
                      .read_error = 0.01,
                      .write_flip = 0.02,
                      .write_torn = 0.02,
                      .write_lost = 0.02,
                      .write_misdirected = 0.02,
                      .again = 0.02});
    std::int64_t hits = 0, wrong = 0;
    for (std::uint64_t batch = 0; batch < 8; ++batch) {
        SharedStore &writer = batch % 2 == 0 ? *first : *second,
                    &reader = batch % 2 == 0 ? *second : *first;
        (void)put_blocks(writer, range(batch * 10, 20));
        refresh(reader);
        const GotBlocks got = get_blocks(reader, range(0, 80), batch % 4 < 2);
        wrong += got.wrong;
        hits += std::count(got.result.blocks.begin(), got.result.blocks.end(), GetStatus::hit);
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(hits, 100);
    disk_.set_faults({});
}

TEST_F(SharedStores, APoolThatIsBegunAnewIsForgotten) {
    auto first = open();
    const auto second = open();
    put_blocks(*first, range(0, 10));
    refresh(*second);
    expect_all(*second, range(0, 10));
    first.reset();
    for (const std::string& path : segments_of("/pool"))
        disk_.remove(path);
    disk_.remove("/pool/POOL");
    first = open();
    put_blocks(*first, range(50, 5));
    refresh(*second);
    EXPECT_EQ(present(*second, range(0, 10)), 0);
    expect_all(*second, range(50, 5));
}

TEST_F(SharedStores, AWritersPoolIsItsOwnAndNobodyElseIsTouched) {
    {
        const auto abandoned = open();
        put_blocks(*abandoned, range(0, 5), {.traffic_class = TrafficClass::ephemeral});
    }
    const auto store = open({}, "host-a");
    EXPECT_EQ(store->own_directory(), "/pool/peers/host-a");
    SharedOptions again = shared_options(disk_, clock_, nullptr, "/pool", kPayload);
    again.writer = "host-a";
    EXPECT_EQ(SharedStore::open(std::move(again)).status().code(), StatusCode::unavailable);
    SharedOptions bad = shared_options(disk_, clock_, nullptr, "/pool", kPayload);
    bad.writer = "../x";
    EXPECT_EQ(SharedStore::open(std::move(bad)).status().code(), StatusCode::invalid_argument);
    expect_all(*store, range(0, 5));
    clock_.advance_us(3 * kHourUs);
    refresh(*store);
    EXPECT_EQ(segments_of("/pool").size(), 1U);
}

TEST_F(SharedStores, BlocksOfAnotherSizeAreRefused) {
    const auto store = open();
    put_blocks(*store, range(0, 5));
    const auto other =
        SharedStore::open(shared_options(disk_, clock_, nullptr, "/pool", kPayload - 1));
    EXPECT_EQ(other.status().code(), StatusCode::invalid_argument);
}

TEST_F(SharedStores, TheCapacityIsOfAll) {
    constexpr std::int64_t kCapacity = 8 * kSegmentBytes;
    constexpr double kHigh = 0.3, kLow = 0.25;
    const auto adjust = [](EmbeddedOptions& options) {
        options.capacity_bytes = kCapacity;
        options.high_watermark = kHigh;
        options.low_watermark = kLow;
    };
    const auto first = open(adjust), second = open(adjust);
    std::uint64_t number = 0;
    // Each fills segments of its own in turn, an hour apart, so that it is clear what goes first.
    for (int hour = 0; hour < 16; ++hour) {
        put_blocks(hour % 2 == 0 ? *first : *second, range(number, 120));
        number += 1'000;
        clock_.advance_us(kHourUs);
        for (SharedStore* store : {first.get(), second.get(), first.get()}) {
            refresh(*store);
            std::promise<void> done;
            (void)store->own().collect(kNever, [&](const Status&) { done.set_value(); });
            done.get_future().wait();
        }
    }
    const auto bytes = [](SharedStore& store) {
        std::promise<std::int64_t> done;
        (void)store.own().usage(kNever, [&](const PoolUsage& usage, const Status&) {
            done.set_value(usage.allocated_bytes);
        });
        return static_cast<double>(done.get_future().get());
    };
    const double one = bytes(*first), two = bytes(*second);
    EXPECT_LE(one + two, kHigh * kCapacity);
    EXPECT_GT(one, kLow * kCapacity / 4);
    EXPECT_GT(two, kLow * kCapacity / 4);
    refresh(*first);
    EXPECT_EQ(present(*first, {0, 1'000}), 0);
    expect_all(*first, {number - 1'000, number - 2'000});
}

TEST_F(SharedStores, ADropReachesLiveAndAbandonedPools) {
    {
        const auto a = open(), b = open(), c = open();
        put_blocks(*a, range(0, 10), {}, 1);
        put_blocks(*b, range(10, 10), {}, 1);
        put_blocks(*b, range(10, 10), {}, 2);
        put_blocks(*c, range(20, 10), {}, 1);
    }
    const auto first = open(), second = open();  // the third pool is nobody's
    refresh(*first);
    refresh(*second);
    expect_all(*first, range(0, 30), 1);
    ASSERT_TRUE(drop_namespace(*second, 1).ok());
    EXPECT_EQ(present(*first, range(0, 30), 1), 0);
    EXPECT_EQ(present(*second, range(0, 30), 1), 0);
    EXPECT_TRUE(marks().empty());
    refresh(*first);
    refresh(*second);
    EXPECT_EQ(present(*first, range(0, 30), 1), 0);
    EXPECT_EQ(present(*second, range(0, 30), 1), 0);
    expect_all(*first, range(10, 10), 2);
    const auto third = open();
    EXPECT_EQ(present(*third, range(0, 30), 1), 0);
    // What is put after it is found by all.
    EXPECT_EQ(put_block(*first, 5, {}, 1), PutOutcome::stored);
    refresh(*third);
    EXPECT_EQ(get_block(*third, 5, 1), GetStatus::hit);
}

// Wiped slots look as if they had never been written, and the segment is not sealed yet.
TEST_F(SharedStores, BlocksBehindWipedOnesAreFound) {
    const auto first = open(), second = open();
    put_blocks(*first, range(0, 60), {}, 1);
    put_blocks(*first, range(0, 5), {}, 2);
    ASSERT_TRUE(drop_namespace(*first, 1).ok());
    refresh(*second);
    expect_all(*second, range(0, 5), 2);
    const auto third = open();  // knows nothing of the drop
    expect_all(*third, range(0, 5), 2);
    put_blocks(*first, range(5, 5), {}, 2);
    refresh(*third);
    expect_all(*third, range(0, 10), 2);
}

TEST_F(SharedStores, ADropWaitsForWhoDoesNotAnswerAndIsDoneLater) {
    auto first = open();
    put_blocks(*first, range(0, 10), {}, 1);
    first.reset();
    // Somebody has the first pool who knows of no marks.
    EmbeddedOptions options =
        *shared_options(disk_, clock_, nullptr, "/pool", kPayload).make_embedded();
    options.files = disk_.layer(96);
    auto stubborn = EmbeddedStore::open(std::move(options));
    ASSERT_TRUE(stubborn.ok());
    auto second = open();
    std::promise<Status> dropped;
    (void)second->drop_namespace(block_name(0, 1).ns, {clock_.now_us() + 1'000'000},
                                 [&](Status status) { dropped.set_value(std::move(status)); });
    refresh(*second);
    refresh(*second);
    clock_.advance_us(2'000'000);
    const Status status = dropped.get_future().get();
    EXPECT_EQ(status.code(), StatusCode::deadline_exceeded);
    EXPECT_NE(status.message().find("/pool"), std::string::npos) << status.message();
    EXPECT_EQ(present(*second, range(0, 10), 1), 0);
    refresh(*second);
    EXPECT_EQ(present(*second, range(0, 10), 1), 0);  // not even by a new look
    second.reset();
    stubborn->reset();
    // Whoever opens that pool next does first what was left to do.
    const auto third = open();
    EXPECT_EQ(third->own_directory(), "/pool");
    EXPECT_EQ(present(*third, range(0, 10), 1), 0);
}

TEST_F(SharedStores, CancelledAndLateDropsEndAndClosingEndsAll) {
    const auto first = open();
    auto second = open();
    EmbeddedOptions options =
        *shared_options(disk_, clock_, nullptr, "/pool/peers/x", kPayload).make_embedded();
    options.files = disk_.layer(96);
    const auto stubborn = EmbeddedStore::open(std::move(options));
    ASSERT_TRUE(stubborn.ok());
    std::promise<Status> cancelled, closed, late;
    const auto tell = [](std::promise<Status>& to) {
        return [&to](Status status) { to.set_value(std::move(status)); };
    };
    const NamespaceId ns = block_name(0, 1).ns;
    (void)second->drop_namespace(ns, {clock_.now_us() - 1}, tell(late));
    EXPECT_EQ(late.get_future().get().code(), StatusCode::deadline_exceeded);
    second->drop_namespace(ns, kNever, tell(cancelled))->cancel();
    EXPECT_EQ(cancelled.get_future().get().code(), StatusCode::cancelled);
    (void)second->drop_namespace(ns, kNever, tell(closed));
    second->close({clock_.now_us()});
    const StatusCode code = closed.get_future().get().code();  // whether it had begun or not
    EXPECT_TRUE(code == StatusCode::cancelled || code == StatusCode::unavailable);
}

TEST(DropMarks, TellNamespaceTimeAndPools) {
    MemoryDisk disk(1);
    PoolReader reader(disk.layer(4));
    ASSERT_TRUE(reader.files().make_directory("/p").ok());
    EXPECT_TRUE(list_drop_marks(reader.files(), "/p")->empty());
    const NamespaceId ns = block_name(0, 7).ns;
    const auto mark = make_drop_mark(reader, "/p", ns, 1'750'000'000'000, 5);
    ASSERT_TRUE(mark.ok());
    (void)reader.files().make_directory("/p/drops/what else");
    ASSERT_TRUE(acknowledge_drop(reader.files(), "/p", *mark, "root").ok());
    ASSERT_TRUE(acknowledge_drop(reader.files(), "/p", *mark, "root").ok());
    ASSERT_TRUE(acknowledge_drop(reader.files(), "/p", *mark, pool_name("/p", "/p/peers/3")).ok());
    auto marks = *list_drop_marks(reader.files(), "/p");
    ASSERT_EQ(marks.size(), 1U);
    EXPECT_EQ(marks[0].ns, ns);
    EXPECT_EQ(marks[0].since_unix_ms, 1'750'000'000'000);
    EXPECT_EQ(marks[0].rid, (std::set<std::string>{"root", "peers.3"}));
    EXPECT_TRUE(remove_drop_mark(reader, "/p", marks[0]).ok());
    EXPECT_TRUE(list_drop_marks(reader.files(), "/p")->empty());
}

// On a real file system, among real processes.
class SharedProcesses : public ::testing::Test {
  protected:
    SharedOptions options() const {
        SharedOptions options;
        options.make_embedded = [directory = folder_.path()] {
            EmbeddedOptions embedded;
            embedded.directory = directory;
            embedded.payload_bytes = kPayload;
            embedded.capacity_bytes = std::int64_t{1} << 30;
            embedded.io_depth = 8;
            return Result<EmbeddedOptions>(std::move(embedded));
        };
        options.look_us = 2'000;
        return options;
    }
    std::unique_ptr<SharedStore> open() const {
        auto store = SharedStore::open(options());
        EXPECT_TRUE(store.ok()) << store.status().message();
        return store.ok() ? std::move(*store) : nullptr;
    }
    const TemporaryFolder folder_;
};

TEST_F(SharedProcesses, AKilledOnesBlocksAreFoundAndItsPoolIsTakenOver) {
    int pipes[2];
    ASSERT_EQ(::pipe(pipes), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const auto store = SharedStore::open(options());
        const bool good = store.ok() && put_block(**store, 1) == PutOutcome::stored &&
                          put_block(**store, 2) == PutOutcome::stored;
        (void)!::write(pipes[1], good ? "y" : "n", 1);
        while (true)
            ::pause();
    }
    char answer = 0;
    ASSERT_EQ(::read(pipes[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    const auto store = open();
    EXPECT_EQ(store->own_directory(), folder_.path() + "/peers/1");
    EXPECT_EQ(get_blocks(*store, {1, 2}).result.leading_hits, 2U);
    EXPECT_EQ(put_block(*store, 3), PutOutcome::stored);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ::close(pipes[0]);
    ::close(pipes[1]);
    EXPECT_EQ(get_blocks(*store, {1, 2, 3}).result.leading_hits, 3U);
    const auto third = open();
    EXPECT_EQ(third->own_directory(), folder_.path());
    EXPECT_EQ(get_blocks(*third, {1, 2, 3}).result.leading_hits, 3U);
    EXPECT_EQ(get_blocks(*third, {1, 2, 3}).wrong, 0);
    refresh(*store);
    EXPECT_EQ(get_blocks(*store, {1, 2, 3}).result.leading_hits, 3U);
}

TEST_F(SharedProcesses, WhoEncryptsFindsAndBelievesOnlyWhatIsEncrypted) {
    const auto open_with = [&](bool encrypt) {
        SharedOptions with = options();
        with.make_embedded = [make = with.make_embedded, encrypt,
                              keys = folder_.path() + "/keys"]() -> Result<EmbeddedOptions> {
            FATHOM_ASSIGN(EmbeddedOptions embedded, make());
            FATHOM_ASSIGN(embedded.keys, KeyRing::open(keys, real_clock()));
            embedded.encrypt = encrypt;
            return embedded;
        };
        auto store = SharedStore::open(std::move(with));
        EXPECT_TRUE(store.ok()) << store.status().message();
        return store.ok() ? std::move(*store) : nullptr;
    };
    const auto plain = open_with(false), first = open_with(true), second = open_with(true);
    put_block(*plain, 1);
    put_block(*first, 2);
    refresh(*plain);
    refresh(*second);
    for (const bool whole_slot : {true, false}) {
        const GotBlocks got = get_blocks(*second, {2, 1}, whole_slot);
        EXPECT_EQ(got.result.leading_hits, 1U);
        EXPECT_EQ(got.wrong, 0);
        EXPECT_EQ(get_blocks(*plain, {1, 2}, whole_slot).result.leading_hits, 2U);
    }
    EXPECT_EQ(put_block(*second, 1), PutOutcome::stored);
    EXPECT_TRUE(drop_namespace(*second, 1).ok());
    EXPECT_EQ(blocks_exist(*plain, {1, 2}), (std::vector<bool>{false, false}));
    EXPECT_EQ(get_block(*first, 2), GetStatus::miss);
}

TEST_F(SharedProcesses, NobodyWritesBehindALinkAndFoldersThatAreNoPoolsAreNone) {
    const TemporaryFolder outside;
    const auto first = open();
    std::filesystem::create_directories(folder_.path() + "/peers/7");
    std::filesystem::create_directory_symlink(outside.path(), folder_.path() + "/peers/1");
    const auto second = open();
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(second->own_directory(), folder_.path() + "/peers/2");
    EXPECT_TRUE(std::filesystem::is_empty(outside.path()));
    PoolReader reader(make_thread_file_layer(8));
    EXPECT_EQ(*pool_directories(reader.files(), folder_.path()),
              (std::vector<std::string>{folder_.path(), folder_.path() + "/peers/2"}));
    SharedOptions named = options();
    named.writer = "1";
    EXPECT_EQ(SharedStore::open(std::move(named)).status().code(), StatusCode::invalid_argument);
}

TEST_F(SharedProcesses, ADirectoryThatGoesOrIsReplacedIsSaidOnceAndServedWithout) {
    const std::string away = folder_.path() + ".away";
    const auto store = open();
    EXPECT_EQ(put_block(*store, 1), PutOutcome::stored);
    const StoreHealth before = store->health();  // not every file system is good enough
    ::testing::internal::CaptureStderr();
    std::filesystem::rename(folder_.path(), away);
    for (int i = 0; i < 3; ++i)
        refresh(*store);
    EXPECT_EQ(store->health().state, StoreHealth::State::degraded);
    EXPECT_NE(store->health().reason.find("/POOL is not there any more"), std::string::npos);
    (void)get_block(*store, 1);
    (void)put_block(*store, 2);
    const auto other = open();
    EXPECT_EQ(other->own_directory(), folder_.path());
    EXPECT_EQ(put_block(*other, 3), PutOutcome::stored);
    for (int i = 0; i < 3; ++i)
        refresh(*store);
    EXPECT_NE(store->health().reason.find("is another pool"), std::string::npos);
    EXPECT_EQ(get_block(*store, 3), GetStatus::miss);
    EXPECT_EQ(get_block(*other, 3), GetStatus::hit);
    const std::string said = ::testing::internal::GetCapturedStderr();
    std::size_t lines = 0;
    for (std::size_t at = 0; (at = said.find("Requests are served as ever", at)) != said.npos; ++at)
        ++lines;
    EXPECT_EQ(lines, 2u) << said;
    // Back where it was, it is a pool as before.
    std::filesystem::rename(folder_.path(), folder_.path() + ".other");
    std::filesystem::rename(away, folder_.path());
    refresh(*store);
    EXPECT_EQ(store->health().state, before.state);
    EXPECT_EQ(store->health().reason, before.reason);
    EXPECT_EQ(get_block(*store, 1), GetStatus::hit);
    std::filesystem::remove_all(folder_.path() + ".other");
}

TEST_F(SharedProcesses, OneAloneIsAnEmbeddedPool) {
    {
        const auto store = open();
        EXPECT_EQ(put_block(*store, 1), PutOutcome::stored);
        EXPECT_TRUE(drop_namespace(*store, 9).ok());
        EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/drops"));
        EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/peers"));
    }
    auto embedded = options().make_embedded();
    const auto store = EmbeddedStore::open(std::move(*embedded));
    ASSERT_TRUE(store.ok());
    EXPECT_EQ(get_block(**store, 1), GetStatus::hit);
}

}  // namespace
}  // namespace fathom
