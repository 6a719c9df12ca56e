// HTTP/1.x messages as plain values, and how a response is spelled on the wire. No I/O.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
    std::string method;  // "GET", "POST", … as received
    std::string target;  // as received
    HttpHeaders headers;
    std::string body;
    bool keep_alive = true;       // what the version and the Connection header ask for
    bool http_1_0 = false;        // such a client cannot read chunks
    bool wants_continue = false;  // "Expect: 100-continue"

    std::string_view path() const;
    // The value of a parameter of the query as it stands there, not decoded; empty: none.
    std::string_view query(std::string_view name) const;
    // The first header of that name, or empty. Names are compared without case.
    std::string_view header(std::string_view name) const;
};

struct HttpResponse {
    int status = 200;
    std::string content_type = "application/json";
    HttpHeaders headers;  // beside those that the framing needs
    std::string body;
};

const char* http_reason(int status);

enum class HttpBody { sized, chunked, until_close };

// Status line and headers with the empty line behind them. `sized` states `body_bytes`.
std::string http_response_head(const HttpResponse& response, HttpBody framing,
                               std::size_t body_bytes, bool keep_alive);

// One chunk of a chunked body. Never call it with an empty payload: that would end the body.
void append_http_chunk(std::string& out, std::string_view payload);
inline constexpr std::string_view kHttpLastChunk = "0\r\n\r\n";

}  // namespace fathom
