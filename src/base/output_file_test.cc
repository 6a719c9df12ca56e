#include "base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace fathom {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OutputFileTest : public ::testing::Test {
  protected:
    void SetUp() override {
        folder_ = fs::path(::testing::TempDir()) /
                  (std::string("output_") +
                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
        fs::remove_all(folder_);
        fs::create_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }
    std::string path(const char* name) const { return (folder_ / name).string(); }
    static std::string read(const std::string& from) {
        std::ifstream in(from, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }

    fs::path folder_;
};

TEST_F(OutputFileTest, ReplacesWholeFilesAndKeepsLinks) {
    ASSERT_TRUE(write_output_file(path("a"), "first, longer").ok());
    fs::create_symlink("a", path("link"));
    ASSERT_TRUE(write_output_file(path("link"), "second").ok());
    EXPECT_EQ(read(path("a")), "second");
    EXPECT_TRUE(fs::is_symlink(path("link")));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2) << "nothing else is left";
}

TEST_F(OutputFileTest, WhatIsNoFileIsWrittenInPlace) {
    ASSERT_TRUE(check_output_path("/dev/null").ok());
    ASSERT_TRUE(write_output_file("/dev/null", "text").ok());
    EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(OutputFileTest, RefusesWhatCannotBeWritten) {
    EXPECT_THAT(check_output_path(path("absent/a")).message(), HasSubstr("No such file"));
    EXPECT_THAT(check_output_path(folder_.string()).message(), HasSubstr("it is a folder"));
    EXPECT_FALSE(check_output_path("").ok());
    EXPECT_THAT(write_output_file(path("absent/a"), "x").message(),
                HasSubstr(path("absent/a") + ": cannot be written"));
    EXPECT_TRUE(check_output_path(path("new")).ok());
    EXPECT_FALSE(fs::exists(path("new"))) << "looking makes nothing";
}

TEST_F(OutputFileTest, TwoNamesOfOneFileAreNotTwoOutputs) {
    fs::create_directory(path("folder"));
    fs::create_symlink("folder", path("other"));
    fs::create_symlink("x", path("ahead"));  // of a file that is not there yet
    ASSERT_TRUE(write_output_file(path("there"), "text").ok());
    fs::create_symlink(path("there"), path("link"));
    const std::vector<std::pair<std::string, std::string>> same = {
        {path("x"), path("x")},           {path("x"), path("./x")},
        {path("x"), path("folder/../x")}, {path("x"), path("ahead")},
        {path("there"), path("link")},    {path("folder/x"), path("other/x")}};
    for (const auto& [one, two] : same) {
        const Status status = check_outputs_differ(std::vector{one, std::string(), two});
        EXPECT_EQ(status.code(), StatusCode::invalid_argument) << one << " " << two;
        EXPECT_THAT(status.message(), HasSubstr(two + ": is named for two outputs"));
    }
    EXPECT_TRUE(check_outputs_differ(std::vector{path("x"), path("y"), path("folder/x"),
                                                 std::string(), std::string()})
                    .ok());
}

}  // namespace
}  // namespace fathom
