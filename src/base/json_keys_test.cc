#include "base/json_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/output_file.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;

TEST(JsonKeys, ThatAreThereTwiceAreRefusedWithTheirPlace) {
    EXPECT_EQ(check_single_keys(R"({"a":1,"b":2,"a":1})").message(), "\"a\": given twice");
    EXPECT_EQ(check_single_keys(R"({"c":[{},{"k":1,"\u006b":2}]})").message(),
              "c[1].\"k\": given twice");
    EXPECT_TRUE(check_single_keys(R"({"a":{"a":1},"b":[{"a":2},{"a":3}],"A":null})").ok());
    EXPECT_TRUE(check_single_keys("[]").ok());
    EXPECT_THAT(check_single_keys("[123456789012345678901234567890]").message(),
                HasSubstr("more than 64 bits"));
}

TEST(JsonKeys, FilesAreNamed) {
    const std::string path = testing::TempDir() + "json_keys_" + std::to_string(getpid()) + ".json";
    ASSERT_TRUE(write_output_file(path, R"({"a":{"b":1,"b":2}})").ok());
    EXPECT_EQ(parse_json_file_of_single_keys(path).status().message(),
              path + ": a.\"b\": given twice");
    ASSERT_TRUE(write_output_file(path, R"({"a":1})").ok());
    EXPECT_EQ(parse_json_file_of_single_keys(path)->find("a")->as_int64(), 1);
    ASSERT_TRUE(write_output_file(path, R"({"a":)").ok());
    EXPECT_THAT(parse_json_file_of_single_keys(path).status().message(), HasSubstr(path));
    EXPECT_THAT(parse_json_file_of_single_keys("/nowhere/x.json").status().message(),
                HasSubstr("/nowhere/x.json"));
}

}  // namespace
}  // namespace fathom
