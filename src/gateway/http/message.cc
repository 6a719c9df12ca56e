#include "gateway/http/message.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace fathom {

namespace {

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same_name(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::string_view HttpRequest::path() const {
    const std::string_view whole = target;
    return whole.substr(0, whole.find('?'));
}

std::string_view HttpRequest::query(std::string_view name) const {
    std::string_view rest = std::string_view(target).substr(path().size());
    while (!rest.empty()) {
        rest.remove_prefix(1);  // '?' or '&'
        const std::string_view part = rest.substr(0, rest.find('&'));
        rest.remove_prefix(part.size());
        const std::size_t sign = part.find('=');
        if (sign != std::string_view::npos && part.substr(0, sign) == name)
            return part.substr(sign + 1);
    }
    return {};
}

std::string_view HttpRequest::header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
        if (same_name(key, name)) return value;
    }
    return {};
}

const char* http_reason(int status) {
    switch (status) {
        case 200:
            return "OK";
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 408:
            return "Request Timeout";
        case 413:
            return "Content Too Large";
        case 415:
            return "Unsupported Media Type";
        case 417:
            return "Expectation Failed";
        case 429:
            return "Too Many Requests";
        case 431:
            return "Request Header Fields Too Large";
        case 500:
            return "Internal Server Error";
        case 501:
            return "Not Implemented";
        case 503:
            return "Service Unavailable";
        case 505:
            return "HTTP Version Not Supported";
        default:
            return "Unknown";
    }
}

std::string http_response_head(const HttpResponse& response, HttpBody framing,
                               std::size_t body_bytes, bool keep_alive) {
    std::string head = fmt::format("HTTP/1.1 {} {}\r\ncontent-type: {}\r\n", response.status,
                                   http_reason(response.status), response.content_type);
    if (framing == HttpBody::sized)
        fmt::format_to(std::back_inserter(head), "content-length: {}\r\n", body_bytes);
    if (framing == HttpBody::chunked) head += "transfer-encoding: chunked\r\n";
    if (!keep_alive || framing == HttpBody::until_close) head += "connection: close\r\n";
    for (const auto& [name, value] : response.headers) {
        head += name;
        head += ": ";
        head += value;
        head += "\r\n";
    }
    head += "\r\n";
    return head;
}

void append_http_chunk(std::string& out, std::string_view payload) {
    FATHOM_CHECK(!payload.empty());
    fmt::format_to(std::back_inserter(out), "{:x}\r\n", payload.size());
    out += payload;
    out += "\r\n";
}

}  // namespace fathom
