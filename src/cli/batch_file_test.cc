#include "cli/batch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace fathom {
namespace {

class BatchFile : public testing::Test {
  protected:
    std::string write(const std::string& text) {
        std::ofstream(path_, std::ios::binary) << text;
        return path_;
    }
    std::string read() const {
        std::ostringstream text;
        text << std::ifstream(path_, std::ios::binary).rdbuf();
        return text.str();
    }
    void TearDown() override { std::filesystem::remove(path_); }

    const std::string path_ = testing::TempDir() + "batch_file_" +
                              testing::UnitTest::GetInstance()->current_test_info()->name() +
                              ".jsonl";
};

TEST_F(BatchFile, InputSkipsBlankLinesAndCountsThem) {
    auto input = BatchInput::open(write("{\"a\":1}\n\n  \r\n{\"b\":2}"));
    ASSERT_TRUE(input.ok());
    auto first = (*input)->next();
    ASSERT_TRUE(first.ok() && first->has_value());
    EXPECT_EQ((*first)->number, 1);
    auto second = (*input)->next();
    ASSERT_TRUE(second.ok() && second->has_value());
    EXPECT_EQ((*second)->number, 4);
    EXPECT_EQ((*second)->text, "{\"b\":2}");
    auto end = (*input)->next();
    ASSERT_TRUE(end.ok());
    EXPECT_FALSE(end->has_value());
    EXPECT_EQ(*BatchInput::count(path_), 2);
}

TEST_F(BatchFile, MissingInputAndDirectoriesAreNamed) {
    EXPECT_EQ(BatchInput::open("/nonexistent.jsonl").status().code(), StatusCode::not_found);
    EXPECT_NE(BatchInput::open(testing::TempDir()).status().message().find("a directory"),
              std::string::npos);
}

TEST_F(BatchFile, IdsAreTheRequestsOwnOrTheLineNumber) {
    EXPECT_EQ(batch_id(parse_json("{\"id\": \"x\"}"), 3).dump(), "\"x\"");
    EXPECT_EQ(batch_id(parse_json("{\"id\": 12}"), 3).dump(), "12");
    for (const char* text : {"{}", "{\"id\": null}", "{\"id\": [1]}", "7", "{torn"})
        EXPECT_EQ(batch_id(parse_json(text), 3).dump(), "3") << text;
}

// What a kill can leave at the end of the file is dropped, and appending goes on behind the rest.
TEST_F(BatchFile, TornLastLinesAreDropped) {
    const std::string whole = "{\"id\":\"a\",\"text\":\"x\"}\n{\"id\":2}\n";
    for (const std::string torn : {"", "{", "{\"id\":3}", "{\"id\":3,\"te"}) {
        auto output = BatchOutput::open(write(whole + torn));
        ASSERT_TRUE(output.ok()) << torn << output.status().message();
        ASSERT_EQ((*output)->done().size(), 2U);
        EXPECT_EQ((*output)->done()[0].dump(), "\"a\"");
        EXPECT_TRUE((*output)->append("{\"id\":9}").ok());
        EXPECT_TRUE((*output)->sync().ok());
        EXPECT_EQ(read(), whole + "{\"id\":9}\n") << torn;
    }
}

// A foreign file must never lose its last line to the name of an output.
TEST_F(BatchFile, ALastLineThatIsNoTornAnswerIsRefusedAndKept) {
    for (const std::string text :
         {"my notes\n", "my notes", "{\"id\":3,\"te\n", "\n", "null\n", "7"}) {
        const auto output = BatchOutput::open(write(text));
        EXPECT_EQ(output.status().code(), StatusCode::data_loss) << text;
        EXPECT_EQ(read(), text);
    }
}

TEST_F(BatchFile, TwoBatchesCannotWriteOneFile) {
    const std::string path = write("");
    const auto first = BatchOutput::open(path);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(BatchOutput::open(path).status().code(), StatusCode::unavailable);
}

TEST_F(BatchFile, DamageInTheMiddleIsRefused) {
    auto output = BatchOutput::open(write("{\"id\":1}\n{\"id\":\n{\"id\":3}\n"));
    ASSERT_FALSE(output.ok());
    EXPECT_EQ(output.status().code(), StatusCode::data_loss);
    EXPECT_NE(output.status().message().find(":2: not an answer"), std::string::npos)
        << output.status().message();
}

TEST(BatchOutput, ADeviceIsWrittenAndNeverRead) {
    // Reading /dev/full back would never end.
    auto output = BatchOutput::open("/dev/full");
    ASSERT_TRUE(output.ok()) << output.status().message();
    EXPECT_TRUE((*output)->done().empty());
    EXPECT_THAT((*output)->append("{}").message(), ::testing::HasSubstr("/dev/full: cannot write"));
}

}  // namespace
}  // namespace fathom
