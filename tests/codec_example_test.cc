// The program of examples/codec, as its README shows it.
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/json.h"
#include "cli_process.h"
#include "support.h"

namespace fathom::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
    int status = -1;
    std::string out, err;
};

Outcome run(const std::string& protocol, const std::string& body, const std::string& script,
            const std::string& tokenizer = source_path("models/tiny/tokenizer.json")) {
    const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                       ("fathom_codec_" + std::to_string(::getpid()) + ".json");
    std::ofstream(path, std::ios::binary) << body;
    Child child({FATHOM_CODEC_EXAMPLE, tokenizer, protocol, path.string(), script});
    child.close_input();
    const int status = child.finish();
    std::filesystem::remove(path);
    return {.status = status, .out = child.out(), .err = child.err()};
}

TEST(CodecExample, AnswersWholeAndStreamed) {
    const std::string body =
        R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"Hi"}])";
    const Outcome whole = run("chat", body + "}", "Because.</think>Hello!");
    ASSERT_EQ(whole.status, 0) << whole.err;
    EXPECT_TRUE(parse_json(whole.out).ok()) << whole.out;
    EXPECT_THAT(whole.out, HasSubstr(R"("content":"Hello!","reasoning_content":"Because.")"));
    EXPECT_THAT(whole.err, HasSubstr("<｜User｜>Hi<｜Assistant｜><think>"));

    const Outcome streamed = run("messages", body + R"(,"stream":true})", "Because.</think>Hello!");
    ASSERT_EQ(streamed.status, 0) << streamed.err;
    EXPECT_THAT(streamed.out, StartsWith("event: message_start\n"));
    EXPECT_THAT(streamed.out, EndsWith("data: {\"type\":\"message_stop\"}\n\n"));
}

TEST(CodecExample, ToolCallsComeAsTheirProtocolHasThem) {
    const Outcome call =
        run("responses",
            R"({"model":"DeepSeek-V4.1-Flash","input":"Hi","reasoning":{"effort":"none"},)"
            R"("tools":[{"type":"function","name":"f"}]})",
            "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" "
            "string=\"false\">{\"b\": [1]}</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ "
            "calls>");
    ASSERT_EQ(call.status, 0) << call.err;
    EXPECT_THAT(call.out, HasSubstr(R"("name":"f","arguments":"{\"a\": {\"b\": [1]}}")"));
}

TEST(CodecExample, RefusalsAreErrorsOfTheApi) {
    const Outcome refused = run("chat", R"({"model":"x","messages":[]})", "");
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.out,
                StartsWith(R"({"error":{"message":"The supported API model names are)"));
    EXPECT_THAT(refused.err, HasSubstr("status 400"));
    EXPECT_EQ(run("smoke", "{}", "").status, 1);
    EXPECT_EQ(run("chat", "{}", "", "/absent/tokenizer.json").status, 1);
}

}  // namespace
}  // namespace fathom::testing
