#include "gateway/openai/response.h"

#include <gtest/gtest.h>

#include "gateway/openai/errors.h"

namespace fathom {
namespace {

AnswerHead head(ApiKind kind, bool thinking, bool include_usage) {
    return {.kind = kind,
            .id = "I",
            .created = 7,
            .model = "m",
            .fingerprint = "f",
            .thinking = thinking,
            .include_usage = include_usage};
}

GenerationResult result(GenerationFinish finish) {
    GenerationResult r;
    r.finish = finish;
    r.usage = {.prompt_tokens = 10, .completion_tokens = 4, .cached_tokens = 8};
    return r;
}

const std::string kChunk =
    R"(data: {"id":"I","object":"chat.completion.chunk","created":7,"model":"m",)"
    R"("system_fingerprint":"f","choices":[{"index":0,"delta":)";
const std::string kOpen = R"(,"logprobs":null,"finish_reason":null}])";
const std::string kUsage =
    R"("usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,)"
    R"("prompt_tokens_details":{"cached_tokens":8},"prompt_cache_hit_tokens":8,)"
    R"("prompt_cache_miss_tokens":2})";

TEST(Answers, ChatStreamWithoutThinking) {
    const AnswerHead h = head(ApiKind::chat, false, false);
    std::string out;
    append_start(out, h);
    append_delta(out, h, {.reasoning = "", .content = "A\"\n"});
    append_last(out, h, result(GenerationFinish::stop));
    append_done(out);
    EXPECT_EQ(out, kChunk + R"({"role":"assistant","content":""})" + kOpen + "}\n\n" + kChunk +
                       R"({"content":"A\"\n"})" + kOpen + "}\n\n" + kChunk + R"({"content":""})" +
                       R"(,"logprobs":null,"finish_reason":"stop"}],)" + kUsage +
                       "}\n\ndata: [DONE]\n\n");
}

TEST(Answers, ChatStreamWithThinkingNamesBothTexts) {
    const AnswerHead h = head(ApiKind::chat, true, true);
    std::string out;
    append_start(out, h);
    append_delta(out, h, {.reasoning = "r", .content = "c"});
    append_last(out, h, result(GenerationFinish::length));
    const std::string end = kOpen + R"(,"usage":null})" + "\n\n";
    EXPECT_EQ(out, kChunk + R"({"role":"assistant","content":null,"reasoning_content":""})" + end +
                       kChunk + R"({"content":null,"reasoning_content":"r"})" + end + kChunk +
                       R"({"content":"c","reasoning_content":null})" + end + kChunk +
                       R"({"content":"","reasoning_content":null})" +
                       R"(,"logprobs":null,"finish_reason":"length"}],)" + kUsage + "}\n\n");
}

TEST(Answers, CompletionStream) {
    const AnswerHead h = head(ApiKind::completion, false, false);
    std::string out;
    append_start(out, h);
    EXPECT_EQ(out, "");
    append_delta(out, h, {.reasoning = "", .content = "x"});
    EXPECT_EQ(out, R"(data: {"id":"I","object":"text_completion","created":7,"model":"m",)"
                   R"("system_fingerprint":"f","choices":[{"index":0,"text":"x","logprobs":null,)"
                   R"("finish_reason":null}]})"
                   "\n\n");
}

TEST(Answers, WholeChat) {
    EXPECT_EQ(
        complete_answer(head(ApiKind::chat, true, false), {.reasoning = "r", .content = "c"},
                        result(GenerationFinish::stop)),
        R"({"id":"I","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,)"
        R"("message":{"role":"assistant","content":"c","reasoning_content":"r"},)"
        R"("logprobs":null,"finish_reason":"stop"}],)" +
            kUsage + R"(,"system_fingerprint":"f"})");
}

TEST(Answers, WholeCompletion) {
    EXPECT_EQ(complete_answer(head(ApiKind::completion, false, false),
                              {.reasoning = "", .content = "c"}, result(GenerationFinish::length)),
              R"({"id":"I","object":"text_completion","created":7,"model":"m",)"
              R"("choices":[{"index":0,"text":"c","logprobs":null,"finish_reason":"length"}],)" +
                  kUsage + R"(,"system_fingerprint":"f"})");
}

TEST(Answers, Models) {
    EXPECT_EQ(models_json({"a"}, 7, 99),
              R"({"object":"list","data":[{"id":"a","object":"model","created":7,)"
              R"("owned_by":"fathom","max_model_len":99}]})");
}

TEST(ApiError, HasOpenAiShapeAndStatus) {
    EXPECT_EQ(api_error_json(400, "no \"x\""),
              R"({"error":{"message":"no \"x\"","type":"invalid_request_error","param":null,)"
              R"("code":"invalid_request_error"}})");
    const HttpResponse full = api_error(error(StatusCode::resource_exhausted, "full"));
    EXPECT_EQ(full.status, 429);
    EXPECT_EQ(full.headers.front(), (std::pair<std::string, std::string>{"retry-after", "1"}));
    EXPECT_EQ(api_error(error(StatusCode::deadline_exceeded, "late")).status, 408);
    EXPECT_EQ(api_error(error(StatusCode::unavailable, "down")).status, 503);
    EXPECT_EQ(api_error(error(StatusCode::data_loss, "bad")).status, 500);
    EXPECT_EQ(api_error(invalid_argument("bad")).status, 400);
}

}  // namespace
}  // namespace fathom
