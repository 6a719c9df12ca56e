// A pool over several devices of which some are lost, replaced, damaged or out of date
// (kvpool.md 15.3, F16).
#include "pool/ec_store.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "pool/segment.h"
#include "pool/testing/ec_rig.h"
#include "pool/testing/embedded_rig.h"
#include "pool/testing/store_calls.h"

namespace fathom {
namespace {

using namespace fathom::testing;

constexpr std::int64_t kPayload = 3'000;
constexpr std::int64_t kHourUs = 3'600'000'000;
constexpr std::uint64_t kSeed = 20'261'130;
const std::string kHome = "/" + std::to_string(kPayload);

std::vector<std::uint64_t> range(std::uint64_t begin, std::uint64_t n) {
    std::vector<std::uint64_t> numbers(n);
    std::iota(numbers.begin(), numbers.end(), begin);
    return numbers;
}

Status settle(EcStore& store) {
    std::promise<Status> done;
    (void)store.settle(kNever, [&](Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
}

Status scrub(EcStore& store) {
    std::promise<Status> done;
    (void)store.scrub(kNever, [&](Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
}

class EcFaults : public ::testing::Test {
  protected:
    explicit EcFaults(std::uint64_t seed = kSeed) : disk_(seed) {
        clock_.advance_us(1'750'000'000'000'000);
    }

    EcOptions options(const std::string& home = kHome) {
        EcOptions options = ec_options(disk_, shape_, devices_, kPayload, clock_, metrics_);
        options.directories = ec_directories(home, devices_);
        return options;
    }
    std::unique_ptr<EcStore> open(const std::string& home = kHome) {
        auto store = EcStore::open(options(home));
        if (!store.ok()) {
            ADD_FAILURE() << store.status().to_string();
            return nullptr;
        }
        return std::move(*store);
    }
    std::string device(int i, const std::string& home = kHome) const {
        return home + "/d" + std::to_string(i);
    }
    // Seals what is open, as the end of a bucket does, and protects it.
    void protect(EcStore& store) {
        clock_.advance_us(2 * kHourUs);
        for (std::size_t i = 0; i < static_cast<std::size_t>(devices_); ++i) {
            if (store.device(i) == nullptr) continue;
            std::promise<void> done;
            (void)store.device(i)->collect(kNever, [&](const Status&) { done.set_value(); });
            done.get_future().wait();
        }
        EXPECT_TRUE(settle(store).ok());
    }
    void expect_hits(BlockStore& store, const std::vector<std::uint64_t>& numbers,
                     std::uint8_t ns = 1) {
        const GotBlocks got = get_blocks(store, numbers, true, ns);
        EXPECT_EQ(got.wrong, 0);
        const std::vector<bool> there = blocks_exist(store, numbers, ns);
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            EXPECT_EQ(get_status_name(got.result.blocks[i]), "hit") << "block " << numbers[i];
            EXPECT_TRUE(there[i]) << "block " << numbers[i];
        }
    }
    void expect_misses(BlockStore& store, const std::vector<std::uint64_t>& numbers,
                       std::uint8_t ns) {
        const GotBlocks got = get_blocks(store, numbers, true, ns);
        const std::vector<bool> there = blocks_exist(store, numbers, ns);
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            EXPECT_EQ(get_status_name(got.result.blocks[i]), "miss") << "block " << numbers[i];
            EXPECT_FALSE(there[i]) << "block " << numbers[i];
        }
    }
    // Hits; whatever is hit is right.
    std::int64_t count_hits(BlockStore& store, const std::vector<std::uint64_t>& numbers) {
        const GotBlocks got = get_blocks(store, numbers);
        EXPECT_EQ(got.wrong, 0);
        return std::count(got.result.blocks.begin(), got.result.blocks.end(), GetStatus::hit);
    }
    std::vector<std::string> files_with(const std::string& part) const {
        std::vector<std::string> paths;
        for (const std::string& path : disk_.files())
            if (path.find(part) != std::string::npos && path.ends_with(".seg"))
                paths.push_back(path);
        return paths;
    }

    EcShape shape_{4, 2};
    int devices_ = 6;
    MemoryDisk disk_;
    ManualClock clock_;
    MetricsRegistry metrics_;
};

TEST_F(EcFaults, ServesEverythingWithAnyTwoDevicesLost) {
    const std::vector<std::uint64_t> numbers = range(0, 60);
    {
        const auto store = open();
        ASSERT_NE(store, nullptr);
        put_blocks(*store, numbers);
        expect_hits(*store, numbers);
        EXPECT_EQ(store->health().state, StoreHealth::State::ok);
        EXPECT_EQ(store->degraded_reads(), 0);
        store->close(kNever);
    }
    for (int a = 0; a < devices_; ++a) {
        for (int b = a; b < devices_; ++b) {
            SCOPED_TRACE(fmt::format("devices {} and {}", a, b));
            const std::string home = fmt::format("/trial{}{}", a, b);
            disk_.copy_all(kHome, home);
            disk_.lose(device(a, home));
            disk_.lose(device(b, home));
            const auto store = open(home);
            ASSERT_NE(store, nullptr);
            expect_hits(*store, numbers);
            EXPECT_EQ(store->health().state, StoreHealth::State::degraded);
            // What is lost is there all the same, so nobody writes it again; what is new is stored.
            EXPECT_EQ(put_block(*store, numbers[3]), PutOutcome::exists);
            EXPECT_EQ(put_block(*store, 1'000), PutOutcome::stored);
            expect_hits(*store, {1'000});
            store->close(kNever);
            disk_.clear(home);
        }
    }
}

TEST_F(EcFaults, MoreLossesThanParityAreMissesAndTheRestIsServed) {
    const std::vector<std::uint64_t> numbers = range(0, 60);
    {
        const auto store = open();
        ASSERT_NE(store, nullptr);
        put_blocks(*store, numbers);
        store->close(kNever);
    }
    for (const int i : {0, 2, 5})
        disk_.lose(device(i));
    const auto store = open();
    ASSERT_NE(store, nullptr);
    const std::int64_t hits = count_hits(*store, numbers);
    EXPECT_GT(hits, 0);
    EXPECT_LT(hits, 60);
    put_blocks(*store, numbers);
    expect_hits(*store, numbers);
    store->close(kNever);
}

TEST_F(EcFaults, ServesWhatADeviceHadThatGoesWhileItRuns) {
    const auto store = open();
    ASSERT_NE(store, nullptr);
    const std::vector<std::uint64_t> numbers = range(0, 60);
    put_blocks(*store, numbers);
    protect(*store);
    EXPECT_EQ(store->usage().unprotected_segments, 0);
    EXPECT_GT(store->usage().stripes, 0);
    disk_.lose(device(1));
    expect_hits(*store, numbers);
    disk_.lose(device(4));
    expect_hits(*store, numbers);
    EXPECT_TRUE(settle(*store).ok());
    expect_hits(*store, numbers);
    EXPECT_GT(store->degraded_reads(), 0);
    // Writes go round the devices that fail, after some tries.
    for (std::uint64_t round = 0; round < 4; ++round)
        put_blocks(*store, range(1'000 + 100 * round, 40));
    const PutResult put = put_blocks(*store, range(2'000, 40));
    EXPECT_EQ(std::count(put.blocks.begin(), put.blocks.end(), PutOutcome::stored), 40);
    expect_hits(*store, range(2'000, 40));
    disk_.lose(device(0));
    EXPECT_LT(count_hits(*store, numbers), 60);
    store->close(kNever);
}

TEST_F(EcFaults, AReplacedDeviceGetsItsBlocksBack) {
    const std::vector<std::uint64_t> numbers = range(0, 60);
    {
        const auto store = open();
        ASSERT_NE(store, nullptr);
        put_blocks(*store, numbers);
        store->close(kNever);
    }
    for (int i = 0; i < devices_; ++i) {
        SCOPED_TRACE(fmt::format("device {}", i));
        disk_.clear(device(i));
        const auto store = open();
        ASSERT_NE(store, nullptr);
        expect_hits(*store, numbers);
        ASSERT_TRUE(settle(*store).ok());
        EXPECT_EQ(store->usage().repairs_left, 0);
        EXPECT_EQ(store->usage().lost_blocks, 0);
        EXPECT_EQ(store->health().state, StoreHealth::State::ok) << store->health().reason;
        const std::int64_t before = store->degraded_reads();
        expect_hits(*store, numbers);
        EXPECT_EQ(store->degraded_reads(), before);
        store->close(kNever);
    }
    // What was rebuilt protects the others.
    disk_.lose(device(0));
    disk_.lose(device(3));
    const auto store = open();
    ASSERT_NE(store, nullptr);
    expect_hits(*store, numbers);
    store->close(kNever);
}

TEST_F(EcFaults, ADeviceMayBeLostWhileAnotherIsRebuilt) {
    const std::vector<std::uint64_t> numbers = range(0, 60);
    {
        const auto store = open();
        ASSERT_NE(store, nullptr);
        put_blocks(*store, numbers);
        store->close(kNever);
    }
    for (const int lost : {1, 2}) {
        for (std::int64_t after = 0; after < 3; ++after) {
            SCOPED_TRACE(fmt::format("{} lost, round {}", lost, after));
            const std::string home = fmt::format("/trial{}{}", lost, after);
            disk_.copy_all(kHome, home);
            disk_.clear(device(0, home));
            const auto store = open(home);
            ASSERT_NE(store, nullptr);
            if (after > 0) count_hits(*store, range(0, static_cast<std::uint64_t>(8 * after)));
            for (int i = 1; i <= lost; ++i)
                disk_.lose(device(i, home));
            const std::int64_t hits = count_hits(*store, numbers);
            EXPECT_GE(hits, lost == 1 ? 60 : 1);
            EXPECT_TRUE(settle(*store).ok());
            EXPECT_GE(count_hits(*store, numbers), lost == 1 ? 60 : 1);
            store->close(kNever);
            disk_.clear(home);
        }
    }
}

TEST_F(EcFaults, ADeviceThatWasAwayIsNotReadAsItIs) {
    const std::vector<std::uint64_t> kept = range(0, 30), dropped = range(100, 30);
    {
        const auto store = open();
        ASSERT_NE(store, nullptr);
        put_blocks(*store, kept, {}, 1);
        put_blocks(*store, dropped, {}, 2);
        store->close(kNever);
    }
    disk_.lose(device(0));
    {
        const auto store = open();
        ASSERT_NE(store, nullptr);
        expect_hits(*store, kept, 1);
        expect_hits(*store, dropped, 2);
        ASSERT_TRUE(drop_namespace(*store, 2).ok());
        expect_misses(*store, dropped, 2);
        store->close(kNever);
    }
    disk_.bring_back(device(0));
    {
        const auto store = open();
        ASSERT_NE(store, nullptr);
        EXPECT_NE(store->health().reason.find("was away"), std::string::npos)
            << store->health().reason;
        expect_misses(*store, dropped, 2);
        EXPECT_EQ(get_blocks(*store, kept).wrong, 0);
        store->close(kNever);
    }
    // As an empty one it is taken in again; the disk that it was is refused from then on too.
    disk_.copy_all(device(0), "/old");
    disk_.clear(device(0));
    {
        const auto store = open();
        ASSERT_NE(store, nullptr);
        ASSERT_TRUE(settle(*store).ok());
        expect_misses(*store, dropped, 2);
        EXPECT_EQ(store->health().state, StoreHealth::State::ok) << store->health().reason;
        store->close(kNever);
    }
    disk_.clear(device(0));
    disk_.copy_all("/old", device(0));
    const auto store = open();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->health().state, StoreHealth::State::degraded);
    expect_misses(*store, dropped, 2);
    store->close(kNever);
}

TEST_F(EcFaults, ADroppedNamespaceDoesNotComeBackByRebuilding) {
    const std::vector<std::uint64_t> kept = range(0, 40), dropped = range(100, 40);
    auto store = open();
    ASSERT_NE(store, nullptr);
    put_blocks(*store, kept, {}, 1);
    put_blocks(*store, dropped, {}, 2);
    protect(*store);
    ASSERT_TRUE(drop_namespace(*store, 2).ok());
    expect_misses(*store, dropped, 2);
    // At once, before anything is protected again.
    store->close({});
    store.reset();
    disk_.lose_power();
    for (int i = 0; i < devices_; ++i) {
        SCOPED_TRACE(fmt::format("device {}", i));
        const std::string home = fmt::format("/trial{}", i);
        disk_.copy_all(kHome, home);
        disk_.lose(device(i, home));
        store = open(home);
        ASSERT_NE(store, nullptr);
        expect_misses(*store, dropped, 2);
        store->close(kNever);
        store.reset();
        disk_.clear(home);
    }
    // And the others are protected as before.
    store = open();
    ASSERT_NE(store, nullptr);
    ASSERT_TRUE(settle(*store).ok());
    store->close(kNever);
    store.reset();
    disk_.lose(device(2));
    store = open();
    ASSERT_NE(store, nullptr);
    expect_hits(*store, kept, 1);
    expect_misses(*store, dropped, 2);
    store->close(kNever);
}

TEST_F(EcFaults, FlippedBitsAreMendedWhereTheyAre) {
    auto store = open();
    ASSERT_NE(store, nullptr);
    const std::vector<std::uint64_t> numbers = range(0, 60);
    put_blocks(*store, numbers);
    protect(*store);
    const auto geometry = slot_geometry(kPayload);
    ASSERT_TRUE(geometry.ok());
    // Slots 0 of two segments of every stripe, and a row of a parity file.
    int flipped = 0;
    for (const std::string& path : files_with("/seg/")) {
        if (flipped++ % 2 == 0) disk_.flip(path, (geometry->slot_offset(0) + 1'000) * 8 + 3);
    }
    ASSERT_GT(flipped, 2);
    expect_hits(*store, numbers);
    EXPECT_GT(store->degraded_reads(), 0);
    ASSERT_TRUE(settle(*store).ok());
    EXPECT_EQ(store->usage().lost_blocks, 0);
    EXPECT_GT(store->usage().repaired_blocks, 0);
    const std::int64_t before = store->degraded_reads();
    expect_hits(*store, numbers);
    EXPECT_EQ(store->degraded_reads(), before);
    // Found by nobody but a scrub.
    const std::int64_t repaired = store->usage().repaired_blocks;
    for (const std::string& path : files_with("/seg/"))
        if (flipped++ % 3 == 0) disk_.flip(path, (geometry->slot_offset(1) + 2'000) * 8);
    for (const std::string& path : files_with("/par/"))
        disk_.flip(path, (geometry->slot_offset(2) + kPoolPageBytes * 8) * 8);
    ASSERT_TRUE(scrub(*store).ok());
    EXPECT_EQ(store->usage().lost_blocks, 0);
    EXPECT_GT(store->usage().repaired_blocks, repaired);
    store->close(kNever);
    store.reset();
    disk_.lose(device(0));
    disk_.lose(device(1));
    store = open();
    ASSERT_NE(store, nullptr);
    expect_hits(*store, numbers);
    store->close(kNever);
}

TEST_F(EcFaults, DamageBeyondRepairIsAMissAndNeverWrongBytes) {
    std::vector<std::uint64_t> numbers = range(0, 60);
    {
        const auto store = open();
        ASSERT_NE(store, nullptr);
        put_blocks(*store, numbers);
        store->close(kNever);
    }
    RandomStream random(kSeed);
    for (int round = 0; round < 4; ++round) {
        const std::string home = fmt::format("/trial{}", round);
        SCOPED_TRACE(fmt::format("seed {}, {}", kSeed, home));
        disk_.copy_all(kHome, home);
        for (const std::string& path : files_with(home)) {
            for (int i = 0; i < 6; ++i) {
                const auto page =
                    static_cast<std::int64_t>(random.next_u64() % 12) + (i % 2 == 0 ? 0 : 257);
                disk_.flip(path, page * kPoolPageBytes * 8 +
                                     static_cast<std::int64_t>(random.next_u64() % 32'768));
            }
        }
        if (round % 2 == 1) disk_.lose(device(round, home));
        const auto store = open(home);
        ASSERT_NE(store, nullptr);
        count_hits(*store, numbers);
        EXPECT_TRUE(scrub(*store).ok());
        count_hits(*store, numbers);
        store->close(kNever);
        disk_.clear(home);
    }
}

TEST_F(EcFaults, ParityGoesWithItsMembers) {
    const auto store = open();
    ASSERT_NE(store, nullptr);
    put_blocks(*store, range(0, 40), {.traffic_class = TrafficClass::ephemeral});
    put_blocks(*store, range(100, 40));
    protect(*store);
    const std::size_t files = files_with("/par/").size();
    EXPECT_GT(files, 0U);
    EXPECT_EQ(store->usage().parity_bytes > 0, true);
    clock_.advance_us(100 * kHourUs);
    protect(*store);
    protect(*store);
    EXPECT_EQ(files_with("/par/").size(), 0U);
    EXPECT_EQ(files_with("/seg/").size(), 0U);
    EXPECT_EQ(store->usage().parity_bytes, 0);
    EXPECT_EQ(store->usage().stripes, 0);
    store->close(kNever);
}

// The smaller the code the more steps a test can afford.
class EcCrash : public EcFaults {
  protected:
    EcCrash() {
        shape_ = {2, 1};
        devices_ = 3;
    }
};

TEST_F(EcCrash, AtEveryStepOfAStripeLosesNothingThatWasDurable) {
    const std::vector<std::uint64_t> numbers = range(0, 9);
    // Everything sealed and durable, nothing protected.
    {
        const auto store = open();
        ASSERT_NE(store, nullptr);
        put_blocks(*store, numbers);
        protect(*store);
        EXPECT_GT(store->usage().stripes, 0);
        store->close(kNever);
    }
    for (const std::string& path : files_with("/par/"))
        disk_.remove(path);
    disk_.lose_power();
    const auto steps = [&] {
        const std::string home = "/dry";
        disk_.copy_all(kHome, home);
        const std::int64_t before = disk_.operations();
        const auto store = open(home);
        EXPECT_TRUE(settle(*store).ok());
        EXPECT_GT(store->usage().stripes, 0);
        store->close(kNever);
        return disk_.operations() - before;
    }();
    ASSERT_GT(steps, 60);
    for (std::int64_t step = 0; step < steps && !HasFailure(); step += 2) {
        SCOPED_TRACE(fmt::format("seed {}, crash after operation {} of {}", kSeed, step, steps));
        const std::string home = fmt::format("/trial{}", step);
        disk_.copy_all(kHome, home);
        disk_.crash_after(step);
        {
            auto store = EcStore::open(options(home));
            if (store.ok()) {
                (void)settle(**store);
                (*store)->close(kNever);
            }
        }
        disk_.lose_power();
        {
            const auto store = open(home);
            ASSERT_NE(store, nullptr);
            EXPECT_EQ(store->health().state, StoreHealth::State::ok) << store->health().reason;
            expect_hits(*store, numbers);
            ASSERT_TRUE(settle(*store).ok());
            EXPECT_EQ(store->usage().unprotected_segments, 0);
            store->close(kNever);
        }
        disk_.lose(device(static_cast<int>(step / 2 % 3), home));
        {
            const auto store = open(home);
            ASSERT_NE(store, nullptr);
            expect_hits(*store, numbers);
            store->close(kNever);
        }
        disk_.clear(home);
    }
}

TEST_F(EcCrash, AtEveryStepOfARepairLosesNothing) {
    const std::vector<std::uint64_t> numbers = range(0, 9);
    {
        const auto store = open();
        ASSERT_NE(store, nullptr);
        put_blocks(*store, numbers);
        store->close(kNever);
    }
    disk_.clear(device(1));
    disk_.lose_power();
    std::int64_t crashes = 0;
    for (std::int64_t step = 0; !HasFailure(); step += 3) {
        SCOPED_TRACE(fmt::format("seed {}, crash after operation {}", kSeed, step));
        const std::string home = fmt::format("/trial{}", step);
        disk_.copy_all(kHome, home);
        disk_.crash_after(step);
        {
            auto store = EcStore::open(options(home));
            if (store.ok()) {
                (void)settle(**store);
                (*store)->close(kNever);
            }
        }
        const bool through = !disk_.crashed();
        disk_.lose_power();
        const auto store = open(home);
        ASSERT_NE(store, nullptr);
        expect_hits(*store, numbers);
        ASSERT_TRUE(settle(*store).ok());
        EXPECT_EQ(store->usage().lost_blocks, 0);
        expect_hits(*store, numbers);
        store->close(kNever);
        disk_.clear(home);
        ++crashes;
        if (through) break;
    }
    EXPECT_GT(crashes, 20);
}

TEST_F(EcCrash, IsNotOpenedTwiceNorInPartsNorWithAnotherShape) {
    auto store = open();
    ASSERT_NE(store, nullptr);
    const auto second = EcStore::open(options());
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), StatusCode::unavailable);
    put_blocks(*store, {1});
    store->close(kNever);
    store.reset();
    EmbeddedOptions alone;
    alone.directory = device(1);
    alone.payload_bytes = kPayload;
    alone.capacity_bytes = std::int64_t{1} << 30;
    alone.files = disk_.layer(96);
    alone.clock = &clock_;
    const auto one = EmbeddedStore::open(std::move(alone));
    ASSERT_FALSE(one.ok());
    EXPECT_EQ(one.status().code(), StatusCode::invalid_argument);
    devices_ = 4;
    const auto other = EcStore::open(options());
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.status().code(), StatusCode::invalid_argument);
    devices_ = 3;
    // In another order they are the same devices.
    EcOptions turned = options();
    std::rotate(turned.directories.begin(), turned.directories.begin() + 1,
                turned.directories.end());
    auto again = EcStore::open(std::move(turned));
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    expect_hits(**again, {1});
    (*again)->close(kNever);
}

TEST_F(EcCrash, ServesFromRealFilesWithADirectoryGone) {
    const TemporaryFolder folder;
    const auto real = [&] {
        EcOptions options;
        options.directories = ec_directories(folder.path(), 3);
        options.shape = {2, 1};
        options.payload_bytes = kPayload;
        options.capacity_bytes = std::int64_t{2} << 30;
        return options;
    };
    const std::vector<std::uint64_t> numbers = range(0, 9);
    {
        auto store = EcStore::open(real());
        ASSERT_TRUE(store.ok()) << store.status().to_string();
        put_blocks(**store, numbers);
        (*store)->close({real_clock().now_us() + 60'000'000});
    }
    std::filesystem::remove_all(folder.path() + "/d1");
    {
        auto store = EcStore::open(real());
        ASSERT_TRUE(store.ok()) << store.status().to_string();
        EXPECT_EQ((*store)->health().state, StoreHealth::State::degraded);
        EXPECT_NE((*store)->health().reason.find("/d1"), std::string::npos);
        EXPECT_FALSE(std::filesystem::exists(folder.path() + "/d1"));
        expect_hits(**store, numbers);
        (*store)->close({real_clock().now_us() + 60'000'000});
    }
    std::filesystem::create_directory(folder.path() + "/d1");
    auto store = EcStore::open(real());
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    ASSERT_TRUE(settle(**store).ok());
    EXPECT_EQ((*store)->usage().repairs_left, 0);
    EXPECT_EQ((*store)->usage().lost_blocks, 0);
    expect_hits(**store, numbers);
    (*store)->close({real_clock().now_us() + 60'000'000});
}

}  // namespace
}  // namespace fathom
