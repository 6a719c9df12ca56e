#include "pool/window_share.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "pool/testing/content_oracle.h"
#include "pool/testing/embedded_rig.h"

namespace fathom {
namespace {

using testing::oracle_name;
using testing::oracle_payload;
using testing::TemporaryFolder;

constexpr std::int64_t kBytes = 20'000;

class WindowShareTest : public ::testing::Test {
  protected:
    WindowShareOptions options() const {
        return {.directory = folder_.path() + "/windows",
                .layout = "layout",
                .entry_bytes = kBytes,
                .budget_bytes = 1 << 20};
    }
    std::unique_ptr<WindowShare> open(const WindowShareOptions& with) {
        auto share = WindowShare::open(with, clock_, metrics_);
        EXPECT_TRUE(share.ok()) << share.status().to_string();
        return std::move(*share);
    }
    static BlockKey block(std::uint32_t number) { return oracle_name(1, number).key; }
    static std::vector<std::uint8_t> rows(std::uint32_t number) {
        return oracle_payload(block(number), 1, kBytes);
    }
    static bool has(WindowShare& share, std::uint32_t number) {
        std::vector<std::uint8_t> found = {1, 2, 3};
        if (!share.recall(block(number), found)) {
            EXPECT_EQ(found.size(), 3U);
            return false;
        }
        EXPECT_EQ(found, rows(number));
        return true;
    }
    void later() { clock_.advance_us(1'000'000); }

    TemporaryFolder folder_;
    ManualClock clock_;
    MetricsRegistry metrics_;
};

// A process of its own that keeps windows until it is killed.
class OtherProcess {
  public:
    explicit OtherProcess(const std::function<void()>& keeps) {
        std::array<int, 2> ready{};
        EXPECT_EQ(::pipe(ready.data()), 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            keeps();
            (void)!::write(ready[1], "1", 1);
            for (;;)
                ::pause();
        }
        char byte = 0;
        EXPECT_EQ(::read(ready[0], &byte, 1), 1);
        ::close(ready[0]);
        ::close(ready[1]);
    }
    ~OtherProcess() { kill(); }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

  private:
    pid_t pid_ = 0;
};

TEST_F(WindowShareTest, AProcessFindsWhatAnotherKeepsUntilThatIsGone) {
    clock_.advance_us(1'000'000);
    OtherProcess other([&] {
        WindowShare* share = open(options()).release();
        share->keep(block(1), rows(1));
    });
    const auto share = open(options());
    EXPECT_TRUE(has(*share, 1));
    EXPECT_FALSE(has(*share, 2));
    EXPECT_EQ(metrics_.counter("kvpool_swa_hit_total", "", {{"from", "other"}}).value(), 1U);
    EXPECT_EQ(metrics_.counter("kvpool_swa_miss_total", "").value(), 1U);
    other.kill();
    later();
    share->expire();
    EXPECT_FALSE(has(*share, 1));
    // Of the names only the living one's is left.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(options().directory), {}), 1);
}

TEST_F(WindowShareTest, WhatStandsInThePlaceOfItsDirectoryIsLeftAlone) {
    clock_.advance_us(1'000'000);
    const auto share = open(options());
    share->keep(block(1), rows(1));
    std::filesystem::remove_all(options().directory);
    later();
    share->expire();
    EXPECT_FALSE(std::filesystem::exists(options().directory));
    EXPECT_TRUE(has(*share, 1));
}

TEST_F(WindowShareTest, OnesThatComeLaterAreFoundToo) {
    clock_.advance_us(1'000'000);
    const auto first = open(options());
    OtherProcess other([&] {
        WindowShare* share = open(options()).release();
        share->keep(block(1), rows(1));
    });
    EXPECT_FALSE(has(*first, 1));
    later();
    first->expire();
    EXPECT_TRUE(has(*first, 1));
}

TEST_F(WindowShareTest, KeepsItsOwnForItsLife) {
    const auto share = open(options());
    share->keep(block(1), rows(1));
    share->keep(block(2), std::vector<std::uint8_t>(5));  // near the start: of another size
    EXPECT_TRUE(has(*share, 1));
    EXPECT_FALSE(has(*share, 2));
    clock_.advance_us(kWindowLifeUs);
    share->expire();
    EXPECT_FALSE(has(*share, 1));
}

TEST_F(WindowShareTest, LayoutsAndSizesAreKeptApart) {
    clock_.advance_us(1'000'000);
    const auto mine = open(options());
    mine->keep(block(1), rows(1));
    WindowShareOptions with = options();
    with.layout = "another";
    EXPECT_FALSE(has(*open(with), 1));
    with = options();
    with.entry_bytes = kBytes + 8;
    EXPECT_FALSE(has(*open(with), 1));
    EXPECT_TRUE(has(*open(options()), 1));
}

TEST_F(WindowShareTest, NamesThatMeanNothingAreLeftAlone) {
    std::filesystem::create_directory(options().directory);
    const std::array<std::string, 5> names = {"notes", "a-b-c", "00000000-1-2", "x-1", "--"};
    for (const std::string& name : names)
        std::ofstream(options().directory + "/" + name) << "x";
    const auto share = open(options());
    EXPECT_FALSE(has(*share, 1));
    for (const std::string& name : names)
        EXPECT_TRUE(std::filesystem::exists(options().directory + "/" + name)) << name;
}

TEST_F(WindowShareTest, ADirectoryThatCannotBeMadeIsSaid) {
    WindowShareOptions with = options();
    with.directory = folder_.path() + "/none/windows";
    const auto refused = WindowShare::open(with, clock_, metrics_);
    EXPECT_EQ(refused.status().code(), StatusCode::unavailable);
    with.directory.clear();
    EXPECT_TRUE(WindowShare::open(with, clock_, metrics_).ok());
}

}  // namespace
}  // namespace fathom
