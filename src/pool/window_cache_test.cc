#include "pool/window_cache.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "pool/testing/content_oracle.h"

namespace fathom {
namespace {

using testing::oracle_name;
using testing::oracle_payload;

constexpr std::int64_t kEntryBytes = 10'000;
constexpr std::int64_t kCellBytes = 12'288;
constexpr std::int64_t kHeadBytes = 8'192;  // slab header and directory

class WindowCacheTest : public ::testing::Test {
  protected:
    void open(std::int64_t cells) {
        clock_.advance_us(1'000'000);
        cache_ = std::move(*WindowCache::create(
            {.entry_bytes = kEntryBytes, .budget_bytes = kHeadBytes + cells * (kCellBytes + 8)},
            clock_));
        ASSERT_EQ(cache_->cells(), cells);
    }
    static BlockKey key(std::uint32_t number) {
        return window_key(oracle_name(1, number).key, "layout");
    }
    static std::vector<std::uint8_t> entry(std::uint32_t number) {
        return oracle_payload(key(number), 1, kEntryBytes);
    }
    void put(std::uint32_t number) { cache_->put(key(number), entry(number)); }
    bool has(std::uint32_t number) {
        std::vector<std::uint8_t> found(kEntryBytes);
        if (!cache_->get(key(number), found)) return false;
        EXPECT_EQ(found, entry(number));
        return true;
    }
    // The memory file as another process would map it.
    std::span<std::uint8_t> mapped() {
        const auto bytes = static_cast<std::size_t>(kHeadBytes + cache_->cells() * kCellBytes);
        if (mapped_ == nullptr) {
            mapped_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, cache_->fd(), 0);
            mapped_bytes_ = bytes;
        }
        EXPECT_NE(mapped_, MAP_FAILED);
        return {static_cast<std::uint8_t*>(mapped_), bytes};
    }
    void TearDown() override {
        cache_.reset();
        if (mapped_ == nullptr) return;
        const std::span<std::uint8_t> all(static_cast<std::uint8_t*>(mapped_), mapped_bytes_);
        for (std::size_t at = kHeadBytes; at < all.size(); at += kCellBytes)  // behind the versions
            EXPECT_TRUE(std::all_of(all.begin() + static_cast<std::ptrdiff_t>(at) + 8,
                                    all.begin() + static_cast<std::ptrdiff_t>(at) + kCellBytes,
                                    [](std::uint8_t byte) { return byte == 0; }))
                << "not zeroed at the end";
        ::munmap(mapped_, mapped_bytes_);
    }

    ManualClock clock_;
    std::unique_ptr<WindowCache> cache_;
    void* mapped_ = nullptr;
    std::size_t mapped_bytes_ = 0;
};

TEST_F(WindowCacheTest, GivesBackWhatWasPut) {
    open(8);
    EXPECT_FALSE(has(1));
    for (std::uint32_t number = 1; number <= 8; ++number)
        put(number);
    for (std::uint32_t number = 1; number <= 8; ++number)
        EXPECT_TRUE(has(number));
    EXPECT_EQ(cache_->counters().hits.value(), 8u);
    EXPECT_EQ(cache_->counters().misses.value(), 1u);
}

TEST_F(WindowCacheTest, BoundariesLayoutsAndBlocksHaveDifferentNames) {
    const BlockKey block = oracle_name(1, 1).key;
    EXPECT_FALSE(window_key(block, "a") == window_key(block, "b"));
    EXPECT_FALSE(window_key(block, "a") == window_key(oracle_name(1, 2).key, "a"));
    EXPECT_FALSE(window_key(block, "") == block);
}

TEST_F(WindowCacheTest, AnEntryLivesFromItsLastUse) {
    open(4);
    put(1);
    put(2);
    clock_.advance_us(kWindowLifeUs - 1);
    EXPECT_TRUE(has(1));
    clock_.advance_us(1);
    EXPECT_TRUE(has(1));
    EXPECT_FALSE(has(2));
    cache_->expire();
    EXPECT_EQ(cache_->entries(), 1);
    EXPECT_EQ(cache_->counters().expired.value(), 1u);
    put(2);
    EXPECT_TRUE(has(2));
}

TEST_F(WindowCacheTest, TheFirstEntryOfABoundaryStaysUntilItIsOver) {
    open(4);
    put(1);
    const std::vector<std::uint8_t> other(kEntryBytes, 7);
    cache_->put(key(1), other);
    EXPECT_TRUE(has(1));
    clock_.advance_us(kWindowLifeUs);
    cache_->put(key(1), other);
    std::vector<std::uint8_t> found(kEntryBytes);
    EXPECT_TRUE(cache_->get(key(1), found));
    EXPECT_EQ(found, other);
}

TEST_F(WindowCacheTest, KeepsWhatIsUsedWhenCellsAreShort) {
    open(4);
    for (std::uint32_t number = 1; number <= 100; ++number) {
        put(number);
        if (number > 1) {
            EXPECT_TRUE(has(1)) << number;  // used all the time
        }
        EXPECT_LE(cache_->entries(), 4);
    }
    EXPECT_TRUE(has(100));
    EXPECT_FALSE(has(50));
    EXPECT_EQ(cache_->counters().evicted.value(), 96u);
}

TEST_F(WindowCacheTest, ReleasedMemoryIsZero) {
    open(2);
    put(1);
    put(2);
    const std::vector<std::uint8_t> secret = entry(1);
    const auto found = [&] {
        const std::span<std::uint8_t> all = mapped();
        return std::search(all.begin(), all.end(), secret.begin() + 100, secret.begin() + 164) !=
               all.end();
    };
    EXPECT_TRUE(found());
    clock_.advance_us(kWindowLifeUs);
    cache_->expire();
    EXPECT_FALSE(found());
    put(3);
}

TEST_F(WindowCacheTest, ACellSaysAllAboutItselfToAnotherProcess) {
    open(2);
    put(1);
    WindowCell cell;
    std::memcpy(&cell, mapped().data() + kHeadBytes, sizeof cell);
    EXPECT_EQ(cell.version, 2u);
    EXPECT_EQ(cell.bytes, static_cast<std::uint64_t>(kEntryBytes));
    EXPECT_EQ(cell.key, key(1).bytes);
    EXPECT_EQ(std::memcmp(mapped().data() + kHeadBytes + sizeof cell, entry(1).data(), kEntryBytes),
              0);
}

TEST_F(WindowCacheTest, DamagedMemoryIsAMiss) {
    open(2);
    put(1);
    mapped()[kHeadBytes + sizeof(WindowCell) + 5000] ^= 1;
    EXPECT_FALSE(has(1));
    EXPECT_EQ(cache_->counters().corrupt.value(), 1u);
    EXPECT_EQ(cache_->entries(), 0);
    put(1);
    EXPECT_TRUE(has(1));
}

TEST_F(WindowCacheTest, RefusesSizesThatHoldNothing) {
    const auto code = [&](std::int64_t entry_bytes, std::int64_t budget_bytes) {
        return WindowCache::create({.entry_bytes = entry_bytes, .budget_bytes = budget_bytes},
                                   clock_)
            .status()
            .code();
    };
    EXPECT_EQ(code(0, 1 << 20), StatusCode::invalid_argument);
    EXPECT_EQ(code(kEntryBytes, kHeadBytes + kCellBytes - 1), StatusCode::invalid_argument);
    EXPECT_EQ(code(kEntryBytes, -1), StatusCode::invalid_argument);
    EXPECT_EQ(code(std::int64_t{1} << 40, std::int64_t{1} << 62), StatusCode::invalid_argument);
    EXPECT_EQ(code(kEntryBytes, std::int64_t{1} << 62), StatusCode::invalid_argument);
    EXPECT_EQ(code(std::int64_t{1} << 32, std::int64_t{1} << 52), StatusCode::resource_exhausted);
}

class WindowReaderTest : public WindowCacheTest {
  protected:
    std::string path() const { return fmt::format("/proc/self/fd/{}", cache_->fd()); }
    static bool reads(const WindowReader& reader, std::uint32_t number) {
        std::vector<std::uint8_t> found(kEntryBytes);
        if (!reader.get(key(number), found, kWindowLifeUs)) return false;
        EXPECT_EQ(found, entry(number));
        return true;
    }
};

TEST_F(WindowReaderTest, ReadsWhatTheOwnerKeepsAsLongAsItDoes) {
    open(2);
    put(1);
    const auto reader = std::move(*WindowReader::open(path(), kEntryBytes, clock_));
    EXPECT_TRUE(reads(*reader, 1));
    EXPECT_FALSE(reads(*reader, 2));
    put(2);
    EXPECT_TRUE(reads(*reader, 2));
    put(3);  // in the place of another
    EXPECT_TRUE(reads(*reader, 3));
    EXPECT_EQ(reads(*reader, 1) + reads(*reader, 2), 1);
    clock_.advance_us(kWindowLifeUs);
    EXPECT_FALSE(reads(*reader, 3));
    cache_->expire();
    put(4);
    EXPECT_TRUE(reads(*reader, 4));
}

TEST_F(WindowReaderTest, DamagedAndHalfWrittenEntriesAreMisses) {
    open(2);
    put(1);
    const auto reader = std::move(*WindowReader::open(path(), kEntryBytes, clock_));
    mapped()[kHeadBytes] ^= 1;  // the version: being written
    EXPECT_FALSE(reads(*reader, 1));
    mapped()[kHeadBytes] ^= 1;
    EXPECT_TRUE(reads(*reader, 1));
    mapped()[kHeadBytes + sizeof(WindowCell) + 77] ^= 4;
    EXPECT_FALSE(reads(*reader, 1));
    mapped()[kHeadBytes + sizeof(WindowCell) + 77] ^= 4;
    EXPECT_TRUE(reads(*reader, 1));
}

TEST_F(WindowReaderTest, OpensNothingElse) {
    open(2);
    EXPECT_EQ(WindowReader::open(path(), kEntryBytes + 1, clock_).status().code(),
              StatusCode::invalid_argument);
    EXPECT_EQ(WindowReader::open("/proc/self/exe", kEntryBytes, clock_).status().code(),
              StatusCode::not_found);
    EXPECT_EQ(WindowReader::open("/nowhere", kEntryBytes, clock_).status().code(),
              StatusCode::not_found);
    mapped()[16 + 3] ^= 1;  // the size of cells
    EXPECT_FALSE(WindowReader::open(path(), kEntryBytes, clock_).ok());
}

// The released model's windows.
TEST_F(WindowCacheTest, HoldsEntriesOfTheReleasedModel) {
    constexpr std::int64_t kBytes = 1'415'040;
    const auto cache =
        std::move(*WindowCache::create({.entry_bytes = kBytes, .budget_bytes = 4 << 20}, clock_));
    EXPECT_EQ(cache->cells(), 2);
    const std::vector<std::uint8_t> in = oracle_payload(key(1), 1, kBytes);
    cache->put(key(1), in);
    std::vector<std::uint8_t> out(in.size());
    EXPECT_TRUE(cache->get(key(1), out));
    EXPECT_EQ(out, in);
}

}  // namespace
}  // namespace fathom
