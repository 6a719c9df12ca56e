#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <netinet/in.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "base/queue.h"
#include "gateway/client/completion_stream.h"
#include "gateway/client/http_client.h"
#include "gateway/client/response_parser.h"
#include "gateway/client/url.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;

// -------------------------------------------------------------------------------------------- URL

TEST(HttpUrl, ReadsHostPortAndPrefix) {
    struct Case {
        const char *text, *host, *port, *prefix;
    };
    for (const Case& c : {Case{"http://127.0.0.1:8000/v1", "127.0.0.1", "8000", "/v1"},
                          Case{"http://localhost", "localhost", "80", ""},
                          Case{"http://a.b:81/x/y//", "a.b", "81", "/x/y"},
                          Case{"http://[::1]:9/v1", "::1", "9", "/v1"}}) {
        const auto url = parse_http_url(c.text);
        ASSERT_TRUE(url.ok()) << url.status().message();
        EXPECT_EQ(url->host, c.host);
        EXPECT_EQ(url->port, c.port);
        EXPECT_EQ(url->prefix, c.prefix);
    }
    EXPECT_EQ(parse_http_url("http://[::1]:9")->authority(), "[::1]:9");
}

TEST(HttpUrl, RefusesWhatItCannotReach) {
    for (const char* text :
         {"", "127.0.0.1:8000", "https://a", "http://", "http://:80", "http://a:0",
          "http://a:65536", "http://a:x", "http://a:", "http://[::1", "http://[::1]x", "http://u@a",
          "http://a/?q", "http://a b", "http://a\r\nX: y"}) {
        const auto url = parse_http_url(text);
        EXPECT_FALSE(url.ok()) << text;
    }
}

// --------------------------------------------------------------------------------------- response

struct Parsed {
    HttpResponseParser::State state;
    int status = 0;
    std::string body, rest;
};

// Feeds `text` in pieces of `size`, as a socket would.
Parsed parse_in_pieces(const std::string& text, std::size_t size, bool end) {
    HttpResponseParser parser;
    std::string pending, body;
    for (std::size_t at = 0; at < text.size(); at += size) {
        pending += text.substr(at, size);
        pending.erase(0, parser.feed(pending));
        if (parser.state() == HttpResponseParser::State::body ||
            parser.state() == HttpResponseParser::State::complete)
            body += parser.take_body();
    }
    if (end) parser.feed_end();
    return {parser.state(), parser.status(), body, pending};
}

TEST(HttpResponseParser, GivesTheSameHoweverTheStreamIsCut) {
    const std::string chunked =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    const std::string sized = "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone";
    for (std::size_t size = 1; size < chunked.size() + 1; ++size) {
        const Parsed parsed = parse_in_pieces(chunked, size, false);
        ASSERT_EQ(parsed.state, HttpResponseParser::State::complete) << size;
        EXPECT_EQ(parsed.status, 200);
        EXPECT_EQ(parsed.body, "hello world") << size;
        const Parsed other = parse_in_pieces(sized, size, false);
        ASSERT_EQ(other.state, HttpResponseParser::State::complete) << size;
        EXPECT_EQ(other.status, 404);
        EXPECT_EQ(other.body, "gone");
    }
}

TEST(HttpResponseParser, TellsACutAnswerFromOneThatTheCloseEnds) {
    using State = HttpResponseParser::State;
    EXPECT_EQ(parse_in_pieces("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", 7, true).state,
              State::failed);
    EXPECT_EQ(parse_in_pieces("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                              7, true)
                  .state,
              State::failed);
    const Parsed closed = parse_in_pieces("HTTP/1.0 200 OK\r\n\r\nabc", 7, true);
    EXPECT_EQ(closed.state, State::complete);
    EXPECT_EQ(closed.body, "abc");
    EXPECT_EQ(parse_in_pieces("SSH-2.0-OpenSSH\r\n\r\n", 100, true).state, State::failed);
    EXPECT_EQ(parse_in_pieces("", 1, true).state, State::failed);
}

// ----------------------------------------------------------------------------------------- stream

TEST(CompletionStream, ReadsEventsHoweverTheyAreCut) {
    const std::string text =
        ": keep-alive\r\n\r\n"
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
        "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}],\"usage\":null}\n\n"
        "data:{\"choices\":[{\"text\":\"ab\",\"finish_reason\":null}]}\r\n\r\n"
        "event: x\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\n"
        "data: \"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,"
        "\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\n"
        "data: [DONE]\n\n";
    for (std::size_t size = 1; size <= text.size(); size += 3) {
        CompletionStream stream;
        std::vector<CompletionEvent> events;
        for (std::size_t at = 0; at < text.size(); at += size) {
            stream.feed(std::string_view(text).substr(at, size));
            while (true) {
                const auto event = stream.next();
                ASSERT_TRUE(event.ok()) << event.status().message();
                if (!*event) break;
                events.push_back(**event);
            }
        }
        ASSERT_EQ(events.size(), 5u) << size;
        EXPECT_FALSE(events[0].has_text);
        EXPECT_TRUE(events[1].has_text);
        EXPECT_TRUE(events[2].has_text);
        EXPECT_FALSE(events[2].finished);
        EXPECT_TRUE(events[3].finished);
        EXPECT_EQ(events[3].prompt_tokens, 7);
        EXPECT_EQ(events[3].completion_tokens, 3);
        EXPECT_EQ(events[3].cached_tokens, 2);
        EXPECT_TRUE(events[4].done);
    }
}

TEST(CompletionStream, RefusesWhatIsNoEventAndWhatNeverEnds) {
    CompletionStream stream(100);
    stream.feed("data: {\"choices\":\n\n");
    EXPECT_EQ(stream.next().status().code(), StatusCode::data_loss);
    CompletionStream line(100);
    line.feed(std::string(200, 'x'));
    EXPECT_EQ(line.next().status().code(), StatusCode::data_loss);
    CompletionStream lines(100);
    for (int i = 0; i < 20; ++i)
        lines.feed("data: 0123456789\n");
    EXPECT_EQ(lines.next().status().code(), StatusCode::data_loss);
}

TEST(CompletionStream, ReadsErrorsOfEveryShape) {
    EXPECT_EQ(read_completion_event(R"({"error":{"message":"too long"}})")->error, "too long");
    EXPECT_EQ(read_completion_event(R"({"error":"busy"})")->error, "busy");
    EXPECT_EQ(read_completion_event(R"({"error":{"code":5}})")->error, R"({"code":5})");
    EXPECT_FALSE(read_completion_event("[]").ok());
    EXPECT_TRUE(read_completion_event(R"({"choices":5,"usage":[1]})").ok());
}

// ----------------------------------------------------------------------------------------- client

// A server of one connection at a time that answers what a script says. After the last answer it
// closes the connection; after an empty one it waits with it open.
class ScriptedServer {
  public:
    // Each entry answers one request; nullopt closes the connection without a word.
    explicit ScriptedServer(std::vector<std::optional<std::string>> answers)
        : answers_(std::move(answers)) {
        listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
        EXPECT_EQ(::listen(listener_, 16), 0);
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this] { serve(); });
    }
    ~ScriptedServer() {
        ::shutdown(listener_, SHUT_RDWR);
        thread_.join();
        ::close(listener_);
    }
    HttpUrl url() const { return {"127.0.0.1", std::to_string(port_), "/v1"}; }
    int connections() const { return connections_; }

  private:
    void serve() {
        std::size_t next = 0;
        while (next < answers_.size()) {
            const int peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
            if (peer < 0) return;
            ++connections_;
            while (next < answers_.size() && read_request(peer)) {
                const auto& answer = answers_[next++];
                if (!answer) break;
                EXPECT_EQ(::send(peer, answer->data(), answer->size(), MSG_NOSIGNAL),
                          static_cast<ssize_t>(answer->size()));
            }
            ::close(peer);
        }
    }
    // Requests of these tests arrive in one piece that ends with the body "{}" or the empty line.
    static bool read_request(int peer) {
        std::string text;
        char bytes[4096];
        while (!text.ends_with("\r\n\r\n") && !text.ends_with("{}")) {
            const ssize_t n = ::recv(peer, bytes, sizeof bytes, 0);
            if (n <= 0) return false;
            text.append(bytes, static_cast<std::size_t>(n));
        }
        return true;
    }

    std::vector<std::optional<std::string>> answers_;
    int listener_ = -1;
    std::uint16_t port_ = 0;
    std::atomic<int> connections_ = 0;
    std::thread thread_;
};

struct Answer {
    Status status;
    int http_status = 0;
    std::string body;
};

class Follower : public HttpExchange {
  public:
    explicit Follower(std::shared_ptr<BoundedQueue<Answer>> queue) : queue_(std::move(queue)) {}
    void on_head(int status) override { answer_.http_status = status; }
    void on_body(std::string_view bytes) override { answer_.body += bytes; }
    void on_end(const Status& status) override {
        answer_.status = status;
        EXPECT_TRUE(queue_->try_push(std::move(answer_)));
    }

  private:
    std::shared_ptr<BoundedQueue<Answer>> queue_;
    Answer answer_;
};

class HttpClientTest : public ::testing::Test {
  protected:
    static constexpr std::int64_t kLongUs = 30'000'000;

    HttpClientPool& client(const HttpUrl& url) {
        HttpClientOptions options;
        options.url = url;
        options.silence_timeout_us = silence_us_;
        client_ = std::make_unique<HttpClientPool>(options);
        return *client_;
    }
    void send(std::int64_t timeout_us = kLongUs) {
        client_->send("/x", "{}", timeout_us, std::make_shared<Follower>(answers_));
    }
    Answer answer() {
        auto answer = answers_->pop(kLongUs);
        EXPECT_TRUE(answer.has_value());
        return answer.value_or(Answer{});
    }

    std::int64_t silence_us_ = kLongUs;
    std::shared_ptr<BoundedQueue<Answer>> answers_ = std::make_shared<BoundedQueue<Answer>>(100);
    std::unique_ptr<HttpClientPool> client_;
};

const std::string kHello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

TEST_F(HttpClientTest, KeepsItsConnection) {
    ScriptedServer server({kHello, kHello, kHello});
    client(server.url());
    for (int i = 0; i < 3; ++i) {
        send();
        const Answer got = answer();
        EXPECT_TRUE(got.status.ok()) << got.status.message();
        EXPECT_EQ(got.http_status, 200);
        EXPECT_EQ(got.body, "hello");
    }
    EXPECT_EQ(server.connections(), 1);
}

TEST_F(HttpClientTest, ReplacesAKeptConnectionThatWasClosed) {
    ScriptedServer server({kHello, std::nullopt, kHello});
    client(server.url());
    send();
    EXPECT_TRUE(answer().status.ok());
    send();
    const Answer got = answer();
    EXPECT_TRUE(got.status.ok()) << got.status.message();
    EXPECT_EQ(got.body, "hello");
    EXPECT_EQ(server.connections(), 2);
}

TEST_F(HttpClientTest, SaysWhatFailed) {
    ScriptedServer server({std::nullopt, "SSH-2.0\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhal"});
    client(server.url());
    send();
    EXPECT_EQ(answer().status.code(), StatusCode::unavailable);
    send();
    EXPECT_EQ(answer().status.code(), StatusCode::data_loss);
    client_.reset();
}

TEST_F(HttpClientTest, EndsARequestThatIsNotAnswered) {
    ScriptedServer server({"", std::nullopt});
    client(server.url());
    send(50'000);
    EXPECT_EQ(answer().status.code(), StatusCode::deadline_exceeded);
    client_.reset();
}

TEST_F(HttpClientTest, EndsAnAnswerThatStops) {
    silence_us_ = 50'000;
    ScriptedServer server({"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", std::nullopt});
    client(server.url());
    send();
    const Answer got = answer();
    EXPECT_EQ(got.status.code(), StatusCode::deadline_exceeded);
    EXPECT_THAT(got.status.message(), HasSubstr("silent"));
    EXPECT_EQ(got.body, "hal");
    client_.reset();
}

TEST_F(HttpClientTest, CancelsWhatIsUnderWayAndEndsCleanly) {
    ScriptedServer server({"", "", std::nullopt});
    client(server.url());
    send();
    client_->cancel_all();
    EXPECT_EQ(answer().status.code(), StatusCode::cancelled);
    send();
    client_.reset();
    EXPECT_EQ(answer().status.code(), StatusCode::cancelled);
}

TEST_F(HttpClientTest, SaysThatNobodyListens) {
    HttpUrl url;
    {
        ScriptedServer server({});
        url = server.url();
    }
    client(url);
    send();
    const Answer got = answer();
    EXPECT_EQ(got.status.code(), StatusCode::unavailable);
    EXPECT_THAT(got.status.message(), HasSubstr("cannot connect"));
}

}  // namespace
}  // namespace fathom
