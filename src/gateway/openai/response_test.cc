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
    r.choices = {{.finish = finish}};
    r.usage = {.prompt_tokens = 10, .completion_tokens = 4, .cached_tokens = 8};
    r.anchors = {.hit_tokens = 640,
                 .encoder_floor = 384,
                 .decoder_floor = 5,
                 .window_source = "snapshot",
                 .mode = PrefillMode::tail,
                 .replays = {256, 512}};
    return r;
}

const std::string kChunk =
    R"(data: {"id":"I","object":"chat.completion.chunk","created":7,"model":"m",)"
    R"("system_fingerprint":"f","choices":[{"index":0,"delta":)";
const std::string kOpen = R"(,"logprobs":null,"finish_reason":null}])";
const std::string kUsage =
    R"("usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,)"
    R"("prompt_tokens_details":{"cached_tokens":8},"prompt_cache_hit_tokens":8,)"
    R"("prompt_cache_miss_tokens":2},"fathom":{"anchors":{"mode":"tail","decoder_floor":5,)"
    R"("replays":[256,512],"encoder_floor":384,"hit_tokens":640,"window_source":"snapshot"}})";

TEST(Answers, ChatStreamWithoutThinking) {
    const AnswerHead h = head(ApiKind::chat, false, false);
    std::string out;
    append_start(out, h);
    append_delta(out, h, {.reasoning = "", .content = "A\"\n"});
    const GenerationResult last = result(GenerationFinish::stop);
    append_end(out, h, 0, GenerationFinish::stop, &last);
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
    const GenerationResult last = result(GenerationFinish::length);
    append_end(out, h, 0, GenerationFinish::length, &last);
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
        complete_answer(head(ApiKind::chat, true, false), {{.reasoning = "r", .content = "c"}},
                        result(GenerationFinish::stop)),
        R"({"id":"I","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,)"
        R"("message":{"role":"assistant","content":"c","reasoning_content":"r"},)"
        R"("logprobs":null,"finish_reason":"stop"}],)" +
            kUsage + R"(,"system_fingerprint":"f"})");
}

TEST(Answers, WholeCompletion) {
    EXPECT_EQ(
        complete_answer(head(ApiKind::completion, false, false),
                        {{.reasoning = "", .content = "c"}}, result(GenerationFinish::length)),
        R"({"id":"I","object":"text_completion","created":7,"model":"m",)"
        R"("choices":[{"index":0,"text":"c","logprobs":null,"finish_reason":"length"}],)" +
            kUsage + R"(,"system_fingerprint":"f"})");
}

TEST(Answers, SeveralChoicesWholeAndStreamed) {
    AnswerHead h = head(ApiKind::completion, false, false);
    h.choices = 2;
    GenerationResult r = result(GenerationFinish::stop);
    r.choices = {{.finish = GenerationFinish::stop}, {.finish = GenerationFinish::length}};
    EXPECT_EQ(complete_answer(h, {{.content = "a"}, {.content = "b"}}, r),
              R"({"id":"I","object":"text_completion","created":7,"model":"m","choices":[)"
              R"({"index":0,"text":"a","logprobs":null,"finish_reason":"stop"},)"
              R"({"index":1,"text":"b","logprobs":null,"finish_reason":"length"}],)" +
                  kUsage + R"(,"system_fingerprint":"f"})");
    h.kind = ApiKind::chat;
    std::string out;
    append_start(out, h);
    append_delta(out, h, {.content = "b", .choice = 1});
    append_end(out, h, 1, GenerationFinish::length, nullptr);
    append_end(out, h, 0, GenerationFinish::stop, &r);
    const std::string second =
        kChunk.substr(0, kChunk.find(R"("index":0)")) + R"("index":1,"delta":)";
    EXPECT_EQ(out, kChunk + R"({"role":"assistant","content":""})" + kOpen + "}\n\n" + second +
                       R"({"role":"assistant","content":""})" + kOpen + "}\n\n" + second +
                       R"({"content":"b"})" + kOpen + "}\n\n" + second + R"({"content":""})" +
                       R"(,"logprobs":null,"finish_reason":"length"}]})" + "\n\n" + kChunk +
                       R"({"content":""},"logprobs":null,"finish_reason":"stop"}],)" + kUsage +
                       "}\n\n");
}

std::string logprobs_json(const AnswerHead& head, const GenerationDelta& delta) {
    std::string out;
    JsonWriter json(out);
    write_logprobs(json, head, delta);
    return out;
}

TEST(Answers, LogprobsOfAChat) {
    AnswerHead h = head(ApiKind::chat, true, false);
    GenerationDelta delta;
    delta.content_logprobs = {{.token = {.id = 1, .bytes = "\xc3\xa9\xff", .logprob = -0.5f},
                               .top = {{.id = 2, .bytes = "\xe2\x82", .logprob = -0.25f}}}};
    EXPECT_EQ(logprobs_json(h, delta), "null");  // not asked for
    h.logprobs = 1;
    EXPECT_EQ(logprobs_json(h, {}), "null");
    EXPECT_EQ(logprobs_json(h, delta),
              R"({"content":[{"token":"é\\xff","logprob":-0.5,"bytes":[195,169,255],)"
              R"("top_logprobs":[{"token":"\\xe2\\x82","logprob":-0.25,"bytes":[226,130]}]}],)"
              R"("mode":"raw"})");
    std::swap(delta.content_logprobs, delta.reasoning_logprobs);
    delta.reasoning_logprobs[0].top.clear();
    h.logprobs_processed = true;
    EXPECT_EQ(logprobs_json(h, delta),
              R"({"reasoning_content":[{"token":"é\\xff","logprob":-0.5,"bytes":[195,169,255],)"
              R"("top_logprobs":[]}],"mode":"processed"})");
}

TEST(Answers, LogprobsOfACompletion) {
    AnswerHead h = head(ApiKind::completion, false, false);
    h.logprobs = 2;
    GenerationDelta delta;
    delta.content_logprobs = {
        {.token = {.id = 1, .bytes = "a", .logprob = -0.5f},
         .top = {{.id = 2, .bytes = "b", .logprob = -0.25f},
                 {.id = 3, .bytes = "b", .logprob = -1}}},
        {.token = {.id = 4, .bytes = "c", .logprob = -9999.0f}, .text_offset = 1}};
    EXPECT_EQ(
        logprobs_json(h, delta),
        R"({"tokens":["a","c"],"token_logprobs":[-0.5,-9999.0],"top_logprobs":[{"b":-0.25},{}],)"
        R"("text_offset":[0,1],"mode":"raw"})");
    h.logprobs = 0;
    delta.content_logprobs.pop_back();
    EXPECT_EQ(logprobs_json(h, delta),
              R"({"tokens":["a"],"token_logprobs":[-0.5],"top_logprobs":null,)"
              R"("text_offset":[0],"mode":"raw"})");
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
