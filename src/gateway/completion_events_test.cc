// Completions: whole and streamed answers, log probabilities with their offsets.
#include "gateway/completion_events.h"

#include <gtest/gtest.h>

#include <string>

#include "gateway/testing/scripted_engine.h"

namespace fathom {
namespace {

using Kind = OutputEvent::Kind;

constexpr const char* kHead = R"({"id":"i","object":"text_completion","created":7,"model":"m")";
constexpr const char* kUsage =
    R"("usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,)"
    R"("prompt_tokens_details":{"cached_tokens":2},"prompt_cache_hit_tokens":2,)"
    R"("prompt_cache_miss_tokens":3})";

std::unique_ptr<AnswerBuilder> builder(bool stream, CompletionAnswerOptions options = {}) {
    return make_completion_answer({.id = "i",
                                   .model = "m",
                                   .created = 7,
                                   .stream = stream,
                                   .thinking = ThinkingStage::content_continuation,
                                   .call_ids = {},
                                   .tokenizer = std::make_shared<testing::ByteTokenizer>()},
                                  options);
}

OutputParser::Events events() {
    const ReadyChunk prompt = {
        .system_fingerprint = "f", .prompt_tokens = 5, .prompt_cache_hit_tokens = 2};
    return {{.kind = Kind::start, .prompt = prompt},
            {.kind = Kind::content, .text = "a"},
            {.kind = Kind::content, .text = "b"},
            {.kind = Kind::finish, .finish = OutputFinish::length, .completion_tokens = 3}};
}

TEST(CompletionAnswer, WholeHasTextUsageAndFingerprint) {
    const auto answer = builder(false);
    std::vector<StreamPayload> payloads;
    for (const OutputEvent& event : events())
        answer->add(event, payloads);
    EXPECT_TRUE(payloads.empty());
    EXPECT_EQ(
        answer->answer(),
        std::string(kHead) +
            R"(,"choices":[{"index":0,"text":"ab","logprobs":null,"finish_reason":"length"}],)" +
            kUsage + R"(,"system_fingerprint":"f"})");
}

TEST(CompletionAnswer, StreamsAChunkAPieceAndUsageWithTheLast) {
    const auto answer = builder(true, {.include_usage = true});
    std::vector<StreamPayload> payloads;
    for (const OutputEvent& event : events())
        answer->add(event, payloads);
    ASSERT_EQ(payloads.size(), 3u);
    const std::string head = std::string(kHead) + R"(,"system_fingerprint":"f","choices":)";
    EXPECT_EQ(
        payloads[0].json,
        head + R"([{"index":0,"text":"a","logprobs":null,"finish_reason":null}],"usage":null})");
    EXPECT_EQ(payloads[2].json,
              head + R"([{"index":0,"text":"","logprobs":null,"finish_reason":"length"}],)" +
                  kUsage + "}");
    EXPECT_EQ(payloads[0].name, "");
}

TEST(CompletionAnswer, OffsetsOfLogprobsCountCharactersOfTheAnswer) {
    const auto answer = builder(false, {.top_logprobs = true});
    std::vector<StreamPayload> none;
    OutputEvent first{.kind = Kind::content, .text = "h"};
    first.logprobs = {{.id = 'h', .logprob = -0.5, .top = {{'h', -0.5}, {'i', -1}}}};
    OutputEvent second{.kind = Kind::content, .text = "é!"};
    second.logprobs = {{.id = 0xc3, .logprob = -1, .top = {{0xc3, -1}, {0xc3, -2}}},
                       {.id = 0xa9, .logprob = -2, .top = {}},
                       {.id = '!', .logprob = -3, .top = {}}};
    for (const OutputEvent& event : {first, second})
        answer->add(event, none);
    EXPECT_NE(answer->answer().find(R"("logprobs":{"tokens":["h","\\xc3","\\xa9","!"],)"
                                    R"("token_logprobs":[-0.5,-1.0,-2.0,-3.0],)"
                                    R"("top_logprobs":[{"h":-0.5,"i":-1.0},{"\\xc3":-1.0},{},{}],)"
                                    R"("text_offset":[0,1,1,2]})"),
              std::string::npos)
        << answer->answer();
}

TEST(CompletionAnswer, ChoicesAreApartAndTheirUsageTogether) {
    const auto answer = builder(false, {.choices = 2});
    std::vector<StreamPayload> none;
    for (const std::int64_t choice : {1, 0}) {
        for (OutputEvent event : events()) {
            event.choice = choice;
            answer->add(event, none);
        }
    }
    EXPECT_NE(answer->answer().find(R"({"index":1,"text":"ab")"), std::string::npos);
    EXPECT_NE(answer->answer().find(R"("completion_tokens":6,"total_tokens":11)"),
              std::string::npos);
}

}  // namespace
}  // namespace fathom
