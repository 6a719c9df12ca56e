#include "base/input_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/output_file.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;

TEST(InputFile, ReadsAllBytes) {
    const std::string path = ::testing::TempDir() + "/input_file_test";
    const std::string bytes = std::string(200'000, 'a') + std::string("\0\n", 2);
    ASSERT_TRUE(write_output_file(path, bytes).ok());
    EXPECT_EQ(*read_input_file(path), bytes);
    EXPECT_EQ(*read_input_file(path, bytes.size()), bytes);
    EXPECT_THAT(read_input_file(path, bytes.size() - 1).status().message(),
                HasSubstr("more than 200001 bytes"));
    std::remove(path.c_str());
    EXPECT_EQ(*read_input_file("/dev/null"), "");
}

TEST(InputFile, SaysWhatCannotBeRead) {
    const std::string folder = ::testing::TempDir();
    const Status is_folder = read_input_file(folder).status();
    EXPECT_EQ(is_folder.code(), StatusCode::invalid_argument);
    EXPECT_EQ(is_folder.message(), folder + ": cannot be read: it is a folder, expected a file");
    const Status absent = read_input_file(folder + "/absent").status();
    EXPECT_EQ(absent.code(), StatusCode::not_found);
    EXPECT_THAT(absent.message(), HasSubstr("/absent: cannot be read: No such file"));
    EXPECT_THAT(read_input(-1, "standard input").status().message(),
                HasSubstr("standard input: cannot be read"));
}

TEST(InputFile, ReadsPipesToTheirEnd) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ASSERT_EQ(::write(ends[1], "text", 4), 4);
    ::close(ends[1]);
    EXPECT_EQ(*read_input(ends[0], "pipe"), "text");
    ::close(ends[0]);
}

}  // namespace
}  // namespace fathom
