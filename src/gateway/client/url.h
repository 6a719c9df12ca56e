// The address of an HTTP API: "http://127.0.0.1:8000/v1". Plain values.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

struct HttpUrl {
    std::string host;    // a name, or a numeric address without brackets
    std::string port;    // digits
    std::string prefix;  // "/v1", without a slash at its end; may be empty

    std::string authority() const;  // for the Host header
};

// Only http, without user and query. invalid_argument shows the text and what is wrong with it.
Result<HttpUrl> parse_http_url(std::string_view text);

}  // namespace fathom
