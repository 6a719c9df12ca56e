#include "gateway/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "base/json.h"
#include "gateway/testing/http_client.h"
#include "gateway/testing/scripted_engine.h"

namespace fathom {
namespace {

using ::testing::AllOf;
using testing::byte_ids;
using testing::ByteTokenizer;
using ::testing::HasSubstr;
using testing::http_get;
using testing::http_post;
using testing::HttpAnswer;
using testing::HttpClient;
using ::testing::Not;
using testing::Script;
using testing::ScriptedCore;

const std::string kPlainChat =
    R"({"model":"test","messages":[{"role":"user","content":"Hi"}],"max_tokens":64,)"
    R"("thinking":{"type":"disabled"})";
const std::string kCompletion = R"({"model":"test","prompt":"Hi","max_tokens":64)";
const std::string kChatPath = "/v1/chat/completions";
const std::string kCompletionPath = "/v1/completions";

class ServerTest : public ::testing::Test {
  protected:
    ServerTest()
        : script_(std::make_shared<Script>()),
          engine_(std::make_unique<Engine>(std::make_unique<ScriptedCore>(script_, real_clock()))) {
        options_.port = 0;
        options_.owner.model_name = "test";
        reply("Hello!");
    }
    ~ServerTest() override {
        server_.reset();
        engine_.reset();
    }
    std::uint16_t port() {
        if (!server_) {
            auto server = Server::create(options_, *engine_, std::make_shared<ByteTokenizer>(),
                                         metrics_, clock_);
            EXPECT_TRUE(server.ok()) << server.status().message();
            server_ = std::move(*server);
        }
        return server_->port();
    }
    void reply(const std::string& text) {
        script_->with([&](Script& s) { s.reply = [text](auto&) { return byte_ids(text); }; });
    }
    void hold(bool on) {
        script_->with([on](Script& s) { s.hold = on; });
    }
    HttpAnswer ask(const std::string& request) {
        HttpClient client(port());
        EXPECT_TRUE(client.send(request));
        return client.answer();
    }
    // Polls until the condition holds; the things waited for happen on other threads.
    static bool eventually(const std::function<bool()>& done) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!done()) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::this_thread::yield();
        }
        return true;
    }
    bool engine_has(std::size_t live) {
        return eventually([&] { return script_->with([](Script& s) { return s.live; }) == live; });
    }
    bool cancelled(std::size_t count) {
        return eventually(
            [&] { return script_->with([](Script& s) { return s.cancelled.size(); }) == count; });
    }

    ManualClock clock_;
    MetricsRegistry metrics_;
    std::shared_ptr<Script> script_;
    std::unique_ptr<Engine> engine_;
    ServerOptions options_;
    std::unique_ptr<Server> server_;
};

Json parsed(const std::string& text) {
    auto json = parse_json(text);
    EXPECT_TRUE(json.ok()) << text;
    return json.ok() ? *json : Json();
}

TEST_F(ServerTest, AnswersAWholeChat) {
    const HttpAnswer got = ask(http_post(kChatPath, kPlainChat + "}", "x-request-id: mine-1\r\n"));
    EXPECT_EQ(got.status, 200);
    EXPECT_EQ(got.header("content-type"), "application/json");
    EXPECT_EQ(got.header("x-request-id"), "mine-1");
    const Json body = parsed(got.body);
    const Json& choice = body.find("choices")->items().at(0);
    EXPECT_EQ(choice.find("message")->find("content")->as_string(), "Hello!");
    EXPECT_EQ(choice.find("finish_reason")->as_string(), "stop");
    EXPECT_EQ(body.find("id")->as_string().size(), 36u);
    const Json& usage = *body.find("usage");
    EXPECT_EQ(usage.find("completion_tokens")->as_int64(), 7);
    EXPECT_EQ(usage.find("total_tokens")->as_int64(), usage.find("prompt_tokens")->as_int64() + 7);
}

TEST_F(ServerTest, StreamsAChatToDone) {
    reply("deep</think>Yes");
    const HttpAnswer got = ask(http_post(
        kChatPath,
        R"({"model":"test","messages":[{"role":"user","content":"Hi"}],"max_tokens":64,"stream":true})"));
    EXPECT_EQ(got.status, 200);
    EXPECT_EQ(got.header("content-type"), "text/event-stream");
    std::string reasoning, content;
    std::size_t at = 0;
    int usages = 0;
    bool done = false;
    while (got.body.compare(at, 6, "data: ") == 0) {
        const std::size_t end = got.body.find("\n\n", at);
        const std::string data = got.body.substr(at + 6, end - at - 6);
        at = end + 2;
        if (data == "[DONE]") {
            done = true;
            continue;
        }
        const Json chunk = parsed(data);
        const Json& delta = *chunk.find("choices")->items().at(0).find("delta");
        if (const Json* text = delta.find("reasoning_content"); text && text->is_string())
            reasoning += text->as_string();
        if (const Json* text = delta.find("content"); text && text->is_string())
            content += text->as_string();
        if (chunk.find("usage") != nullptr) ++usages;
    }
    EXPECT_EQ(at, got.body.size());
    EXPECT_TRUE(done);
    EXPECT_EQ(reasoning, "deep");
    EXPECT_EQ(content, "Yes");
    EXPECT_EQ(usages, 1);
}

TEST_F(ServerTest, AnswersCompletions) {
    const HttpAnswer whole = ask(http_post(kCompletionPath, kCompletion + "}"));
    EXPECT_THAT(whole.body, HasSubstr(R"("text":"Hello!")"));
    const HttpAnswer streamed = ask(http_post(kCompletionPath, kCompletion + R"(,"stream":true})"));
    EXPECT_THAT(streamed.body, AllOf(HasSubstr(R"("text":"!")"), HasSubstr("data: [DONE]\n\n")));
}

TEST_F(ServerTest, AStreamThatEndsWithItsFirstTokenIsAWholeAnswer) {
    reply("");
    const std::pair<std::string, std::string> requests[] = {
        {kCompletionPath, kCompletion},
        {kChatPath, kPlainChat},
        {"/v1/messages", kPlainChat},
        {"/v1/responses", R"({"model":"test","input":"Hi","max_output_tokens":64)"},
    };
    for (const auto& [path, body] : requests) {
        SCOPED_TRACE(path);
        const HttpAnswer got = ask(http_post(path, body + R"(,"stream":true})"));
        EXPECT_EQ(got.status, 200);
        EXPECT_EQ(got.header("content-type"), "text/event-stream");
        EXPECT_TRUE(got.complete);
        EXPECT_THAT(got.body, HasSubstr("data: {"));
    }
}

TEST_F(ServerTest, AnswersSeveralChoicesWithLogprobs) {
    script_->with([](Script& s) {
        s.reply = [](const EngineRequest& r) {
            return testing::byte_ids(r.sampling.seed == 4 ? "Hi" : "Hello");
        };
    });
    const std::string members =
        R"(,"n":2,"seed":4,"logprobs":true,"top_logprobs":1,"logprobs_mode":"processed")";
    const Json body = parsed(ask(http_post(kChatPath, kPlainChat + members + "}")).body);
    const Json::Array& choices = body.find("choices")->items();
    ASSERT_EQ(choices.size(), 2u);
    EXPECT_EQ(choices[0].find("message")->find("content")->as_string(), "Hi");
    EXPECT_EQ(choices[1].find("message")->find("content")->as_string(), "Hello");
    EXPECT_EQ(choices[1].find("index")->as_int64(), 1);
    const Json& logprobs = *choices[1].find("logprobs");
    EXPECT_EQ(body.find("fathom")->find("logprobs_mode")->as_string(), "processed");
    ASSERT_EQ(logprobs.find("content")->items().size(), 5u);
    EXPECT_EQ(logprobs.find("content")->items()[0].find("token")->as_string(), "H");
    EXPECT_EQ(body.find("usage")->find("completion_tokens")->as_int64(), 9);

    const std::string streamed =
        ask(http_post(kChatPath, kPlainChat + members + R"(,"stream":true})")).body;
    std::vector<std::string> text(2);
    std::vector<int> entries(2), ends(2);
    int usages = 0;
    for (std::size_t at = 0; streamed.compare(at, 7, "data: {") == 0;) {
        const std::size_t end = streamed.find("\n\n", at);
        const Json chunk = parsed(streamed.substr(at + 6, end - at - 6));
        at = end + 2;
        const Json& choice = chunk.find("choices")->items().at(0);
        const auto index = static_cast<std::size_t>(choice.find("index")->as_int64());
        text.at(index) += choice.find("delta")->find("content")->as_string();
        if (const Json* content = choice.find("logprobs")->find("content"))
            entries[index] += static_cast<int>(content->items().size());
        ends[index] += choice.find("finish_reason")->is_null() ? 0 : 1;
        if (chunk.find("usage") != nullptr) ++usages;
    }
    EXPECT_EQ(text, (std::vector<std::string>{"Hi", "Hello"}));
    EXPECT_EQ(entries, (std::vector<int>{2, 5}));
    EXPECT_EQ(ends, (std::vector<int>{1, 1}));
    EXPECT_EQ(usages, 1);
    EXPECT_THAT(streamed, ::testing::EndsWith("data: [DONE]\n\n"));
}

TEST_F(ServerTest, AClientThatLeavesCancelsEveryChoice) {
    hold(true);
    {
        HttpClient client(port());
        ASSERT_TRUE(client.send(http_post(kChatPath, kPlainChat + R"(,"n":3})")));
        ASSERT_TRUE(engine_has(3));
    }
    EXPECT_TRUE(cancelled(3));
    EXPECT_TRUE(engine_has(0));
}

TEST_F(ServerTest, SameSeedReachesTheEngineAndNoSeedIsDrawn) {
    ask(http_post(kChatPath, kPlainChat + R"(,"seed":11})"));
    ask(http_post(kChatPath, kPlainChat + "}"));
    ask(http_post(kChatPath, kPlainChat + "}"));
    const auto received = script_->with([](Script& s) { return s.received; });
    EXPECT_EQ(received.at(0).sampling.seed, 11u);
    EXPECT_NE(received.at(1).sampling.seed, received.at(2).sampling.seed);
}

struct RouteRow {
    const char* name;
    std::string request;
    int status;
    const char* body;  // part of it
};

TEST_F(ServerTest, RoutesAndTheirRefusals) {
    port();
    const std::vector<RouteRow> rows = {
        {"models", http_get("/v1/models"), 200, R"("id":"test")"},
        {"models_query", http_get("/v1/models?x=1"), 200, R"("max_model_len":4096)"},
        {"model", http_get("/v1/models/test"), 200, R"("object":"model")"},
        {"model_unknown", http_get("/v1/models/nope"), 404, "There is no model nope."},
        {"health", http_get("/health"), 200, "ok"},
        {"liveness", http_get("/liveness"), 200, "alive"},
        {"readiness", http_get("/readiness"), 503, "not ready yet"},
        {"metrics", http_get("/metrics"), 200, "# TYPE fathom_http_connections gauge"},
        {"unknown", http_get("/v2/x"), 404, "There is no route /v2/x."},
        {"wrong_method", http_get(kChatPath), 405, "does not support GET, expected POST."},
        {"delete", "DELETE /health HTTP/1.1\r\nHost: a\r\n\r\n", 405, "expected GET."},
        {"gzip", http_post(kChatPath, "x", "content-encoding: gzip\r\n"), 415,
         "Content-Encoding gzip is not supported"},
        {"timeout_text", http_post(kChatPath, kPlainChat + "}", "x-request-timeout: soon\r\n"), 400,
         R"(Invalid x-request-timeout \"soon\", expected seconds in (0, 86400])"},
        {"bad_json", http_post(kChatPath, "{"), 400, "invalid JSON request: "},
        {"too_long",
         http_post(kChatPath, R"({"model":"test","messages":[{"role":"user","content":")" +
                                  std::string(5000, 'a') + R"("}]})"),
         400, "This model's maximum context length is 4096 tokens."},
        {"not_http", "NOT HTTP\r\n\r\n", 400, "The request is not valid HTTP"},
        {"no_host", "GET /health HTTP/1.1\r\n\r\n", 400, "0 Host headers"},
        {"whole_address", http_get("http://somewhere/health"), 200, "ok"},
        {"version", "GET /health HTTP/3.0\r\nHost: a\r\n\r\n", 505, "invalid_request_error"},
        {"encoding", "POST /v1/prompt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501,
         "invalid_request_error"},
        {"expect", "POST /v1/prompt HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", 417,
         "invalid_request_error"},
        {"chunk_size",
         "POST /v1/prompt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400,
         "The request is not valid HTTP"},
    };
    for (const RouteRow& row : rows) {
        const HttpAnswer got = ask(row.request);
        EXPECT_EQ(got.status, row.status) << row.name << ": " << got.body;
        EXPECT_THAT(got.body, HasSubstr(row.body)) << row.name;
        if (row.status < 400) continue;
        const Json body = parsed(got.body);
        ASSERT_NE(body.find("error"), nullptr) << row.name;
        for (const char* field : {"message", "type", "param", "code"})
            EXPECT_NE(body.find("error")->find(field), nullptr) << row.name;
    }
    server_->set_ready(true);
    EXPECT_EQ(ask(http_get("/readiness")).status, 200);
}

TEST_F(ServerTest, HealthSaysWhenSomethingIsImpaired) {
    std::atomic<bool> degraded{true};
    options_.degraded = [&] { return degraded.load(); };
    const HttpAnswer ill = ask(http_get("/health"));
    EXPECT_EQ(ill.status, 200);
    EXPECT_EQ(ill.body, R"({"status":"degraded"})");
    degraded = false;
    EXPECT_EQ(ask(http_get("/health")).body, R"({"status":"ok"})");
}

TEST_F(ServerTest, HeadHasNoBody) {
    HttpClient client(port());
    client.send("HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n" + http_get("/liveness"));
    EXPECT_EQ(client.answer(true).status, 200);
    EXPECT_THAT(client.answer().body, HasSubstr("alive"));
}

TEST_F(ServerTest, KeysGuardWhatTellsOrCosts) {
    options_.api_keys = {"secret-1", "secret-2"};
    for (const char* path : {"/health", "/liveness", "/readiness"})
        EXPECT_NE(ask(http_get(path)).status, 401) << path;
    for (const char* path : {"/v1/models", "/metrics", "/v1/models/test"}) {
        EXPECT_EQ(ask(http_get(path)).status, 401) << path;
        EXPECT_EQ(ask(http_get(path, "Authorization: Bearer wrong\r\n")).status, 401) << path;
        EXPECT_EQ(ask(http_get(path, "Authorization: Bearer secret-2\r\n")).status, 200) << path;
    }
    const HttpAnswer refused = ask(http_post(kChatPath, kPlainChat + "}"));
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused.header("www-authenticate"), "Bearer");
    EXPECT_THAT(refused.body, Not(HasSubstr("secret")));
    EXPECT_EQ(
        ask(http_post(kChatPath, kPlainChat + "}", "authorization: bearer secret-1\r\n")).status,
        200);
}

TEST_F(ServerTest, RefusesToStartUnsafelyOrTwice) {
    const auto create = [&](const ServerOptions& options) {
        return Server::create(options, *engine_, std::make_shared<ByteTokenizer>(), metrics_)
            .status();
    };
    ServerOptions open = options_;
    open.host = "0.0.0.0";
    EXPECT_EQ(create(open).message(),
              "refusing to listen on 0.0.0.0 without an API key: set at least one, or use "
              "127.0.0.1");
    open.api_keys = {"k"};
    EXPECT_TRUE(create(open).ok());
    ServerOptions named = options_;
    named.host = "example.org";
    EXPECT_THAT(create(named).message(), HasSubstr("expected a numeric IPv4 or IPv6 address"));
    ServerOptions nameless = options_;
    nameless.owner.model_name.clear();
    EXPECT_EQ(create(nameless).code(), StatusCode::invalid_argument);
    ServerOptions taken = options_;
    taken.port = port();
    EXPECT_EQ(create(taken).code(), StatusCode::unavailable);
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrder) {
    HttpClient client(port());
    client.send(http_post(kCompletionPath, kCompletion + "}") + http_get("/liveness") +
                http_post(kCompletionPath, kCompletion + R"(,"stream":true})") +
                http_get("/nowhere") + http_get("/health"));
    EXPECT_THAT(client.answer().body, HasSubstr("Hello!"));
    EXPECT_THAT(client.answer().body, HasSubstr("alive"));
    EXPECT_THAT(client.answer().body, HasSubstr("[DONE]"));
    EXPECT_EQ(client.answer().status, 404);
    EXPECT_THAT(client.answer().body, HasSubstr("ok"));
}

TEST_F(ServerTest, AnswersWhatCameBeforeAHalfClose) {
    HttpClient client(port());
    client.send(http_get("/liveness") + http_get("/health"));
    client.half_close();
    EXPECT_THAT(client.answer().body, HasSubstr("alive"));
    EXPECT_THAT(client.answer().body, HasSubstr("ok"));
    EXPECT_TRUE(client.wait_for_end());
}

TEST_F(ServerTest, HttpTenGetsAnUnframedStreamAndAnEnd) {
    HttpClient client(port());
    const std::string body = kCompletion + R"(,"stream":true})";
    client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    const HttpAnswer got = client.answer();
    EXPECT_EQ(got.status, 200);
    EXPECT_EQ(got.header("transfer-encoding"), "");
    EXPECT_THAT(got.body, HasSubstr("data: [DONE]\n\n"));
}

TEST_F(ServerTest, AsksForABodyThatWaitsForPermission) {
    HttpClient client(port());
    const std::string body = kPlainChat + "}";
    client.send(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n");
    ASSERT_TRUE(client.wait_for("HTTP/1.1 100 Continue\r\n\r\n"));
    client.send(body);
    EXPECT_THAT(client.answer().body, HasSubstr("Hello!"));
}

TEST_F(ServerTest, RefusesBeforeTheBodyComes) {
    options_.body_bytes_max = 1000;
    for (const auto& [path, length, status] :
         {std::tuple{"/nowhere", 10, 404}, std::tuple{"/v1/completions", 1001, 413}}) {
        HttpClient client(port());
        client.send("POST " + std::string(path) +
                    " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: " +
                    std::to_string(length) + "\r\n\r\n");
        const HttpAnswer got = client.answer();
        EXPECT_EQ(got.status, status);
        EXPECT_EQ(got.header("connection"), "close");
        EXPECT_TRUE(client.wait_for_end());
    }
}

TEST_F(ServerTest, ReadsChunkedBodies) {
    HttpClient client(port());
    const std::string body = kPlainChat + "}";
    client.send(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (const char c : body)
        client.send(std::string("1\r\n") + c + "\r\n");
    client.send("0\r\n\r\n");
    EXPECT_THAT(client.answer().body, HasSubstr("Hello!"));
}

TEST_F(ServerTest, SlowHeaderAndBodyAndIdleConnectionsEnd) {
    HttpClient header(port()), body(port()), idle(port());
    header.send("GET /health HT");
    body.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{");
    idle.send(http_get("/health"));
    EXPECT_EQ(idle.answer().status, 200);
    // The server has seen all three once it has answered a request that came later.
    EXPECT_EQ(ask(http_get("/health")).status, 200);
    clock_.advance_us(options_.header_timeout_us);
    EXPECT_EQ(header.answer().status, 408);
    clock_.advance_us(options_.body_timeout_us);
    EXPECT_EQ(body.answer().status, 408);
    clock_.advance_us(options_.idle_timeout_us);
    EXPECT_TRUE(idle.wait_for_end());
    EXPECT_EQ(idle.buffered(), "");
    EXPECT_THAT(metrics_.expose(),
                AllOf(HasSubstr("fathom_http_dropped_total{reason=\"header_timeout\"} 1"),
                      HasSubstr("fathom_http_dropped_total{reason=\"body_timeout\"} 1"),
                      HasSubstr("fathom_http_dropped_total{reason=\"idle_timeout\"}")));
}

TEST_F(ServerTest, ConnectionsAboveTheLimitAreClosed) {
    options_.connections_max = 1;
    HttpClient first(port());
    first.send(http_get("/health"));
    EXPECT_EQ(first.answer().status, 200);
    HttpClient second(port());
    EXPECT_TRUE(second.wait_for_end());
    first.send(http_get("/health"));
    EXPECT_EQ(first.answer().status, 200);
}

TEST_F(ServerTest, RequestsAboveTheLimitGet429) {
    options_.owner.in_flight_max = 1;
    hold(true);
    HttpClient first(port());
    first.send(http_post(kChatPath, kPlainChat + "}"));
    ASSERT_TRUE(engine_has(1));
    for (const char* stream : {"}", R"(,"stream":true})"}) {
        const HttpAnswer refused = ask(http_post(kChatPath, kPlainChat + stream));
        EXPECT_EQ(refused.status, 429);
        EXPECT_EQ(refused.header("retry-after"), "1");
        EXPECT_THAT(refused.body, HasSubstr("rate_limit_error"));
    }
    hold(false);
    EXPECT_THAT(first.answer().body, HasSubstr("Hello!"));
}

TEST_F(ServerTest, EngineRefusalKeepsItsStatusInAStream) {
    script_->with([](Script& s) {
        s.refuse = [](auto&) { return error(StatusCode::resource_exhausted, "queue is full"); };
    });
    const HttpAnswer got = ask(http_post(kChatPath, kPlainChat + R"(,"stream":true})"));
    EXPECT_EQ(got.status, 429);
    EXPECT_THAT(got.body, HasSubstr("queue is full"));
}

TEST_F(ServerTest, ClientsThatLeaveCancelStreamedOrNot) {
    hold(true);
    std::size_t gone = 0;
    for (const char* stream : {"}", R"(,"stream":true})"}) {
        for (const bool reset : {false, true}) {
            HttpClient client(port());
            client.send(http_post(kChatPath, kPlainChat + stream));
            ASSERT_TRUE(engine_has(1));
            if (reset) {
                client.reset();
            } else {
                client.close();
            }
            EXPECT_TRUE(cancelled(++gone)) << stream << reset;
            EXPECT_TRUE(engine_has(0));
        }
    }
    EXPECT_TRUE(eventually([&] { return server_->owners().live() == 0; }));
}

TEST_F(ServerTest, ClientThatLeavesInTheMiddleOfAStreamCancels) {
    script_->with([](Script& s) {
        s.reply = [](auto&) { return std::vector<TokenId>(3000, 'a'); };
        s.edit = [&s](EngineEvent& event) {
            if (event.first_index == 5) s.hold = true;
            return true;
        };
    });
    HttpClient client(port());
    client.send(http_post(kCompletionPath,
                          R"({"model":"test","prompt":"Hi","max_tokens":3000,"stream":true})"));
    ASSERT_TRUE(client.wait_for("\"text\":\"a"));
    client.close();
    EXPECT_TRUE(cancelled(1));
}

TEST_F(ServerTest, ClientThatDoesNotReadIsDropped) {
    options_.output_bytes_max = 64 << 10;
    script_->with(
        [](Script& s) { s.reply = [](auto&) { return std::vector<TokenId>(4000, 'a'); }; });
    HttpClient client(port(), 4096);
    // Many streams on one connection: the small socket buffers fill, then the server's.
    const std::string request = http_post(
        kCompletionPath, R"({"model":"test","prompt":"Hi","max_tokens":4000,"stream":true})");
    std::string all;
    for (int i = 0; i < 40; ++i)
        all += request;
    client.send(all);
    EXPECT_TRUE(eventually([&] {
        return metrics_.expose().find("fathom_http_dropped_total{reason=\"slow_client\"} 1") !=
               std::string::npos;
    }));
    EXPECT_TRUE(engine_has(0));
    EXPECT_TRUE(eventually([&] { return server_->owners().live() == 0; }));
}

TEST_F(ServerTest, KeepAliveWhileQueued) {
    hold(true);
    HttpClient whole(port()), streamed(port());
    whole.send(http_post(kChatPath, kPlainChat + "}"));
    streamed.send(http_post(kChatPath, kPlainChat + R"(,"stream":true})"));
    ASSERT_TRUE(engine_has(2));
    clock_.advance_us(options_.keep_alive_us);
    EXPECT_TRUE(streamed.wait_for(": keep-alive\n\n"));
    EXPECT_TRUE(whole.wait_for("\r\n\r\n1\r\n\n\r\n"));
    clock_.advance_us(options_.keep_alive_us);
    EXPECT_TRUE(whole.wait_for("1\r\n\n\r\n1\r\n\n\r\n"));
    hold(false);
    const HttpAnswer body = whole.answer();
    EXPECT_TRUE(body.complete);
    EXPECT_EQ(parsed(body.body).find("object")->as_string(), "chat.completion");
    EXPECT_THAT(streamed.answer().body, HasSubstr("[DONE]"));
}

TEST_F(ServerTest, FailureInAStreamIsAnErrorEventWithoutDone) {
    script_->with([](Script& s) {
        s.edit = [](EngineEvent& event) {
            if (event.first_index >= 2) event.first_index += 1;  // a gap in every attempt
            return true;
        };
    });
    HttpClient client(port());
    client.send(http_post(kChatPath, kPlainChat + R"(,"stream":true})") + http_get("/health"));
    const HttpAnswer got = client.answer();
    EXPECT_EQ(got.status, 200);
    EXPECT_THAT(got.body, AllOf(HasSubstr(R"("content":"e")"),
                                HasSubstr("gave up after 3 attempts"), Not(HasSubstr("[DONE]"))));
    EXPECT_EQ(client.answer().status, 200);  // the connection itself is fine
    EXPECT_EQ(ask(http_post(kChatPath, kPlainChat + "}")).status, 500);
}

TEST_F(ServerTest, RequestTimeOutIs408) {
    hold(true);
    HttpClient client(port());
    client.send(http_post(kChatPath, kPlainChat + "}", "x-request-timeout: 1.5\r\n"));
    ASSERT_TRUE(engine_has(1));
    clock_.advance_us(1'500'000);
    const HttpAnswer got = client.answer();
    EXPECT_EQ(got.status, 408);
    EXPECT_THAT(got.body, HasSubstr("time-out of 1500 ms"));
    EXPECT_TRUE(engine_has(0));
}

TEST_F(ServerTest, DrainLetsAnswersEndAndTakesNoMore) {
    hold(true);
    HttpClient busy(port()), idle(port());
    busy.send(http_post(kChatPath, kPlainChat + "}"));
    idle.send(http_get("/health"));
    EXPECT_EQ(idle.answer().status, 200);
    ASSERT_TRUE(engine_has(1));
    server_->shutdown(Server::Shutdown::drain);
    EXPECT_TRUE(idle.wait_for_end());
    hold(false);
    const HttpAnswer got = busy.answer();
    EXPECT_THAT(got.body, HasSubstr("Hello!"));
    EXPECT_EQ(got.header("connection"), "close");
    busy.close();
    server_->wait();
    EXPECT_FALSE(HttpClient(server_->port()).connected());
}

TEST_F(ServerTest, DrainEndsWithCancellationAtItsLimit) {
    hold(true);
    HttpClient whole(port()), streamed(port());
    whole.send(http_post(kChatPath, kPlainChat + "}"));
    streamed.send(http_post(kChatPath, kPlainChat + R"(,"stream":true})"));
    ASSERT_TRUE(engine_has(2));
    clock_.advance_us(options_.keep_alive_us);
    ASSERT_TRUE(streamed.wait_for(": keep-alive\n\n"));
    ASSERT_TRUE(whole.wait_for("1\r\n\n"));
    server_->shutdown(Server::Shutdown::drain);
    EXPECT_TRUE(eventually([&] { return !HttpClient(server_->port()).connected(); }));
    clock_.advance_us(options_.drain_us);
    EXPECT_THAT(whole.answer().body, HasSubstr("overloaded_error"));
    EXPECT_THAT(streamed.answer().body, AllOf(HasSubstr("error"), Not(HasSubstr("[DONE]"))));
    whole.close();
    streamed.close();
    server_->wait();
    EXPECT_TRUE(engine_has(0));
}

TEST_F(ServerTest, ShutdownWithLiveRequestsOutsideHttpFinishesThem) {
    port();
    hold(true);
    struct Result : GenerationObserver {
        void on_events(const OutputParser::Events&) override {}
        void on_finish(const GenerationResult& r) override { finish = r.finish; }
        std::optional<GenerationFinish> finish;
    };
    auto observer = std::make_shared<Result>();
    PreparedRequest request;
    request.prompt = {1};
    ASSERT_TRUE(server_->owners().start(request, observer).ok());
    server_->shutdown(Server::Shutdown::cancel);
    server_->wait();
    EXPECT_EQ(observer->finish, GenerationFinish::cancelled);
}

}  // namespace
}  // namespace fathom
