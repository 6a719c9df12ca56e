#include "gateway/client/response_parser.h"

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>
#include <optional>
#include <utility>

namespace fathom {

namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {
constexpr std::uint32_t kHeaderBytesMax = 64 << 10;
// Offered a last chunk without its end, Beast aborts when it is offered fewer bytes the next time.
constexpr std::size_t kLastChunkBytes = 5;
constexpr std::size_t kChunkHeadBytesMax = 16 << 10;
}  // namespace

struct HttpResponseParser::Impl {
    using Parser = http::response_parser<http::string_body>;
    std::optional<Parser> parser;
    bool started = false;  // it was offered bytes
    State state = State::header;
    int status = 0;
    std::string error_message;

    void begin() {
        parser.emplace();
        started = false;
        parser->header_limit(kHeaderBytesMax);
        parser->body_limit(std::numeric_limits<std::uint64_t>::max());
        parser->eager(false);
    }
    void fail(std::string message) {
        state = State::failed;
        error_message = std::move(message);
    }
    void header_done() {
        status = parser->get().result_int();
        if (status >= 100 && status < 200) return begin();
        state = parser->is_done() ? State::complete : State::body;
    }
};

HttpResponseParser::HttpResponseParser() : impl_(std::make_unique<Impl>()) {
    impl_->begin();
}
HttpResponseParser::~HttpResponseParser() = default;
HttpResponseParser::HttpResponseParser(HttpResponseParser&&) noexcept = default;
HttpResponseParser& HttpResponseParser::operator=(HttpResponseParser&&) noexcept = default;

std::size_t HttpResponseParser::feed(std::string_view bytes) {
    Impl& impl = *impl_;
    std::size_t used = 0;
    while (used < bytes.size() && (impl.state == State::header || impl.state == State::body)) {
        const std::string_view rest = bytes.substr(used);
        if (impl.state == State::body && impl.parser->chunked() && rest.size() < kLastChunkBytes)
            break;
        impl.started = true;
        beast::error_code code;
        const std::size_t taken =
            impl.parser->put(boost::asio::const_buffer(rest.data(), rest.size()), code);
        used += taken;
        if (code && code != http::error::need_more) {
            impl.fail("the answer is not valid HTTP: " + code.message());
            break;
        }
        if (impl.state == State::header && impl.parser->is_header_done()) {
            impl.header_done();
        } else if (impl.state == State::body && impl.parser->is_done()) {
            impl.state = State::complete;
        } else if (code == http::error::need_more || taken == 0) {
            break;
        }
    }
    if (impl.state == State::body && impl.parser->chunked() &&
        bytes.size() - used > kChunkHeadBytesMax)
        impl.fail("the answer is not valid HTTP: a chunk header without an end");
    return used;
}

void HttpResponseParser::feed_end() {
    if (impl_->state != State::header && impl_->state != State::body) return;
    beast::error_code code;
    if (impl_->started) impl_->parser->put_eof(code);
    if (code || !impl_->started || !impl_->parser->is_done())
        impl_->fail("the connection was closed before the answer was complete");
    else
        impl_->state = State::complete;
}

HttpResponseParser::State HttpResponseParser::state() const {
    return impl_->state;
}
int HttpResponseParser::status() const {
    return impl_->status;
}
bool HttpResponseParser::keep_alive() const {
    return impl_->state == State::complete && impl_->parser->keep_alive();
}
std::string HttpResponseParser::take_body() {
    return std::exchange(impl_->parser->get().body(), {});
}
const std::string& HttpResponseParser::error_message() const {
    return impl_->error_message;
}

}  // namespace fathom
