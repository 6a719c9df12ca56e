#include "gateway/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "gateway/testing/scripted_engine.h"

namespace fathom {
namespace {

using testing::ByteTokenizer;
using ::testing::HasSubstr;

const GenerationLimits kLimits = {.context_tokens = 1000,
                                  .bos_id = ByteTokenizer::kBos,
                                  .eos_id = ByteTokenizer::kEos,
                                  .vocab_size = ByteTokenizer().vocab_size()};

Result<std::string> inspect(Inspection kind, Api api, std::string_view body) {
    ApiOptions options;
    options.lower.models = {{"m", Dialect::v41}};
    return inspect_request({.kind = kind, .api = api, .body = body}, options, {}, ByteTokenizer(),
                           kLimits);
}

const char* const kChat =
    R"({"model":"m","messages":[{"role":"user","content":"Hi <think>"}],"temperature":0.5,)"
    R"("thinking":{"type":"disabled"},"stop":"X"})";

TEST(Inspection, CountsTokensInEachProtocolsForm) {
    // <bos><User>Hi<Assistant></think>
    EXPECT_EQ(*inspect(Inspection::count_messages, Api::messages,
                       R"({"model":"m","thinking":{"type":"disabled"},)"
                       R"("messages":[{"role":"user","content":"Hi"}]})"),
              R"({"input_tokens":6})");
    EXPECT_EQ(*inspect(Inspection::count_responses, Api::responses,
                       R"({"model":"m","input":"Hi","reasoning":{"effort":"none"}})"),
              R"({"object":"response.input_tokens","input_tokens":6})");
}

TEST(Inspection, NamesTheTextThatIsMissingOrNoText) {
    const auto fault = [](std::string_view body) {
        return inspect(Inspection::tokenize, Api::chat, body).status().message();
    };
    EXPECT_THAT(fault("{}"), HasSubstr("missing field `text`"));
    EXPECT_THAT(fault(R"({"text":null})"), HasSubstr("missing field `text`"));
    EXPECT_THAT(fault(R"({"text":5})"), HasSubstr("text: invalid type: integer `5`"));
    EXPECT_THAT(fault(R"({"text":["a"]})"), HasSubstr("text: invalid type"));
    EXPECT_THAT(fault(R"({"messages":[]})"), HasSubstr("missing field `model`"));
}

TEST(Inspection, TokenizesTextsAndRequests) {
    EXPECT_EQ(*inspect(Inspection::tokenize, Api::chat, R"({"text":"ab"})"),
              R"({"count":2,"ids":[97,98],"pieces":["a","b"]})");
    EXPECT_EQ(*inspect(Inspection::tokenize, Api::chat, R"({"text":"<think>","special":true})"),
              R"({"count":1,"ids":[261],"pieces":["<think>"]})");
    EXPECT_THAT(*inspect(Inspection::tokenize, Api::chat, R"({"text":"<think>"})"),
                HasSubstr(R"("count":7)"));
    EXPECT_THAT(*inspect(Inspection::tokenize, Api::chat, kChat), HasSubstr(R"("count":14)"));
    EXPECT_THAT(*inspect(Inspection::tokenize, Api::completion, R"({"model":"m","prompt":"ab"})"),
                HasSubstr(R"("ids":[256,97,98])"));
    EXPECT_THAT(*inspect(Inspection::tokenize, Api::responses,
                         R"({"model":"m","input":"Hi","text":{"format":{"type":"text"}}})"),
                HasSubstr(R"("ids":[256,)"));
}

TEST(Inspection, ShowsThePromptWithItsSpecialTokensMarked) {
    const auto text = inspect(Inspection::prompt, Api::chat, kChat);
    ASSERT_TRUE(text.ok()) << text.status().message();
    const Result<Json> shown = parse_json(*text);
    ASSERT_TRUE(shown.ok());
    std::string special, all;
    for (const Json& segment : shown->find("segments")->items()) {
        all += segment.find("text")->as_string();
        if (segment.find("special")->as_bool()) special += segment.find("text")->as_string();
    }
    EXPECT_EQ(special, "<｜begin▁of▁sentence｜><｜User｜><｜Assistant｜></think>");
    EXPECT_EQ(all, "<｜begin▁of▁sentence｜><｜User｜>Hi <think><｜Assistant｜></think>");
    EXPECT_EQ(shown->find("prompt")->as_string(), all);
    EXPECT_EQ(shown->find("tokens")->as_int64(), 14);
    EXPECT_EQ(shown->find("settings")->find("temperature")->as_double(), 0.5);
    EXPECT_TRUE(shown->find("settings")->find("seed")->is_null());
    EXPECT_EQ(shown->find("parsing")->find("begins_in")->as_string(), "none");
    EXPECT_EQ(shown->find("parsing")->find("stop_sequences")->items().size(), 1u);
}

TEST(Inspection, RefusesWhatTheRequestWouldBeRefusedFor) {
    EXPECT_THAT(inspect(Inspection::prompt, Api::chat, R"({"model":"x"})").status().message(),
                HasSubstr("missing field `messages`"));
    EXPECT_THAT(inspect(Inspection::tokenize, Api::chat, "[]").status().message(),
                HasSubstr("invalid request body"));
    EXPECT_EQ(inspect(Inspection::prompt, Api::completion, R"({"model":"m","prompt":"a"})")
                  .status()
                  .code(),
              StatusCode::invalid_argument);
}

}  // namespace
}  // namespace fathom
