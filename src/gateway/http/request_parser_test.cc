#include "gateway/http/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

namespace fathom {
namespace {

using State = HttpRequestParser::State;
using ::testing::HasSubstr;

constexpr HttpLimits kLimits = {.header_bytes_max = 512, .body_bytes_max = 64};

// Offers the stream in pieces of the given sizes (the last repeats) and returns the parser.
HttpRequestParser parse(const std::string& stream, const std::vector<std::size_t>& pieces) {
    HttpRequestParser parser(kLimits);
    std::string buffer;
    std::size_t at = 0;
    for (std::size_t i = 0; at < stream.size(); ++i) {
        const std::size_t size = pieces[std::min(i, pieces.size() - 1)];
        buffer += stream.substr(at, size);
        at += std::min(size, stream.size() - at);
        buffer.erase(0, parser.feed(buffer));
        if (parser.state() == State::failed || parser.state() == State::complete) break;
    }
    return parser;
}

const char* const kPost =
    "POST /v1/x?q=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX-One: 1\r\n\r\nhello";
const char* const kChunked =
    "POST /y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    "3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n";

TEST(HttpRequestParser, ReadsASizedBody) {
    HttpRequestParser parser = parse(kPost, {1000});
    ASSERT_EQ(parser.state(), State::complete);
    const HttpRequest request = parser.take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.target, "/v1/x?q=1");
    EXPECT_EQ(request.path(), "/v1/x");
    EXPECT_EQ(request.header("x-ONE"), "1");
    EXPECT_EQ(request.header("absent"), "");
    EXPECT_EQ(request.body, "hello");
    EXPECT_TRUE(request.keep_alive);
}

TEST(HttpRequestParser, ReadsAChunkedBody) {
    HttpRequestParser parser = parse(kChunked, {1000});
    ASSERT_EQ(parser.state(), State::complete) << parser.error_message();
    EXPECT_EQ(parser.take().body, "abcde");
}

TEST(HttpRequestParser, LeavesThePipelinedRest) {
    const std::string stream = std::string("\r\n") + kPost + "GET /next";
    HttpRequestParser parser(kLimits);
    std::string buffer = stream;
    while (parser.state() != State::complete && parser.state() != State::failed)
        buffer.erase(0, parser.feed(buffer));
    EXPECT_EQ(buffer, "GET /next");
}

TEST(HttpRequestParser, GivesTheHeadBeforeTheBody) {
    const std::string stream(kPost);
    HttpRequestParser parser(kLimits);
    parser.feed(stream.substr(0, stream.size() - 5));
    ASSERT_EQ(parser.state(), State::body);
    EXPECT_EQ(parser.head().path(), "/v1/x");
}

TEST(HttpRequestParser, ATargetMayBeAWholeAddress) {
    const auto target = [](const std::string& given) {
        HttpRequestParser parser = parse("GET " + given + " HTTP/1.1\r\nHost: a\r\n\r\n", {999});
        EXPECT_EQ(parser.state(), State::complete) << given;
        return parser.state() == State::complete ? parser.take().target : "";
    };
    EXPECT_EQ(target("http://host/health"), "/health");
    EXPECT_EQ(target("HTTPS://host:80/v1/models?x=http://b/c"), "/v1/models?x=http://b/c");
    EXPECT_EQ(target("http://host"), "/");
    EXPECT_EQ(target("http://host?q=1"), "/?q=1");
    EXPECT_EQ(target("/http://host/a"), "/http://host/a");
}

TEST(HttpRequestParser, KnowsWhoCloses) {
    EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n", {99}).take().keep_alive);
    EXPECT_FALSE(
        parse("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", {99}).take().keep_alive);
    EXPECT_TRUE(parse("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0"
                      "\r\n\r\n",
                      {99})
                    .take()
                    .wants_continue);
}

TEST(HttpRequestParser, AnyCutGivesTheSameRequest) {
    rc::check([] {
        const std::string stream = *rc::gen::element(std::string(kPost), std::string(kChunked));
        const auto pieces = *rc::gen::nonEmpty(
            rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(1, 20)));
        HttpRequestParser whole = parse(stream, {1000});
        HttpRequestParser cut = parse(stream, pieces);
        RC_ASSERT(cut.state() == State::complete);
        const HttpRequest a = whole.take(), b = cut.take();
        RC_ASSERT(a.body == b.body);
        RC_ASSERT(a.target == b.target);
        RC_ASSERT(a.headers == b.headers);
    });
}

TEST(HttpRequestParser, AnEmptyChunkedBodyComesInAnyPieces) {
    const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (const char* body :
         {"0\r\n\r\n", "000\r\n\r\n", "0;a=b\r\n\r\n", "0\r\nTrailer: x\r\n\r\n"}) {
        const std::string stream = head + body;
        for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
            HttpRequestParser parser(kLimits);
            std::string buffer;
            for (std::size_t at = 0; at < stream.size(); at += piece) {
                buffer += stream.substr(at, piece);
                // What is left is offered again, also when nothing new has come.
                while (const std::size_t used = parser.feed(buffer))
                    buffer.erase(0, used);
                buffer.erase(0, parser.feed(buffer));
            }
            ASSERT_EQ(parser.state(), State::complete) << body << " in pieces of " << piece;
            EXPECT_EQ(parser.take().body, "");
            EXPECT_EQ(buffer, "");
        }
    }
}

struct Fault {
    const char* name;
    std::string stream;
    int status;
    const char* message;  // part of it
};

const std::vector<Fault>& faults() {
    static const std::string kHost = "HTTP/1.1\r\nHost: a\r\n";
    static const std::vector<Fault> kFaults = {
        {"not_http", "hello there\r\n\r\n", 400, "not valid HTTP"},
        {"tls", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15), 400,
         "not valid HTTP"},
        {"http2_preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "Only HTTP/1.0 and HTTP/1.1"},
        {"http_09", "GET /\r\n\r\n", 400, "not valid HTTP"},
        {"version", "GET / HTTP/3.1\r\nHost: a\r\n\r\n", 505, "Only HTTP/1.0 and HTTP/1.1"},
        {"bare_lf", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400, "not valid HTTP"},
        {"bare_lf_only", "GET / HTTP/1.1\nHost: a\n\r\n\r\n", 400, "not valid HTTP"},
        {"version_word", "GET / FTP/1.1\r\nHost: a\r\n\r\n", 400, "not valid HTTP"},
        {"no_host", "GET / HTTP/1.1\r\n\r\n", 400, "0 Host headers"},
        {"two_hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "2 Host headers"},
        {"space_in_name", "GET / " + kHost + "X y: 1\r\n\r\n", 400, "not valid HTTP"},
        {"no_colon", "GET / " + kHost + "Broken\r\n\r\n", 400, "not valid HTTP"},
        {"nul_in_value", "GET / " + kHost + std::string("X: a\0b\r\n\r\n", 10), 400,
         "not valid HTTP"},
        {"control_in_target", std::string("GET /a\x01 ") + kHost + "\r\n", 400, "not valid HTTP"},
        {"long_header", "GET / " + kHost + "X: " + std::string(600, 'x') + "\r\n\r\n", 431,
         "longer than the limit of 512 bytes"},
        {"endless_header", "GET / " + kHost + std::string(4000, 'x'), 431,
         "longer than the limit of 512 bytes"},
        {"long_target", "GET /" + std::string(600, 'a') + " " + kHost + "\r\n", 431,
         "longer than the limit of 512 bytes"},
        {"length_text", "POST / " + kHost + "Content-Length: five\r\n\r\n", 400, "not valid HTTP"},
        {"length_negative", "POST / " + kHost + "Content-Length: -1\r\n\r\n", 400,
         "not valid HTTP"},
        {"length_overflow", "POST / " + kHost + "Content-Length: 99999999999999999999\r\n\r\n", 400,
         "not valid HTTP"},
        {"lengths_differ", "POST / " + kHost + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
         400, "not valid HTTP"},
        {"length_over_limit", "POST / " + kHost + "Content-Length: 65\r\n\r\n", 413,
         "longer than the limit of 64 bytes"},
        {"chunks_over_limit",
         "POST / " + kHost + "Transfer-Encoding: chunked\r\n\r\n" + "30\r\n" +
             std::string(48, 'a') + "\r\n30\r\n" + std::string(48, 'a') + "\r\n0\r\n\r\n",
         413, "longer than the limit of 64 bytes"},
        {"chunk_size_text", "POST / " + kHost + "Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
         400, "not valid HTTP"},
        {"chunk_size_text_alone", "POST / " + kHost + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
         400, "not valid HTTP"},
        {"second_chunk_size_text",
         "POST / " + kHost + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\nz", 400,
         "not valid HTTP"},
        {"chunk_without_end_alone",
         "POST / " + kHost + "Transfer-Encoding: chunked\r\n\r\n2\r\nabcd", 400, "not valid HTTP"},
        {"chunk_without_end",
         "POST / " + kHost + "Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n", 400,
         "not valid HTTP"},
        {"last_chunk_extension",
         "POST / " + kHost + "Transfer-Encoding: chunked\r\n\r\n0\xb6\r\n\r\n", 400,
         "not valid HTTP"},
        {"endless_chunk_header",
         "POST / " + kHost + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(2000, 'x'), 400,
         "chunk header or trailer"},
        {"length_and_chunks",
         "POST / " + kHost + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         400, "not valid HTTP"},
        {"gzip_chunks", "POST / " + kHost + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
         501, "only supported Transfer-Encoding is chunked"},
        {"gzip_only", "POST / " + kHost + "Transfer-Encoding: gzip\r\n\r\n", 501,
         "only supported Transfer-Encoding is chunked"},
        {"expect_other", "POST / " + kHost + "Expect: magic\r\nContent-Length: 0\r\n\r\n", 417,
         "only supported Expect is 100-continue"},
    };
    return kFaults;
}

TEST(HttpRequestParser, NamesFaultsWholeAndByteByByte) {
    for (const Fault& fault : faults()) {
        for (const std::size_t piece : {std::size_t{10'000}, std::size_t{1}}) {
            const HttpRequestParser parser = parse(fault.stream, {piece});
            EXPECT_EQ(parser.state(), State::failed) << fault.name << " in pieces of " << piece;
            EXPECT_EQ(parser.error_status(), fault.status) << fault.name << parser.error_message();
            EXPECT_THAT(parser.error_message(), HasSubstr(fault.message)) << fault.name;
        }
    }
}

TEST(HttpRequestParser, WaitsOnTruncatedInput) {
    for (const std::string& whole : {std::string(kPost), std::string(kChunked)}) {
        for (std::size_t size = 0; size < whole.size(); ++size) {
            const State state = parse(whole.substr(0, size), {1000}).state();
            EXPECT_TRUE(state == State::header || state == State::body) << size;
        }
    }
}

}  // namespace
}  // namespace fathom
