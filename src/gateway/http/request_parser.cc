#include "gateway/http/request_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
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
        parser.on_chunk_header(on_chunk);
        parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes_max));
        parser.body_limit(limits.body_bytes_max);
        parser.eager(false);
    }

    void fail(int status, std::string message) {
        state = State::failed;
        error_status = status;
        error_message = std::move(message);
    }
    void fail(const beast::error_code& code, std::string_view offered);
    bool take_header();
    bool has_bad_chunk_size(std::string_view offered) const;

    const HttpLimits limits;
    http::request_parser<http::string_body> parser;
    std::uint64_t chunks_bytes = 0;  // of all chunks whose header was read
    // A member, since the parser keeps a reference.
    std::function<void(std::uint64_t, beast::string_view, beast::error_code&)> on_chunk =
        [this](std::uint64_t size, beast::string_view, beast::error_code&) {
            chunks_bytes += size;
        };
    State state = State::header;
    bool started = false;
    HttpRequest request;
    int error_status = 0;
    std::string error_message;
};

// Whether a request line is whole and asks for a version that exists, other than ours. Beast tells
// it as it tells a line that is no HTTP.
bool asks_for_other_version(std::string_view line) {
    line = line.substr(0, line.find('\n'));
    if (!line.ends_with('\r')) return false;
    line.remove_suffix(1);
    constexpr std::string_view kName = "HTTP/";
    const std::string_view version = line.substr(line.rfind(' ') + 1);
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    return version.size() == kName.size() + 3 && version.starts_with(kName) &&
           is_digit(version[5]) && version[6] == '.' && is_digit(version[7]);
}

// RFC 9112 3.2.2: a target may be a whole address; its host is whoever was reached.
std::string origin_form(std::string_view target) {
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (!beast::iequals(target.substr(0, scheme.size()), scheme)) continue;
        target.remove_prefix(scheme.size());
        target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
        return target.starts_with('/') ? std::string(target) : fmt::format("/{}", target);
    }
    return std::string(target);
}

void HttpRequestParser::Impl::fail(const beast::error_code& code, std::string_view offered) {
    if (code == http::error::header_limit || code == http::error::buffer_overflow)
        return fail(431, fmt::format("The request line and headers are longer than the limit of {} "
                                     "bytes.",
                                     limits.header_bytes_max));
    if (code == http::error::body_limit)
        return fail(413, fmt::format("The request body is longer than the limit of {} bytes.",
                                     limits.body_bytes_max));
    if (code == http::error::bad_version && asks_for_other_version(offered))
        return fail(505, "Only HTTP/1.0 and HTTP/1.1 are supported.");
    fail(400, fmt::format("The request is not valid HTTP: {}.", code.message()));
}

// Copies the head out of Beast's message and checks what Beast leaves to its user.
bool HttpRequestParser::Impl::take_header() {
    const auto& message = parser.get();
    request.method = std::string(message.method_string());
    request.target =
        origin_form(std::string_view(message.target().data(), message.target().size()));
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

// What is too short for Beast may be all that ever comes: a fault in it is told now.
bool HttpRequestParser::Impl::has_bad_chunk_size(std::string_view offered) const {
    const std::uint64_t rest_of_chunk = chunks_bytes - parser.get().body().size();
    offered.remove_prefix(std::min<std::uint64_t>(rest_of_chunk, offered.size()));
    if (chunks_bytes > 0) {
        constexpr std::string_view kChunkEnd = "\r\n";
        const std::string_view end = offered.substr(0, kChunkEnd.size());
        if (end != kChunkEnd.substr(0, end.size())) return true;
        offered.remove_prefix(end.size());
    }
    constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
    const std::size_t digits = std::min(offered.find_first_not_of(kDigits), offered.size());
    if (digits == offered.size()) return false;
    constexpr std::string_view kAfterSize = "\r; \t";
    return digits == 0 || kAfterSize.find(offered[digits]) == std::string_view::npos;
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
        if (impl.state == State::body && impl.parser.chunked() && rest.size() < kLastChunkBytes) {
            if (impl.has_bad_chunk_size(rest)) impl.fail(http::error::bad_chunk, rest);
            break;
        }
        beast::error_code code;
        const std::size_t taken =
            impl.parser.put(boost::asio::const_buffer(rest.data(), rest.size()), code);
        used += taken;
        if (code && code != http::error::need_more) {
            impl.fail(code, rest);
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
