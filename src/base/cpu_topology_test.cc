#include "base/cpu_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace fathom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A /sys tree for the test, removed with it.
class Tree {
  public:
    explicit Tree(const std::map<std::string, std::string>& files)
        : root_(std::filesystem::path(::testing::TempDir()) /
                ("topology_" +
                 std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()))) {
        std::filesystem::remove_all(root_);
        for (const auto& [path, text] : files) {
            std::filesystem::create_directories((root_ / path).parent_path());
            std::ofstream(root_ / path) << text << '\n';
        }
    }
    ~Tree() {
        std::error_code ignored;
        std::filesystem::remove_all(root_, ignored);
    }
    std::string root() const { return root_.string(); }

  private:
    std::filesystem::path root_;
};

const std::map<std::string, std::string>& two_sockets() {
    static const std::map<std::string, std::string> files = [] {
        std::map<std::string, std::string> f{{"sys/devices/system/node/online", "0-1"},
                                             {"sys/devices/system/node/node0/cpulist", "0-1,4-5"},
                                             {"sys/devices/system/node/node1/cpulist", "2-3,6-7"}};
        for (int cpu = 0; cpu < 8; ++cpu)
            f["sys/devices/system/cpu/cpu" + std::to_string(cpu) +
              "/topology/thread_siblings_list"] =
                std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4);
        return f;
    }();
    return files;
}

TEST(CpuTopology, CoresComeNodeByNodeAndSiblingsLast) {
    const Tree tree(two_sockets());
    const CpuTopology t = CpuTopology::read(tree.root(), {0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_THAT(t.cpus, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_THAT(t.nodes, ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
    EXPECT_EQ(t.cores, 4);
}

TEST(CpuTopology, OnlyAllowedProcessorsCount) {
    const Tree tree(two_sockets());
    // 6 has no allowed sibling before it, 5 has (1).
    const CpuTopology t = CpuTopology::read(tree.root(), {1, 5, 6});
    EXPECT_THAT(t.cpus, ElementsAre(1, 6, 5));
    EXPECT_THAT(t.nodes, ElementsAre(0, 1, 0));
}

TEST(CpuTopology, WithoutSysEveryProcessorIsACoreOfNodeZero) {
    const CpuTopology t = CpuTopology::read("/nonexistent", {2, 0, 1});
    EXPECT_THAT(t.cpus, ElementsAre(0, 1, 2));
    EXPECT_THAT(t.nodes, ElementsAre(0, 0, 0));
}

TEST(CpuTopology, ThisProcessHasProcessors) {
    const CpuTopology t = CpuTopology::detect();
    EXPECT_FALSE(t.cpus.empty());
    EXPECT_EQ(t.cpus.size(), t.nodes.size());
}

TEST(CpuTopology, IsParsedFromText) {
    const auto t = CpuTopology::parse("0,1|4-5");
    ASSERT_TRUE(t.ok());
    EXPECT_THAT(t->cpus, ElementsAre(0, 1, 4, 5));
    EXPECT_THAT(t->nodes, ElementsAre(0, 0, 1, 1));
}

TEST(CpuTopology, BadListsAreRefusedWithTheirText) {
    for (const char* text : {"x", "1-", "3-1", "-1", "99999", "0,,1", "|", ""}) {
        const auto t = CpuTopology::parse(text);
        ASSERT_FALSE(t.ok()) << text;
        EXPECT_THAT(t.status().message(), HasSubstr("processor list \"")) << text;
    }
}

}  // namespace
}  // namespace fathom
