#include "gateway/http/request_parser.h"

#include <fmt/core.h>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <utility>

#include "base/check.h"

namespace fathom {

namespace beast = boost::beast;
namespace http = boost::beast::http;

// "0\r\n\r\n": no chunked body ends in fewer bytes. Offered a last chunk that is still without its
// end, Beast takes for granted that it is offered no fewer the next time, and aborts if it is.
constexpr std::size_t kLastChunkBytes = 5;

struct HttpRequestParser::Impl {
    explicit Impl(const HttpLimits& limits_in) : limits(limits_in) {
        parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes_max));
        parser.body_limit(limits.body_bytes_max);
        parser.eager(false);
    }

    void fail(int status, std::string message) {
        state = State::failed;
        error_status = status;
        error_message = std::move(message);
    }
    void fail(const beast::error_code& code);
    bool take_header();

    const HttpLimits limits;
    http::request_parser<http::string_body> parser;
    State state = State::header;
    bool started = false;
    HttpRequest request;
    int error_status = 0;
    std::string error_message;
};

void HttpRequestParser::Impl::fail(const beast::error_code& code) {
    if (code == http::error::header_limit || code == http::error::buffer_overflow)
        return fail(431, fmt::format("The request line and headers are longer than the limit of {} "
                                     "bytes.",
                                     limits.header_bytes_max));
    if (code == http::error::body_limit)
        return fail(413, fmt::format("The request body is longer than the limit of {} bytes.",
                                     limits.body_bytes_max));
    if (code == http::error::bad_version)
        return fail(505, "Only HTTP/1.0 and HTTP/1.1 are supported.");
    fail(400, fmt::format("The request is not valid HTTP: {}.", code.message()));
}

// Copies the head out of Beast's message and checks what Beast leaves to its user.
bool HttpRequestParser::Impl::take_header() {
    const auto& message = parser.get();
    request.method = std::string(message.method_string());
    request.target = std::string(message.target());
    request.http_1_0 = message.version() == 10;
    request.keep_alive = parser.keep_alive() && !request.http_1_0;
    int hosts = 0;
    for (const auto& field : message) {
        request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
        if (field.name() == http::field::host) ++hosts;
    }
    if (hosts > 1 || (hosts == 0 && !request.http_1_0)) {
        fail(400, fmt::format("The request has {} Host headers, expected one.", hosts));
        return false;
    }
    // Anything but plain "chunked" would reach us still encoded.
    const auto encoding = message[http::field::transfer_encoding];
    if (!encoding.empty() && !beast::iequals(encoding, "chunked")) {
        fail(501, "The only supported Transfer-Encoding is chunked.");
        return false;
    }
    const auto expect = message[http::field::expect];
    if (!expect.empty()) {
        if (!beast::iequals(expect, "100-continue")) {
            fail(417, "The only supported Expect is 100-continue.");
            return false;
        }
        request.wants_continue = !request.http_1_0;
    }
    return true;
}

HttpRequestParser::HttpRequestParser(const HttpLimits& limits)
    : impl_(std::make_unique<Impl>(limits)) {}
HttpRequestParser::~HttpRequestParser() = default;
HttpRequestParser::HttpRequestParser(HttpRequestParser&&) noexcept = default;
HttpRequestParser& HttpRequestParser::operator=(HttpRequestParser&&) noexcept = default;

std::size_t HttpRequestParser::feed(std::string_view bytes) {
    Impl& impl = *impl_;
    std::size_t used = 0;
    // RFC 9112 2.2: empty lines before the request line are skipped.
    while (!impl.started && used < bytes.size() && (bytes[used] == '\r' || bytes[used] == '\n'))
        ++used;
    while (used < bytes.size() && (impl.state == State::header || impl.state == State::body)) {
        impl.started = true;
        const std::string_view rest = bytes.substr(used);
        if (impl.state == State::body && impl.parser.chunked() && rest.size() < kLastChunkBytes)
            break;
        beast::error_code code;
        const std::size_t taken =
            impl.parser.put(boost::asio::const_buffer(rest.data(), rest.size()), code);
        used += taken;
        if (code && code != http::error::need_more) {
            impl.fail(code);
            break;
        }
        if (impl.state == State::header && impl.parser.is_header_done())
            impl.state = impl.take_header() ? State::body : State::failed;
        if (impl.state == State::body && impl.parser.is_done()) impl.state = State::complete;
        if (code == http::error::need_more || taken == 0) break;
    }
    // Beast bounds the header and the body; what frames a chunked body is bounded here.
    if (impl.state == State::body && bytes.size() - used > impl.limits.header_bytes_max)
        impl.fail(400,
                  fmt::format("A chunk header or trailer is longer than the limit of {} bytes.",
                              impl.limits.header_bytes_max));
    return used;
}

HttpRequestParser::State HttpRequestParser::state() const {
    return impl_->state;
}
bool HttpRequestParser::started() const {
    return impl_->started;
}

const HttpRequest& HttpRequestParser::head() const {
    FATHOM_CHECK(impl_->state == State::body || impl_->state == State::complete);
    return impl_->request;
}

HttpRequest HttpRequestParser::take() {
    FATHOM_CHECK(impl_->state == State::complete);
    impl_->request.body = std::move(impl_->parser.get().body());
    return std::move(impl_->request);
}

int HttpRequestParser::error_status() const {
    return impl_->error_status;
}
const std::string& HttpRequestParser::error_message() const {
    return impl_->error_message;
}

}  // namespace fathom
