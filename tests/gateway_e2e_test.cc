// The real program with the tiny model behind a real client, curl.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <sstream>

#include "base/json.h"
#include "gateway_process.h"

namespace fathom {
namespace {

using ::testing::AllOf;
using testing::Child;
using ::testing::HasSubstr;
using testing::http_get;
using testing::http_post;
using ::testing::Not;
using testing::ServeProcess;

const char* const kChat =
    R"({"model":"tiny","messages":[{"role":"user","content":"What comes after Friday?"}],)"
    R"("temperature":0,"max_tokens":32,"thinking":{"type":"disabled"})";

bool available(const char* program) {
    Child probe({"sh", "-c", std::string("command -v ") + program});
    return probe.finish() == 0;
}

std::string curl(const std::vector<std::string>& arguments, const std::string& input = {}) {
    std::vector<std::string> words = {"curl",        "--silent",   "--show-error",
                                      "--no-buffer", "--max-time", "120"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    Child child(words);
    child.write_input(input);
    EXPECT_EQ(child.finish(), 0) << child.err();
    return child.out();
}

TEST(GatewayEndToEnd, CurlStreamsAChatAndACompletion) {
    if (!available("curl")) GTEST_SKIP() << "curl is not installed";
    ServeProcess server;
    const std::string json = "content-type: application/json";
    const std::string whole =
        curl({"-H", json, "-d", std::string(kChat) + "}", server.url() + "/v1/chat/completions"});
    const auto answer = parse_json(whole);
    ASSERT_TRUE(answer.ok()) << whole;
    const std::string text =
        answer->find("choices")->items().at(0).find("message")->find("content")->as_string();
    EXPECT_THAT(text, HasSubstr("Saturday"));

    const std::string stream = curl({"-H", json, "-d", std::string(kChat) + R"(,"stream":true})",
                                     server.url() + "/v1/chat/completions"});
    EXPECT_THAT(stream, AllOf(HasSubstr("chat.completion.chunk"), HasSubstr("\"usage\":{"),
                              HasSubstr("data: [DONE]\n\n")));
    const std::string completion =
        curl({"-d", R"({"model":"tiny","prompt":"Once upon","max_tokens":1,"stream":true})",
              server.url() + "/v1/completions"});
    EXPECT_THAT(completion, AllOf(HasSubstr("text_completion"), HasSubstr("\"finish_reason\":\""),
                                  HasSubstr("[DONE]")));
    // A body beyond curl's threshold makes it ask first (Expect: 100-continue).
    const std::string refused =
        curl({"-H", json, "--data-binary", "@-", server.url() + "/v1/completions"},
             R"({"model":"tiny","prompt":")" + std::string(1'100'000, 'a') + "\"}");
    EXPECT_THAT(refused, HasSubstr("maximum context length"));
}

TEST(GatewayEndToEnd, HealthReadinessModelsAndMetrics) {
    ServeProcess server;
    EXPECT_EQ(server.ask(http_get("/health")).status, 200);
    EXPECT_EQ(server.ask(http_get("/readiness")).status, 200);
    EXPECT_THAT(server.ask(http_get("/v1/models")).body, HasSubstr("\"max_model_len\":"));
    server.ask(http_post("/v1/chat/completions", std::string(kChat) + "}"));
    const std::string metrics = server.ask(http_get("/metrics")).body;
    for (const char* name :
         {"vllm:e2e_request_latency_seconds_count{model_name=\"tiny\"}",
          "vllm:time_to_first_token_seconds_count", "vllm:inter_token_latency_seconds_count",
          "vllm:request_success_total{finished_reason=\"stop\",model_name=\"tiny\"}",
          "vllm:num_requests_running", "vllm:kv_cache_usage_perc", "fathom_http_connections"})
        EXPECT_THAT(metrics, HasSubstr(name));
    if (!available("promtool")) GTEST_SKIP() << "promtool is not installed";
    Child check({"promtool", "check", "metrics"});
    check.write_input(metrics);
    const int status = check.finish();
    EXPECT_TRUE(status == 0 || status == 3) << check.err();  // 3: it reads, with remarks on style
    std::istringstream remarks(check.err() + check.out());
    // vLLM's names are kept as they are; ours must please.
    for (std::string line; std::getline(remarks, line);)
        EXPECT_EQ(line.rfind("vllm:", 0), 0u) << line;
}

struct Turn {
    std::string answer, source;
    std::int64_t prompt_tokens = 0, cached_tokens = 0;
    std::size_t replays = 0;
};

// One turn of a chat; `messages` grows by the answer.
Turn chat_turn(ServeProcess& server, Json& messages, const std::string& say, const char* reuse) {
    messages.push_back(Json::object({{"role", Json("user")}, {"content", Json(say)}}));
    Json body = Json::object({{"model", Json("tiny")}, {"temperature", Json(0)}});
    body.set("messages", messages);
    body.set("max_tokens", Json(180));
    body.set("prefix_cache", Json(reuse));
    body.set("thinking", Json::object({{"type", Json("disabled")}}));
    const std::string text = server.ask(http_post("/v1/chat/completions", body.dump())).body;
    const auto reply = parse_json(text);
    EXPECT_TRUE(reply.ok()) << text;
    Turn turn;
    if (!reply.ok() || reply->find("choices") == nullptr) return turn;
    const Json& message = *reply->find("choices")->items().at(0).find("message");
    turn.answer = message.find("content")->as_string();
    const Json& usage = *reply->find("usage");
    turn.prompt_tokens = usage.find("prompt_tokens")->as_int64();
    turn.cached_tokens = usage.find("prompt_tokens_details")->find("cached_tokens")->as_int64();
    const Json& anchors = *reply->find("fathom")->find("anchors");
    turn.source = anchors.find("window_source")->as_string();
    turn.replays = anchors.find("replays")->items().size();
    messages.push_back(Json::object({{"role", Json("assistant")}, {"content", Json(turn.answer)}}));
    return turn;
}

TEST(GatewayEndToEnd, AConversationFindsItsPastAndAnswersAsIfItHadNot) {
    ServeProcess server;
    Json warm = Json::array(), cold = Json::array();
    std::string say = "Tell me a story about";
    for (int i = 0; i < 60; ++i)
        say += " a fox, a hen and";
    std::int64_t cached = 0;
    for (int turn = 0; turn < 3; ++turn) {
        const Turn found = chat_turn(server, warm, say + " a boat.", "exact");
        const Turn alone = chat_turn(server, cold, say + " a boat.", "none");
        EXPECT_EQ(found.answer, alone.answer);
        EXPECT_EQ(found.prompt_tokens, alone.prompt_tokens);
        EXPECT_EQ(alone.cached_tokens, 0);
        EXPECT_EQ(found.replays, 0u);
        EXPECT_EQ(found.source, turn > 0 ? "snapshot" : "none");
        EXPECT_GE(found.cached_tokens, cached);
        cached = found.cached_tokens;
        say =
            "And what did the fox say to the hen on the way home, before the boat left them there";
    }
    EXPECT_GT(cached, 0);
    EXPECT_THAT(server.ask(http_get("/metrics")).body, HasSubstr("fathom_snapshot_hits_total 2"));
}

TEST(GatewayEndToEnd, TerminateDrainsAndEndsWell) {
    ServeProcess server;
    testing::HttpClient client(server.port());
    client.send(http_post(
        "/v1/completions",
        R"({"model":"tiny","prompt":"Once","temperature":0,"max_tokens":40,"stream":true})"));
    ASSERT_TRUE(client.wait_for("data: "));
    server.child().send_signal(SIGTERM);
    EXPECT_THAT(client.answer().body, HasSubstr("[DONE]"));
    client.close();
    EXPECT_EQ(server.child().finish(), 0) << server.child().err();
}

TEST(GatewayEndToEnd, PublicAddressNeedsAKey) {
    Child open({FATHOM_PROGRAM, "serve", "--model", testing::source_path("models/tiny"), "--host",
                "0.0.0.0", "--port", "0"});
    EXPECT_NE(open.finish(), 0);
    EXPECT_THAT(open.err(), HasSubstr("without an API key"));
    ServeProcess server({"--api-key", "s3cret"});
    EXPECT_EQ(server.ask(http_get("/v1/models")).status, 401);
    EXPECT_EQ(server.ask(http_get("/v1/models", "Authorization: Bearer s3cret\r\n")).status, 200);
    server.child().send_signal(SIGTERM);
    server.child().finish();
    EXPECT_THAT(server.child().err() + server.child().out(), Not(HasSubstr("s3cret")));
}

}  // namespace
}  // namespace fathom
