// The routes of all protocols over HTTP against scripted output: their events, whole answers, tool
// calls, errors, stored responses, counting and inspection.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "gateway/preparation.h"
#include "gateway/server.h"
#include "gateway/testing/http_client.h"
#include "gateway/testing/scripted_engine.h"

namespace fathom {
namespace {

using ::testing::AllOf;
using testing::byte_ids;
using testing::ByteTokenizer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::http_get;
using testing::http_post;
using testing::HttpAnswer;
using testing::HttpClient;
using ::testing::Not;
using testing::Script;
using testing::ScriptedCore;

const std::string kCalls =
    "why</think>so\n\n<｜DSML｜tool_calls>\n"
    "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Ulm"
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
    "<｜DSML｜invoke name=\"g\">\n<｜DSML｜parameter name=\"at\" string=\"false\">{\"x\": [1, 2]}"
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
const std::string kChatTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},)"
    R"({"type":"function","function":{"name":"g","parameters":{"type":"object"}}}])";
const std::string kMessagesTools = R"("tools":[{"name":"f","input_schema":{"type":"object"}},)"
                                   R"({"name":"g","input_schema":{"type":"object"}}])";
const std::string kResponsesTools =
    R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"}},)"
    R"({"type":"function","name":"g","parameters":{"type":"object"}}])";

std::string messages_body(const std::string& members = {}) {
    return R"({"model":"test","max_tokens":900,"messages":[{"role":"user","content":"Hi"}])" +
           members + "}";
}
std::string responses_body(const std::string& members = {}) {
    return R"({"model":"test","input":"Hi")" + members + "}";
}
std::string chat_body(const std::string& members = {}) {
    return R"({"model":"test","messages":[{"role":"user","content":"Hi"}])" + members + "}";
}

Json parsed(const std::string& text) {
    auto json = parse_json(text);
    EXPECT_TRUE(json.ok()) << text;
    return json.ok() ? *json : Json();
}

struct Frame {
    std::string name;
    Json data;
};

std::vector<Frame> frames(const std::string& body) {
    std::vector<Frame> all;
    for (std::size_t at = 0; at < body.size();) {
        const std::size_t end = body.find("\n\n", at);
        EXPECT_NE(end, std::string::npos) << body.substr(at);
        std::string frame = body.substr(at, end - at);
        at = end + 2;
        Frame& read = all.emplace_back();
        if (frame.starts_with("event: ")) {
            read.name = frame.substr(7, frame.find('\n') - 7);
            frame.erase(0, frame.find('\n') + 1);
        }
        EXPECT_TRUE(frame.starts_with("data: ")) << frame;
        if (frame != "data: [DONE]") read.data = parsed(frame.substr(6));
    }
    return all;
}

class ProtocolsTest : public ::testing::Test {
  protected:
    ProtocolsTest()
        : script_(std::make_shared<Script>()),
          engine_(std::make_unique<Engine>(std::make_unique<ScriptedCore>(script_, real_clock()))) {
        options_.port = 0;
        options_.owner.model_name = "test";
        script_->with([](Script& s) { s.cached_tokens = 2; });
        reply("Hello!");
    }
    ~ProtocolsTest() override {
        server_.reset();
        engine_.reset();
    }
    void reply(const std::string& text) {
        script_->with([&](Script& s) { s.reply = [text](auto&) { return byte_ids(text); }; });
    }
    HttpAnswer ask(const std::string& request) {
        if (!server_) {
            auto server = Server::create(options_, *engine_, tokenizer_, metrics_, clock_);
            EXPECT_TRUE(server.ok()) << server.status().message();
            server_ = std::move(*server);
        }
        HttpClient client(server_->port());
        EXPECT_TRUE(client.send(request));
        return client.answer();
    }
    HttpAnswer post(const std::string& path, const std::string& body,
                    const std::string& headers = {}) {
        return ask(http_post(path, body, headers));
    }

    ManualClock clock_;
    MetricsRegistry metrics_;
    std::shared_ptr<Script> script_;
    std::unique_ptr<Engine> engine_;
    std::shared_ptr<const Tokenizer> tokenizer_ = std::make_shared<ByteTokenizer>();
    ServerOptions options_;
    std::unique_ptr<Server> server_;
};

TEST_F(ProtocolsTest, MessagesGetThinkingTextAndCalls) {
    reply(kCalls);
    const Json answer = parsed(post("/v1/messages", messages_body("," + kMessagesTools)).body);
    EXPECT_EQ(answer.find("type")->as_string(), "message");
    const Json::Array& content = answer.find("content")->items();
    ASSERT_EQ(content.size(), 4u);
    EXPECT_EQ(content[0].find("thinking")->as_string(), "why");
    EXPECT_EQ(content[1].find("text")->as_string(), "so");
    EXPECT_EQ(content[2].find("input")->dump(), R"({"city":"Ulm"})");
    EXPECT_EQ(content[3].find("input")->dump(), R"({"at":{"x":[1,2]}})");
    EXPECT_NE(content[2].find("id")->as_string(), content[3].find("id")->as_string());
    EXPECT_EQ(answer.find("stop_reason")->as_string(), "tool_use");
    EXPECT_EQ(answer.find("usage")->find("cache_read_input_tokens")->as_int64(), 2);
    EXPECT_NE(answer.find("fathom")->find("anchors"), nullptr);

    const HttpAnswer got =
        post("/anthropic/v1/messages", messages_body(R"(,"stream":true,)" + kMessagesTools));
    EXPECT_EQ(got.header("content-type"), "text/event-stream");
    const std::vector<Frame> events = frames(got.body);
    std::string arguments;
    for (const Frame& frame : events) {
        EXPECT_EQ(frame.name, frame.data.find("type")->as_string());
        const Json* delta = frame.data.find("delta");
        if (frame.data.find("index") != nullptr && frame.data.find("index")->as_int64() == 3 &&
            delta != nullptr)
            arguments += delta->find("partial_json")->as_string();
    }
    EXPECT_EQ(arguments, R"({"at": {"x": [1, 2]}})");
    EXPECT_EQ(events.front().name, "message_start");
    EXPECT_EQ(events.back().name, "message_stop");
    const Json& delta = events[events.size() - 2].data;
    EXPECT_EQ(delta.find("delta")->find("stop_reason")->as_string(), "tool_use");
    EXPECT_EQ(delta.find("usage")->find("output_tokens")->as_int64(),
              answer.find("usage")->find("output_tokens")->as_int64());
    EXPECT_NE(delta.find("fathom"), nullptr);
}

TEST_F(ProtocolsTest, ResponsesGetItemsWholeAndStreamed) {
    reply(kCalls);
    const Json whole = parsed(post("/v1/responses", responses_body("," + kResponsesTools)).body);
    const Json::Array& output = whole.find("output")->items();
    ASSERT_EQ(output.size(), 4u);
    EXPECT_EQ(output[0].find("type")->as_string(), "reasoning");
    EXPECT_EQ(output[1].find("type")->as_string(), "message");
    EXPECT_EQ(output[2].find("arguments")->as_string(), R"({"city": "Ulm"})");
    EXPECT_EQ(output[3].find("name")->as_string(), "g");
    EXPECT_EQ(whole.find("status")->as_string(), "completed");
    EXPECT_EQ(whole.find("usage")->find("input_tokens_details")->find("cached_tokens")->as_int64(),
              2);

    const std::vector<Frame> events =
        frames(post("/v1/responses", responses_body(R"(,"stream":true,)" + kResponsesTools)).body);
    EXPECT_EQ(events.front().name, "response.created");
    EXPECT_EQ(events.back().name, "response.completed");
    EXPECT_EQ(events.back().data.find("response")->find("output")->items().size(), 4u);
    for (std::size_t i = 0; i < events.size(); ++i)
        EXPECT_EQ(events[i].data.find("sequence_number")->as_int64(), static_cast<std::int64_t>(i));
    EXPECT_NE(events.back().data.find("fathom"), nullptr);
}

TEST_F(ProtocolsTest, ChatsGetCallsOfEveryChoice) {
    reply(kCalls);
    const std::string body = chat_body(R"(,"n":2,)" + kChatTools);
    const Json whole = parsed(post("/v1/chat/completions", body).body);
    std::vector<std::string> ids;
    for (const Json& choice : whole.find("choices")->items()) {
        const Json& message = *choice.find("message");
        EXPECT_EQ(message.find("content")->as_string(), "so");
        EXPECT_EQ(message.find("reasoning_content")->as_string(), "why");
        EXPECT_EQ(choice.find("finish_reason")->as_string(), "tool_calls");
        ASSERT_EQ(message.find("tool_calls")->items().size(), 2u);
        for (const Json& call : message.find("tool_calls")->items())
            ids.push_back(call.find("id")->as_string());
    }
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::unique(ids.begin(), ids.end()) - ids.begin(), 4);
    EXPECT_THAT(ids[0], ::testing::StartsWith("call_00_"));
    EXPECT_THAT(ids[3], ::testing::StartsWith("call_01_"));

    const std::vector<Frame> events = frames(
        post("/v1/chat/completions", chat_body(R"(,"n":2,"stream":true,)" + kChatTools)).body);
    std::vector<std::vector<std::string>> arguments(2, std::vector<std::string>(2));
    int usages = 0;
    for (const Frame& frame : events) {
        if (frame.data.is_null()) continue;  // the end
        const Json& choice = frame.data.find("choices")->items().at(0);
        usages += frame.data.find("usage") != nullptr ? 1 : 0;
        const Json* calls = choice.find("delta")->find("tool_calls");
        if (calls == nullptr) continue;
        const Json& call = calls->items().at(0);
        arguments.at(static_cast<std::size_t>(choice.find("index")->as_int64()))
            .at(static_cast<std::size_t>(call.find("index")->as_int64())) +=
            call.find("function")->find("arguments")->as_string();
    }
    for (const auto& of_choice : arguments)
        EXPECT_THAT(of_choice, ElementsAre(R"({"city": "Ulm"})", R"({"at": {"x": [1, 2]}})"));
    EXPECT_EQ(usages, 1);
}

TEST_F(ProtocolsTest, TheProfileReferenceHasNoMemberOfItsOwn) {
    options_.api.lower.profile = Profile::reference;
    options_.messages_errors = ErrorShape::openai;
    for (const auto& [path, body] : {std::pair{"/v1/chat/completions", chat_body()},
                                     {"/v1/messages", messages_body()},
                                     {"/v1/responses", responses_body()}})
        EXPECT_THAT(post(path, body).body, Not(HasSubstr("fathom\":{"))) << path;
    EXPECT_EQ(post("/v1/messages", "{}").body,
              R"({"error":{"message":"invalid request body: missing field `model`",)"
              R"("type":"invalid_request_error","param":null,"code":"invalid_request_error"}})");
    EXPECT_THAT(post("/v1/chat/completions", chat_body(R"(,"n":2)")).body,
                HasSubstr("currently only n = 1 is supported"));
}

TEST_F(ProtocolsTest, ErrorsHaveTheShapeOfTheirProtocol) {
    const HttpAnswer messages = post("/v1/messages", messages_body(R"(,"temperature":3)"));
    EXPECT_EQ(messages.status, 400);
    EXPECT_EQ(messages.body,
              R"({"type":"error","error":{"type":"invalid_request_error","message":)"
              R"("Invalid temperature value, the valid range of temperature is [0, 2]"}})");
    const HttpAnswer method = ask(http_get("/v1/messages"));
    EXPECT_EQ(method.status, 405);
    EXPECT_THAT(method.body, HasSubstr(R"({"type":"error")"));
    const HttpAnswer responses = post("/v1/responses", responses_body(R"(,"temperature":3)"));
    EXPECT_EQ(responses.status, 400);
    EXPECT_THAT(responses.body, HasSubstr(R"({"error":{"message":)"));
    EXPECT_THAT(post("/v1/responses/input_tokens", "{").body, HasSubstr("invalid JSON request"));
    EXPECT_EQ(post("/v1/prompt?protocol=x", chat_body()).status, 400);
}

TEST_F(ProtocolsTest, AFailureInAStreamIsToldInTheProtocolsForm) {
    script_->with([](Script& s) {
        s.edit = [](EngineEvent& event) {
            if (event.first_index >= 2) event.first_index += 1;  // a gap in every attempt
            return true;
        };
    });
    const auto events = frames(
        post("/v1/messages", messages_body(R"(,"stream":true,"thinking":{"type":"disabled"})"))
            .body);
    EXPECT_EQ(events.back().name, "error");
    EXPECT_EQ(events.back().data.find("error")->find("type")->as_string(), "api_error");
    const auto items = frames(post("/v1/responses", responses_body(R"(,"stream":true)")).body);
    EXPECT_EQ(items.back().name, "response.failed");
    EXPECT_EQ(post("/v1/messages", messages_body()).status, 500);
}

TEST_F(ProtocolsTest, AStopSequenceOfMessagesIsNamed) {
    reply("</think>one two");
    const Json answer =
        parsed(post("/v1/messages", messages_body(R"(,"stop_sequences":["two"])")).body);
    EXPECT_EQ(answer.find("stop_reason")->as_string(), "stop_sequence");
    EXPECT_EQ(answer.find("stop_sequence")->as_string(), "two");
}

TEST_F(ProtocolsTest, KeysMayComeAsAnthropicsClientsSendThem) {
    options_.api_keys = {"secret"};
    EXPECT_EQ(post("/v1/messages", messages_body(), "x-api-key: secret\r\n").status, 200);
    const HttpAnswer refused = post("/v1/messages", messages_body(), "x-api-key: other\r\n");
    EXPECT_EQ(refused.status, 401);
    EXPECT_THAT(refused.body,
                HasSubstr(R"({"type":"error","error":{"type":"authentication_error")"));
    EXPECT_EQ(post("/v1/messages", messages_body(),
                   "x-api-key: secret\r\nauthorization: Bearer other\r\n")
                  .status,
              401);
}

TEST_F(ProtocolsTest, AResponseCanBeContinued) {
    const auto prompt = [&](std::size_t index) {
        return script_->with(
            [index](Script& s) { return ByteTokenizer().decode(s.received.at(index).prompt); });
    };
    reply("</think>Hello!");
    const Json first = parsed(post("/v1/responses", responses_body()).body);
    const std::string id = first.find("id")->as_string();
    EXPECT_TRUE(first.find("store")->as_bool());
    const std::string more = R"({"model":"test","input":"Again","previous_response_id":")";
    const std::vector<Frame> events =
        frames(post("/v1/responses", more + id + R"(","stream":true})").body);
    EXPECT_THAT(prompt(1), AllOf(HasSubstr("Hi<｜Assistant｜>"), HasSubstr("Hello!<｜end"),
                                 HasSubstr("<｜User｜>Again<｜Assistant｜>")));
    const Json& second = *events.back().data.find("response");
    EXPECT_EQ(second.find("previous_response_id")->as_string(), id);
    post("/v1/responses", more + second.find("id")->as_string() + R"("})");
    EXPECT_THAT(prompt(2), HasSubstr(prompt(1).substr(0, prompt(1).size() - 7)));

    const HttpAnswer got = ask(http_get("/v1/responses/" + id));
    EXPECT_EQ(got.status, 200);
    EXPECT_EQ(got.body, first.dump()) << "with the member `fathom`";
    const std::string remove = "DELETE /v1/responses/" + id + " HTTP/1.1\r\nHost: a\r\n\r\n";
    EXPECT_EQ(ask(remove).body, R"({"id":")" + id + R"(","object":"response","deleted":true})");
    EXPECT_EQ(ask(remove).status, 404);
    EXPECT_EQ(ask(http_get("/v1/responses/" + id)).status, 404);
    const HttpAnswer unknown = post("/v1/responses", more + id + R"("})");
    EXPECT_EQ(unknown.status, 404);
    EXPECT_THAT(unknown.body, AllOf(HasSubstr("Response with id '" + id + "' not found."),
                                    HasSubstr("not_found_error")));
}

TEST_F(ProtocolsTest, OnlyTheClientThatAskedFindsAResponseAndOnlyIfItMayBeStored) {
    options_.api_keys = {"one", "two"};
    const std::string one = "authorization: Bearer one\r\n", two = "authorization: Bearer two\r\n";
    const auto id_of = [&](const std::string& members) {
        return parsed(post("/v1/responses", responses_body(members), one).body)
            .find("id")
            ->as_string();
    };
    const std::string id = id_of("");
    EXPECT_EQ(ask(http_get("/v1/responses/" + id, one)).status, 200);
    EXPECT_EQ(ask(http_get("/v1/responses/" + id, two)).status, 404);
    EXPECT_EQ(ask(http_get("/v1/responses/" + id_of(R"(,"store":false)"), one)).status, 404);
}

TEST_F(ProtocolsTest, WhatIsTooLargeToBeStoredSaysThatItIsNot) {
    options_.responses.bytes_max = 10'000;
    const auto stored = [&](const std::string& members) {
        const Json answer = parsed(post("/v1/responses", responses_body(members)).body);
        const bool says = answer.find("store")->as_bool();
        const std::string id = answer.find("id")->as_string();
        EXPECT_EQ(ask(http_get("/v1/responses/" + id)).status, says ? 200 : 404);
        return says;
    };
    EXPECT_TRUE(stored(""));
    EXPECT_FALSE(stored(R"(,"metadata":{"a":")" + std::string(6000, 'x') + R"("})"));
    reply("</think>" + std::string(3000, 'y'));
    EXPECT_FALSE(stored(""));
    const std::vector<Frame> events =
        frames(post("/v1/responses", responses_body(R"(,"stream":true)")).body);
    EXPECT_FALSE(events.back().data.find("response")->find("store")->as_bool());
}

// A tokenizer that does not come to the end of some texts before it is told to.
class StuckTokenizer : public ByteTokenizer {
  public:
    std::vector<TokenId> encode(std::string_view text, bool recognize_added) const override {
        constexpr std::chrono::seconds kPatience{20};
        if (text.find("STUCK") != std::string_view::npos)
            gave_up = go.get_future().wait_for(kPatience) != std::future_status::ready;
        return ByteTokenizer::encode(text, recognize_added);
    }
    mutable std::promise<void> go;
    mutable std::atomic<bool> gave_up{false};
};

TEST_F(ProtocolsTest, ALargeBodyStallsNoSmallOne) {
    const auto tokenizer = std::make_shared<StuckTokenizer>();
    tokenizer_ = tokenizer;
    ask(http_get("/health"));
    HttpClient large(server_->port());
    const std::string text(Preparation::kLargeBytes, ' ');
    EXPECT_TRUE(large.send(http_post("/v1/tokenize", R"({"text":"STUCK)" + text + R"("})")));
    EXPECT_EQ(post("/v1/tokenize", R"({"text":"ab"})").status, 200);
    EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 200);
    tokenizer->go.set_value();
    EXPECT_EQ(large.answer().status, 200);
    EXPECT_FALSE(tokenizer->gave_up) << "the small ones waited";
}

TEST_F(ProtocolsTest, ASmallBodyThatNamesALargeResponseIsLarge) {
    const auto tokenizer = std::make_shared<StuckTokenizer>();
    tokenizer_ = tokenizer;
    const std::string blanks(Preparation::kLargeBytes, ' ');
    const Json first = parsed(post("/v1/responses", responses_body(blanks)).body);
    HttpClient large(server_->port());
    EXPECT_TRUE(large.send(http_post("/v1/responses/input_tokens",
                                     R"({"model":"test","input":"STUCK","previous_response_id":")" +
                                         first.find("id")->as_string() + R"("})")));
    EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 200);
    tokenizer->go.set_value();
    EXPECT_EQ(large.answer().status, 200);
    EXPECT_FALSE(tokenizer->gave_up) << "the small ones waited";
}

TEST_F(ProtocolsTest, CountsAndShowsWithoutGenerating) {
    EXPECT_THAT(post("/v1/messages/count_tokens", messages_body()).body,
                ::testing::MatchesRegex(R"(\{"input_tokens":[0-9]+\})"));
    EXPECT_THAT(post("/v1/responses/input_tokens", responses_body()).body,
                HasSubstr(R"("object":"response.input_tokens")"));
    EXPECT_EQ(post("/v1/tokenize", R"({"text":"ab"})").body,
              R"({"count":2,"ids":[97,98],"pieces":["a","b"]})");
    EXPECT_THAT(post("/v1/prompt?protocol=messages", messages_body()).body,
                HasSubstr(R"({"special":true,"text":"<｜User｜>"},{"special":false,"text":"Hi"})"));
    const Json counted = parsed(post("/v1/messages/count_tokens", messages_body()).body);
    const Json answered = parsed(post("/v1/messages", messages_body()).body);
    const Json& usage = *answered.find("usage");
    EXPECT_EQ(
        counted.find("input_tokens")->as_int64(),
        usage.find("input_tokens")->as_int64() + usage.find("cache_read_input_tokens")->as_int64());
    EXPECT_EQ(script_->with([](Script& s) { return s.received.size(); }), 1u);
}

TEST_F(ProtocolsTest, FillsAHole) {
    const Json answer =
        parsed(post("/v1/completions", R"({"model":"test","prompt":"a","suffix":"b"})").body);
    EXPECT_EQ(answer.find("choices")->items().at(0).find("text")->as_string(), "Hello!");
    EXPECT_EQ(script_->with([](Script& s) { return s.received.at(0).prompt; }),
              byte_ids("<｜begin▁of▁sentence｜><｜fim▁begin｜>a<｜fim▁hole｜>b<｜fim▁end｜>"));
}

}  // namespace
}  // namespace fathom
