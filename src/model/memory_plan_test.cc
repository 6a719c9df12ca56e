#include "model/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace fathom {
namespace {

using ::testing::HasSubstr;

// A machine made of files under a directory of its own.
class FakeMachine {
  public:
    FakeMachine()
        : root_(std::filesystem::temp_directory_path() /
                ("fathom_machine_" + std::to_string(::getpid()))) {
        std::filesystem::remove_all(root_);
        write("proc/meminfo", "MemTotal:  2000 kB\nMemFree: 1 kB\nMemAvailable:    1000 kB\n");
    }
    ~FakeMachine() { std::filesystem::remove_all(root_); }
    void write(const std::string& path, const std::string& text) const {
        std::filesystem::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }
    std::int64_t available() const { return available_memory_bytes(root_.string()); }

  private:
    std::filesystem::path root_;
};

TEST(AvailableMemory, IsMemAvailableWithoutGroups) {
    EXPECT_EQ(FakeMachine().available(), 1000 * 1024);
}

TEST(AvailableMemory, IsLimitedByVersion2GroupsAtEveryLevel) {
    FakeMachine machine;
    machine.write("proc/self/cgroup", "0::/a/b\n");
    machine.write("sys/fs/cgroup/a/b/memory.max", "max\n");
    EXPECT_EQ(machine.available(), 1000 * 1024);
    machine.write("sys/fs/cgroup/a/memory.max", "500000\n");
    machine.write("sys/fs/cgroup/a/memory.current", "300000\n");
    EXPECT_EQ(machine.available(), 200000);
    machine.write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000\nactive_file 7\n");
    EXPECT_EQ(machine.available(), 300007);
}

TEST(AvailableMemory, IsLimitedByVersion1Groups) {
    FakeMachine machine;
    machine.write("proc/self/cgroup", "5:devices:/x\n4:cpu,memory:/x/y\n0::/\n");
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    machine.write("sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "10000\n");
    machine.write("sys/fs/cgroup/memory/x/y/memory.usage_in_bytes", "4000\n");
    EXPECT_EQ(machine.available(), 6000);
    machine.write("sys/fs/cgroup/memory/x/y/memory.usage_in_bytes", "40000\n");
    EXPECT_EQ(machine.available(), 0);
}

TEST(AvailableMemory, SurvivesGarbage) {
    FakeMachine machine;
    machine.write("proc/self/cgroup", "nonsense\n::\n0:\n0::/q\n");
    machine.write("sys/fs/cgroup/q/memory.max", "many\n");
    EXPECT_EQ(machine.available(), 1000 * 1024);
}

TEST(MemoryPlan, TextNamesUnits) {
    EXPECT_EQ(bytes_text(0), "0 B");
    EXPECT_EQ(bytes_text(1023), "1023 B");
    EXPECT_EQ(bytes_text(1536), "1.50 KiB");
    EXPECT_EQ(bytes_text(std::int64_t{12} << 30), "12.0 GiB");
    EXPECT_EQ(bytes_text(510286023000), "475 GiB");
}

MemoryPlan plan_of_tiny(std::int64_t pages, std::int64_t limit_bytes) {
    const auto checkpoint = Checkpoint::open(FATHOM_SOURCE_DIR "/models/tiny");
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    MemoryRequest request;
    request.pages = pages;
    request.sequences = 8;
    request.snapshot_bytes = 5 << 20;
    request.limit_bytes = limit_bytes;
    return plan_memory(**checkpoint, request);
}

TEST(MemoryPlan, AddsUpAndSeparatesMappedFiles) {
    const MemoryPlan plan = plan_of_tiny(100, 0);
    std::int64_t anonymous = 0, mapped = 0;
    for (const MemoryPlan::Item& item : plan.items)
        (item.mapped ? mapped : anonymous) += item.bytes;
    EXPECT_EQ(plan.anonymous_bytes, anonymous);
    EXPECT_EQ(plan.mapped_bytes, mapped);
    const auto checkpoint = Checkpoint::open(FATHOM_SOURCE_DIR "/models/tiny");
    EXPECT_EQ(mapped, static_cast<std::int64_t>((*checkpoint)->summary().bytes));
    EXPECT_TRUE(check_memory_plan(plan).ok());
    EXPECT_THAT(plan.to_text(), HasSubstr("Engram tables"));
    EXPECT_THAT(plan.to_text(), HasSubstr("KV, 100 pages"));
    EXPECT_THAT(plan.to_text(), HasSubstr("window snapshots                       5.00 MiB"));
}

TEST(MemoryPlan, RefusesWithTheNumbersAndWhatToLower) {
    const MemoryPlan plan = plan_of_tiny(1'000'000, 1'000'000);
    const Status status = check_memory_plan(plan);
    EXPECT_EQ(status.code(), StatusCode::resource_exhausted);
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(plan.anonymous_bytes)));
    EXPECT_THAT(status.message(), HasSubstr("(1000000 bytes) are available"));
    EXPECT_THAT(status.message(), HasSubstr("KV, 1000000 pages"));
    EXPECT_THAT(status.message(), HasSubstr("lower the number of KV pages"));
}

}  // namespace
}  // namespace fathom
