// The whole way in one piece. What each step gives is tested beside it; here it is how they join.
#include "recipe/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "recipe/test_tokenizer.h"

namespace fathom {
namespace {

Codec tiny_codec(Profile profile = Profile::open) {
    CodecOptions options;
    options.lower.profile = profile;
    return Codec(testing::tiny_tokenizer(), options);
}

EncodedRequest encoded(const Codec& codec, Protocol protocol, const std::string& members) {
    auto request = codec.encode(protocol, R"({"model":"DeepSeek-V4.1-Flash",)" + members + "}");
    EXPECT_TRUE(request.ok()) << request.status().message();
    return *std::move(request);
}

const char* const kChat = R"("messages":[{"role":"user","content":"Hi"}])";

// All bytes of an answer whose output comes in chunks of `chunk` ids.
std::string answered(const Codec& codec, const EncodedRequest& request, const std::string& text,
                     std::size_t chunk, BackendFinish finish = BackendFinish::stop) {
    AnswerStream answer = codec.answer(request, {.id = "A", .created = 5, .call_id_seed = 1});
    std::string bytes = answer.start({.prompt_tokens = 7, .prompt_cache_hit_tokens = 2});
    const std::vector<TokenId> ids = codec.tokenizer().encode(text, true);
    for (std::size_t at = 0; at < ids.size() && !answer.finished(); at += chunk) {
        const auto piece = std::span(ids).subspan(at, std::min(chunk, ids.size() - at));
        auto more = answer.push(piece);
        EXPECT_TRUE(more.ok()) << more.status().message();
        bytes += *more;
    }
    return bytes + answer.finish(finish);
}

TEST(Codec, PromptsAreTheRenderedConversation) {
    const Codec codec = tiny_codec();
    const EncodedRequest request = encoded(codec, Protocol::chat, kChat);
    EXPECT_EQ(
        codec.tokenizer().decode(request.prompt),
        "<｜begin▁of▁sentence｜><｜System｜>Reasoning Effort: 75 (range 1-100, the higher the "
        "value, the more thorough the reasoning)\n\n<｜User｜>Hi<｜Assistant｜><think>");
}

TEST(Codec, WholeAnswersComeOnceAtTheEnd) {
    const Codec codec = tiny_codec();
    const EncodedRequest request = encoded(codec, Protocol::chat, kChat);
    for (const std::size_t chunk : {1, 3, 100}) {
        const std::string bytes = answered(codec, request, "why</think>So.", chunk);
        EXPECT_TRUE(bytes.starts_with(
            R"({"id":"A","object":"chat.completion","created":5,"model":"DeepSeek-V4.1-Flash",)"
            R"("choices":[{"index":0,"message":{"role":"assistant","content":"So.",)"
            R"("reasoning_content":"why"},"logprobs":null,"finish_reason":"stop"}],)"))
            << bytes;
        EXPECT_TRUE(parse_json(bytes).ok()) << "one JSON text: " << bytes;
    }
}

TEST(Codec, StreamsAreFramesOfTheirProtocol) {
    const Codec codec = tiny_codec();
    const std::string stream = R"(,"stream":true)";
    const std::string chat =
        answered(codec, encoded(codec, Protocol::chat, kChat + stream), "a</think>b", 1);
    EXPECT_TRUE(chat.starts_with("data: {\"id\":\"A\",\"object\":\"chat.completion.chunk\""));
    EXPECT_TRUE(chat.ends_with("}\n\ndata: [DONE]\n\n"));
    const std::string messages =
        answered(codec, encoded(codec, Protocol::messages, kChat + stream), "a</think>b", 1);
    EXPECT_TRUE(messages.starts_with("event: message_start\ndata: {\"type\":\"message_start\""));
    EXPECT_TRUE(messages.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
    const std::string responses =
        answered(codec, encoded(codec, Protocol::responses, R"("input":"Hi")" + stream),
                 "a</think>b", 1, BackendFinish::length);
    EXPECT_TRUE(responses.starts_with("event: response.created\n"));
    EXPECT_NE(responses.find("event: response.incomplete\n"), std::string::npos);
}

TEST(Codec, AStopSequenceEndsTheAnswerBeforeItIsFinished) {
    const Codec codec = tiny_codec();
    const EncodedRequest request =
        encoded(codec, Protocol::chat, std::string(kChat) + R"(,"stream":true,"stop":"END")");
    AnswerStream answer = codec.answer(request, {.id = "A"});
    std::string bytes = answer.start({});
    bytes += answer.push(codec.tokenizer().encode("</think>one END two", true)).value();
    EXPECT_TRUE(answer.finished());
    EXPECT_TRUE(bytes.ends_with("data: [DONE]\n\n")) << bytes;
    EXPECT_EQ(bytes.find("two"), std::string::npos);
    EXPECT_EQ(answer.push(codec.tokenizer().encode("more", false)).value(), "");
    EXPECT_EQ(answer.finish(BackendFinish::length), "");
    EXPECT_EQ(answer.fail({"internal_error", "late"}), "");
}

TEST(Codec, AStreamThatBreaksOffSaysSoOnce) {
    const Codec codec = tiny_codec();
    const EncodedRequest request =
        encoded(codec, Protocol::chat, std::string(kChat) + R"(,"stream":true)");
    AnswerStream answer = codec.answer(request, {.id = "A"});
    EXPECT_NE(answer.start({}), "");
    const std::string bytes = answer.fail({"internal_error", "gone"});
    EXPECT_EQ(bytes, R"(data: {"error":{"message":"gone","type":"internal_error","param":null,)"
                     "\"code\":\"internal_error\"}}\n\n");
    EXPECT_EQ(answer.fail({"internal_error", "gone"}), "");
    EXPECT_EQ(answer.finish(BackendFinish::stop), "");
}

TEST(Codec, LogProbabilitiesMustBeOneForEachId) {
    const Codec codec = tiny_codec();
    AnswerStream answer = codec.answer(encoded(codec, Protocol::chat, kChat), {.id = "A"});
    const std::vector<TokenId> ids = codec.tokenizer().encode("ab cd", false);
    const std::vector<TokenLogprob> logprobs(ids.size() + 1);
    EXPECT_EQ(answer.push(ids, logprobs).status().code(), StatusCode::invalid_argument);
}

TEST(Codec, ProfilesAreThoseOfTheOptions) {
    const std::string body = R"({"model":"DeepSeek-V4.1-Flash","n":2,)" + std::string(kChat) + "}";
    EXPECT_TRUE(tiny_codec(Profile::open).encode(Protocol::chat, body).ok());
    EXPECT_EQ(tiny_codec(Profile::reference).encode(Protocol::chat, body).status().message(),
              "Invalid n value (currently only n = 1 is supported)");
}

TEST(Codec, ProtocolsHaveNames) {
    for (const Protocol protocol : {Protocol::chat, Protocol::messages, Protocol::responses})
        EXPECT_EQ(parse_protocol(protocol_name(protocol)).value(), protocol);
    EXPECT_EQ(parse_protocol("smoke").status().message(),
              "protocol \"smoke\" is none of chat, messages, responses");
}

}  // namespace
}  // namespace fathom
