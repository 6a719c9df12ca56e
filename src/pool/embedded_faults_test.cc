// The embedded store on a disk that lies, fails and crashes (kvpool.md 15.3).
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pool/embedded_store.h"
#include "pool/pool_files.h"
#include "pool/segment.h"
#include "pool/slot_buffers.h"
#include "pool/testing/memory_file_layer.h"
#include "pool/testing/store_calls.h"

namespace fathom {
namespace {

using namespace fathom::testing;

constexpr std::int64_t kPayload = 113'920;
constexpr std::int64_t kHourUs = 3'600'000'000;

// Both clocks by hand, and apart.
class TwoClocks : public Clock {
  public:
    std::int64_t now_us() const override { return now_us_.load(); }
    std::int64_t wall_unix_ms() const override { return now_us_.load() / 1000 + offset_ms_.load(); }
    void advance_us(std::int64_t us) { now_us_.fetch_add(us); }
    void set_wall_ms_apart(std::int64_t ms) { offset_ms_.fetch_add(ms); }

  private:
    std::atomic<std::int64_t> now_us_{1'750'000'000'000'000}, offset_ms_{0};
};

class EmbeddedFaults : public ::testing::Test {
  protected:
    explicit EmbeddedFaults(std::uint64_t seed = 20'261'130) : disk_(seed), seed_(seed) {}

    EmbeddedOptions options() { return options(disk_); }
    EmbeddedOptions options(MemoryDisk& disk) {
        EmbeddedOptions options;
        options.directory = "/pool";
        options.payload_bytes = kPayload;
        options.capacity_bytes = 40 * kSegmentBytes;
        options.io_depth = 8;
        options.sync_every_put = true;
        options.scrub_bytes_per_s = 0;
        options.clock = &clock_;
        options.metrics = &metrics_;
        options.files = disk.layer(64);
        return options;
    }
    std::unique_ptr<EmbeddedStore> open(EmbeddedOptions with) {
        auto store = EmbeddedStore::open(std::move(with));
        if (!store.ok()) {
            ADD_FAILURE() << store.status().to_string();
            return nullptr;
        }
        return std::move(*store);
    }
    std::unique_ptr<EmbeddedStore> open() { return open(options()); }

    static Status collect(EmbeddedStore& store) {
        std::promise<Status> done;
        (void)store.collect(kNever, [&](Status status) { done.set_value(std::move(status)); });
        return done.get_future().get();
    }
    static ScrubReport scrub(EmbeddedStore& store) {
        std::promise<ScrubReport> done;
        (void)store.scrub(
            kNever, [&](const ScrubReport& report, const Status&) { done.set_value(report); });
        return done.get_future().get();
    }
    static PoolUsage usage(EmbeddedStore& store) {
        std::promise<PoolUsage> done;
        (void)store.usage(kNever,
                          [&](const PoolUsage& usage, const Status&) { done.set_value(usage); });
        return done.get_future().get();
    }
    std::vector<std::string> segment_files() const {
        std::vector<std::string> paths;
        for (const std::string& path : disk_.files())
            if (path.ends_with(".seg") && path.starts_with("/pool/seg/")) paths.push_back(path);
        return paths;
    }
    static std::vector<std::uint64_t> range(std::uint64_t begin, std::uint64_t n) {
        std::vector<std::uint64_t> numbers(n);
        std::iota(numbers.begin(), numbers.end(), begin);
        return numbers;
    }

    MemoryDisk disk_;
    const std::uint64_t seed_;
    TwoClocks clock_;
    MetricsRegistry metrics_;
};

// What a script was told.
struct Told {
    std::set<std::uint64_t> stored, failed;
    std::set<std::uint64_t> dropped;
    void put(const std::vector<std::uint64_t>& numbers, const PutResult& result) {
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const PutOutcome outcome = result.blocks[i];
            if (outcome == PutOutcome::stored || outcome == PutOutcome::renewed)
                stored.insert(numbers[i]);
            else if (outcome == PutOutcome::failed && !stored.contains(numbers[i]))
                failed.insert(numbers[i]);
        }
    }
};

// Puts, seals by a new bucket and by closing, expiry, a drop, another life: every step of a
// segment's life. Numbers below 100 live for days, of namespace 1; ephemeral ones are from 100 on;
// from 200 on they are of namespace 2, which is dropped.
class EmbeddedCrash : public EmbeddedFaults {
  protected:
    void run(MemoryDisk& disk, Told& told) {
        const auto put = [&](EmbeddedStore& to, std::uint64_t begin, std::uint64_t n,
                             TrafficClass traffic_class, std::uint8_t ns) {
            const std::vector<std::uint64_t> numbers = range(begin, n);
            told.put(numbers, put_blocks(to, numbers, {.traffic_class = traffic_class}, ns));
        };
        auto opened = EmbeddedStore::open(options(disk));
        if (!opened.ok()) return;
        std::unique_ptr<EmbeddedStore> store = std::move(*opened);
        put(*store, 0, 6, TrafficClass::agent, 1);
        put(*store, 100, 3, TrafficClass::ephemeral, 1);
        put(*store, 200, 3, TrafficClass::agent, 2);
        clock_.advance_us(2 * kHourUs);
        put(*store, 10, 3, TrafficClass::agent, 1);
        (void)collect(*store);
        if (drop_namespace(*store, 2).ok()) told.dropped = {200, 201, 202};
        store->close(kNever);
        store.reset();
        opened = EmbeddedStore::open(options(disk));
        if (!opened.ok()) return;
        put(**opened, 20, 2, TrafficClass::agent, 1);
        (*opened)->close(kNever);
    }
};

TEST_F(EmbeddedCrash, AtEveryStepLosesNothingSyncedAndInventsNothing) {
    Told dry;
    run(disk_, dry);
    ASSERT_EQ(dry.stored.size(), 17U);
    ASSERT_EQ(dry.dropped.size(), 3U);
    const std::int64_t steps = disk_.operations();
    ASSERT_GT(steps, 80);
    std::int64_t wrong = 0;
    for (std::int64_t step = 0; step < steps && !HasFailure(); ++step) {
        SCOPED_TRACE(fmt::format("seed {}, crash after operation {}", seed_, step));
        MemoryDisk disk(seed_ + static_cast<std::uint64_t>(step));
        disk.crash_after(step);
        Told told;
        run(disk, told);
        disk.lose_power();
        const auto store = open(options(disk));
        ASSERT_NE(store, nullptr);
        for (const std::uint64_t number : told.stored) {
            if (number >= 100) continue;
            const GotBlocks got = get_blocks(*store, {number});
            EXPECT_EQ(get_status_name(got.result.blocks[0]), "hit") << "block " << number;
            wrong += got.wrong;
        }
        for (const std::uint64_t number : told.dropped)
            EXPECT_EQ(get_block(*store, number, 2), GetStatus::miss) << "dropped " << number;
        EXPECT_EQ(put_block(*store, 50), PutOutcome::stored);
        EXPECT_EQ(get_block(*store, 50), GetStatus::hit);
    }
    EXPECT_EQ(wrong, 0);
}

// Whatever the disk does to reads and writes: a checked block or a miss, and every call ends.
TEST_F(EmbeddedFaults, ADiskThatLiesGivesNoWrongBytes) {
    std::int64_t hits = 0, wrong = 0, reads = 0, faults = 0;
    for (std::uint64_t round = 0; round < 3; ++round) {
        SCOPED_TRACE(fmt::format("seed {}", seed_ + round));
        MemoryDisk disk(seed_ + round);
        for (int life = 0; life < 3; ++life) {
            disk.set_faults({});
            EmbeddedOptions with = options(disk);
            with.sync_every_put = life == 1;
            const auto store = open(std::move(with));
            ASSERT_NE(store, nullptr);
            disk.set_faults({.read_flip = 0.02,
                             .read_misdirected = 0.02,
                             .read_stale = 0.02,
                             .read_short = 0.02,
                             .read_error = 0.01,
                             .write_flip = 0.02,
                             .write_torn = 0.02,
                             .write_short = 0.02,
                             .write_lost = 0.02,
                             .write_misdirected = 0.02,
                             .write_error = 0.02,
                             .no_space = 0.01,
                             .again = 0.02,
                             .sync_error = 0.01});
            for (std::uint64_t batch = 0; batch < 6; ++batch) {
                (void)put_blocks(*store, range(batch * 10, 20));
                const GotBlocks got = get_blocks(*store, range(0, 60), batch % 2 == 0);
                reads += 60;
                wrong += got.wrong;
                for (const GetStatus status : got.result.blocks)
                    hits += status == GetStatus::hit ? 1 : 0;
            }
            (void)scrub(*store);
            store->close(kNever);
        }
        faults += disk.faults_done();
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(hits, reads / 3);
    EXPECT_GT(faults, 200);
}

TEST_F(EmbeddedFaults, AFailedPutStaysAbsentAfterACrash) {
    {
        const auto store = open();
        ASSERT_EQ(put_block(*store, 1), PutOutcome::stored);
        disk_.set_faults({.write_error = 1});
        EXPECT_EQ(put_block(*store, 2), PutOutcome::failed);
        EXPECT_EQ(get_block(*store, 2), GetStatus::miss);
        disk_.set_faults({});
        EXPECT_EQ(put_block(*store, 3), PutOutcome::stored);
        disk_.crash_after(0);
    }
    disk_.crash_after(-1);
    disk_.lose_power();
    const auto store = open();
    EXPECT_EQ(get_block(*store, 1), GetStatus::hit);
    EXPECT_NE(get_block(*store, 2), GetStatus::hit);
    EXPECT_EQ(get_block(*store, 3), GetStatus::hit);
}

TEST_F(EmbeddedFaults, AFullDiskRefusesPutsAndKeepsWhatThereIs) {
    const auto store = open();
    ASSERT_EQ(put_block(*store, 1), PutOutcome::stored);
    disk_.set_capacity(kSegmentBytes);
    EXPECT_EQ(put_block(*store, 2, {.traffic_class = TrafficClass::chatbot}), PutOutcome::full);
    EXPECT_EQ(put_block(*store, 3), PutOutcome::stored);  // there is room in the open segment
    EXPECT_EQ(get_block(*store, 1), GetStatus::hit);
    disk_.set_capacity(std::int64_t{1} << 40);
    EXPECT_EQ(put_block(*store, 2, {.traffic_class = TrafficClass::chatbot}), PutOutcome::stored);
}

TEST_F(EmbeddedFaults, AFileIsRemovedOnlyWhenNoReadIsInIt) {
    const auto store = open();
    ASSERT_EQ(put_block(*store, 1, {.traffic_class = TrafficClass::ephemeral}), PutOutcome::stored);
    clock_.advance_us(kHourUs / 2);
    ASSERT_EQ(put_block(*store, 2, {.traffic_class = TrafficClass::agent}), PutOutcome::stored);
    disk_.hold_reads(true);
    AlignedPage page(kPayload);
    std::promise<GetResult> got;
    std::promise<void> released;
    (void)store->get({{.name = block_name(1), .destination = {page.data(), true}}}, kNever,
                     {.done = [&](GetResult result) { got.set_value(std::move(result)); },
                      .released = [&] { released.set_value(); }});
    while (disk_.held_reads() == 0)
        std::this_thread::yield();
    const std::size_t files = segment_files().size();
    clock_.advance_us(kHourUs);
    std::promise<Status> collected;
    (void)store->collect(kNever, [&](Status status) { collected.set_value(std::move(status)); });
    EXPECT_EQ(blocks_exist(*store, {1}), std::vector<bool>{false});
    EXPECT_EQ(segment_files().size(), files);
    disk_.hold_reads(false);
    EXPECT_EQ(got.get_future().get().blocks[0], GetStatus::hit);
    released.get_future().wait();
    EXPECT_EQ(std::memcmp(page.data(), block_bytes(1, kPayload).data(), kPayload), 0);
    EXPECT_TRUE(collected.get_future().get().ok());
    EXPECT_LT(segment_files().size(), files);
}

TEST_F(EmbeddedFaults, APageIsNotReleasedBeforeALateReadHasEnded) {
    const auto store = open();
    ASSERT_EQ(put_block(*store, 1), PutOutcome::stored);
    disk_.hold_reads(true);
    AlignedPage page(kPayload);
    std::promise<GetResult> got;
    std::promise<void> released;
    std::future<void> is_released = released.get_future();
    (void)store->get({{.name = block_name(1), .destination = {page.data(), true}}},
                     {clock_.now_us() + 1'000'000},
                     {.done = [&](GetResult result) { got.set_value(std::move(result)); },
                      .released = [&] { released.set_value(); }});
    while (disk_.held_reads() == 0)
        std::this_thread::yield();
    clock_.advance_us(2'000'000);
    EXPECT_EQ(got.get_future().get().blocks[0], GetStatus::timeout);
    EXPECT_EQ(blocks_exist(*store, {1}), std::vector<bool>{true});  // a turn of the loop later
    EXPECT_EQ(is_released.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    disk_.hold_reads(false);
    is_released.wait();
}

TEST_F(EmbeddedFaults, ExpiredSegmentsGoAndTheirSpaceWithThem) {
    const auto store = open();
    for (std::uint64_t hour = 0; hour < 6; ++hour) {
        put_blocks(*store, range(hour * 10, 3), {.traffic_class = TrafficClass::ephemeral});
        clock_.advance_us(kHourUs);
    }
    clock_.advance_us(kHourUs);
    EXPECT_TRUE(collect(*store).ok());
    const PoolUsage left = usage(*store);
    EXPECT_EQ(left.blocks, 0);
    EXPECT_EQ(left.allocated_bytes, 0);
    EXPECT_TRUE(segment_files().empty());
}

TEST_F(EmbeddedFaults, AboveTheHighWatermarkTheEarliestExpiryGoesFirst) {
    EmbeddedOptions with = options();
    with.capacity_bytes = 8 * kSegmentBytes;
    with.high_watermark = 0.3;
    with.low_watermark = 0.25;
    with.sync_every_put = false;
    const auto store = open(std::move(with));
    // Segments of short and long life in turns; sealed ones take a fifth of an open one's room.
    std::uint64_t number = 0;
    std::int64_t stored = 0;
    for (int i = 0; i < 9; ++i) {
        const bool brief = i % 2 == 0;
        const PutResult result =
            put_blocks(*store, range(number, 120),
                       {.traffic_class = brief ? TrafficClass::agent : TrafficClass::chatbot});
        for (const PutOutcome outcome : result.blocks)
            stored += outcome == PutOutcome::stored ? 1 : 0;
        number += 1'000;
        clock_.advance_us(7 * kHourUs);
        EXPECT_TRUE(collect(*store).ok());
    }
    const PoolUsage left = usage(*store);
    EXPECT_LE(left.allocated_bytes, 8 * kSegmentBytes * 3 / 10);
    EXPECT_EQ(stored, 9 * 120);
    EXPECT_EQ(get_block(*store, 0), GetStatus::miss);     // the first of three days
    EXPECT_EQ(get_block(*store, 1'000), GetStatus::hit);  // of seven
    EXPECT_EQ(get_block(*store, 8'000), GetStatus::hit);  // the last
}

TEST_F(EmbeddedFaults, AJumpOfTheWallClockDeletesNothing) {
    constexpr std::int64_t kEightDaysMs = 8LL * 24 * 3'600'000;
    const auto store = open();
    ASSERT_EQ(put_block(*store, 1), PutOutcome::stored);
    clock_.advance_us(2 * kHourUs);
    EXPECT_TRUE(collect(*store).ok());  // sealed
    clock_.set_wall_ms_apart(kEightDaysMs);
    EXPECT_EQ(get_block(*store, 1), GetStatus::miss);
    EXPECT_TRUE(collect(*store).ok());
    clock_.set_wall_ms_apart(-kEightDaysMs);
    EXPECT_EQ(get_block(*store, 1), GetStatus::hit);
    clock_.set_wall_ms_apart(-kEightDaysMs);  // its bucket is in the future
    EXPECT_EQ(get_block(*store, 1), GetStatus::miss);
    EXPECT_TRUE(collect(*store).ok());
    clock_.set_wall_ms_apart(kEightDaysMs);
    EXPECT_EQ(get_block(*store, 1), GetStatus::hit);
}

TEST_F(EmbeddedFaults, AFlippedBitIsAMissAndForgotten) {
    const auto store = open();
    put_blocks(*store, range(0, 4));
    const std::string path = segment_files().at(0);
    const SlotGeometry geometry = *slot_geometry(kPayload);
    disk_.flip(path, (geometry.slot_offset(0) + 5'000) * 8);
    std::int64_t corrupt = 0;
    for (std::uint64_t number = 0; number < 4; ++number)
        corrupt += get_block(*store, number) == GetStatus::corrupt ? 1 : 0;
    EXPECT_EQ(corrupt, 1);
    const std::vector<bool> present = blocks_exist(*store, range(0, 4));
    EXPECT_EQ(std::count(present.begin(), present.end(), true), 3);
}

TEST_F(EmbeddedFaults, AScrubFindsWhatWasDamagedAtRest) {
    const SlotGeometry geometry = *slot_geometry(kPayload);
    {
        const auto store = open();
        put_blocks(*store, range(0, 10));
    }
    const std::string path = segment_files().at(0);
    disk_.flip(path, geometry.slot_offset(3) * 8);
    disk_.flip(path, (geometry.slot_offset(5) + kPayload + 20) * 8);
    const auto store = open();
    const ScrubReport report = scrub(*store);
    EXPECT_EQ(report.blocks, 10);
    EXPECT_EQ(report.bad_blocks, 2);
    EXPECT_EQ(usage(*store).blocks, 8);
    EXPECT_EQ(get_blocks(*store, range(0, 10)).wrong, 0);
}

TEST_F(EmbeddedFaults, ADamagedFooterIsRebuiltFromTheSlots) {
    {
        const auto store = open();
        put_blocks(*store, range(0, 10));
    }
    disk_.flip(segment_files().at(0), (kPoolPageBytes + 100) * 8);
    const auto store = open();
    EXPECT_EQ(get_blocks(*store, range(0, 10)).result.leading_hits, 10U);
}

TEST_F(EmbeddedFaults, ForeignAndDamagedFilesGoToLost) {
    {
        const auto store = open();
        put_blocks(*store, range(0, 10));
    }
    const std::string path = segment_files().at(0);
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    disk_.copy(path, folder + "00000000000000aa.seg");  // a copy under another name
    disk_.copy(path, folder + "notes.txt");
    disk_.copy(path, folder + "00000000000000ab.seg");
    disk_.flip(folder + "00000000000000ab.seg", 8 * 100);
    disk_.copy(path, folder + "00000000000000ac.seg");
    disk_.truncate(folder + "00000000000000ac.seg", 0);  // never begun
    const auto store = open();
    EXPECT_EQ(usage(*store).lost_files, 3);
    EXPECT_EQ(segment_files(), std::vector<std::string>{path});
    EXPECT_EQ(get_blocks(*store, range(0, 10)).result.leading_hits, 10U);
}

TEST_F(EmbeddedFaults, FilesThatVanishOrShrinkAreMisses) {
    const auto store = open();
    put_blocks(*store, range(0, 4));
    disk_.truncate(segment_files().at(0), 200'000);
    const GotBlocks got = get_blocks(*store, range(0, 4));
    EXPECT_EQ(got.wrong, 0);
    EXPECT_LE(got.result.leading_hits, 1U);
    EXPECT_EQ(put_block(*store, 9), PutOutcome::stored);
    EXPECT_EQ(get_block(*store, 9), GetStatus::hit);
}

TEST_F(EmbeddedFaults, WithoutPoolFileSegmentsAreNotTouched) {
    {
        const auto store = open();
        put_blocks(*store, range(0, 4));
    }
    const std::vector<std::string> before = segment_files();
    disk_.flip("/pool/POOL", 100);
    {
        const auto store = open();  // one copy is enough
        EXPECT_EQ(get_block(*store, 1), GetStatus::hit);
    }
    disk_.flip("/pool/POOL", 100);
    disk_.flip("/pool/POOL", 4096 * 8 + 100);
    const auto refused = EmbeddedStore::open(options());
    EXPECT_EQ(refused.status().code(), StatusCode::data_loss);
    EXPECT_EQ(segment_files(), before);
}

// Each copy is read back and written again: without that a disk that loses, tears or changes half
// of the writes would leave one copy, or none, in most runs.
TEST_F(EmbeddedFaults, BothCopiesOfThePoolFileAreWholeAfterOpening) {
    const std::vector<DiskFaults> lies = {
        {.write_lost = 0.5}, {.write_torn = 0.5}, {.write_flip = 0.5}, {.write_short = 0.5}};
    for (std::size_t kind = 0; kind < lies.size(); ++kind) {
        int opened = 0, repaired = 0;
        for (std::uint64_t i = 0; i < 16; ++i) {
            SCOPED_TRACE(fmt::format("lie {}, seed {}", kind, seed_ + i));
            MemoryDisk disk(seed_ + i);
            disk.set_faults(lies[kind]);
            const auto store = EmbeddedStore::open(options(disk));
            if (!store.ok()) {  // four lies about one copy
                EXPECT_EQ(store.status().code(), StatusCode::unavailable);
                EXPECT_NE(store.status().message().find("/pool/POOL: cannot be written"),
                          std::string::npos)
                    << store.status().message();
                continue;
            }
            ++opened;
            repaired += disk.faults_done() > 0 ? 1 : 0;
            disk.set_faults({});
            PoolReader reader(disk.layer(1));
            const auto file = reader.files().open("/pool/POOL", OpenMode::reading);
            ASSERT_TRUE(file.ok());
            for (const std::int64_t at : {std::int64_t{0}, kPoolPageBytes}) {
                const auto page = aligned_bytes(kPoolPageBytes);
                EXPECT_EQ(
                    reader.perform(
                        {.file = *file, .offset = at, .bytes = kPoolPageBytes, .data = page.get()}),
                    kPoolPageBytes);
                const auto copy =
                    read_pool_file({page.get(), static_cast<std::size_t>(kPoolPageBytes)});
                ASSERT_TRUE(copy.ok()) << at;
                EXPECT_EQ(copy->epoch, 1u);
            }
            reader.files().close(*file);
        }
        EXPECT_GT(opened, 8) << kind;
        EXPECT_GT(repaired, 4) << kind;
    }
}

TEST_F(EmbeddedFaults, HealthComesBackAMinuteAfterTheLastFault) {
    const auto store = open();
    const auto state = [&] {
        (void)usage(*store);  // a turn of its loop
        (void)usage(*store);
        return store->health().state;
    };
    disk_.set_faults({.sync_error = 1});
    EXPECT_EQ(put_block(*store, 1), PutOutcome::failed);
    EXPECT_EQ(state(), StoreHealth::State::degraded);
    clock_.advance_us(59'000'000);
    EXPECT_EQ(put_block(*store, 2), PutOutcome::failed);
    clock_.advance_us(59'000'000);
    EXPECT_EQ(state(), StoreHealth::State::degraded);
    disk_.set_faults({});
    EXPECT_EQ(put_block(*store, 2), PutOutcome::stored);
    clock_.advance_us(61'000'000);
    EXPECT_EQ(state(), StoreHealth::State::ok);
    EXPECT_TRUE(store->health().reason.empty());
}

TEST_F(EmbeddedFaults, OptionsOutOfRangeAreRefused) {
    EmbeddedOptions with = options();
    with.capacity_bytes = kSegmentBytes;
    EXPECT_EQ(EmbeddedStore::open(std::move(with)).status().code(), StatusCode::invalid_argument);
    with = options();
    with.io_depth = 0;
    EXPECT_FALSE(EmbeddedStore::open(std::move(with)).ok());
    with = options();
    with.high_watermark = 0.5;
    EXPECT_FALSE(EmbeddedStore::open(std::move(with)).ok());
    with = options();
    with.payload_bytes = 200'000;
    EXPECT_FALSE(EmbeddedStore::open(std::move(with)).ok());
}

}  // namespace
}  // namespace fathom
