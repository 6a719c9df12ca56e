#include "gateway/api_error.h"

#include "base/json.h"
#include "recipe/protocols/request_error.h"

namespace fathom {

const char* api_error_type(int http_status, ErrorShape shape) {
    const bool anthropic = shape == ErrorShape::anthropic;
    switch (http_status) {
        case 401:
            return "authentication_error";
        case 404:
            return "not_found_error";
        case 408:
            return "timeout_error";
        case 413:
            return anthropic ? "request_too_large" : "invalid_request_error";
        case 429:
            return "rate_limit_error";
        case 501:  // of HTTP, not of this side: the request is what has to change
        case 505:
            return "invalid_request_error";
        case 503:
            return "overloaded_error";
        default:
            if (http_status < 500) return "invalid_request_error";
            return anthropic ? "api_error" : "internal_error";
    }
}

std::string api_error_json(int http_status, std::string_view message, ErrorShape shape) {
    const char* type = api_error_type(http_status, shape);
    if (shape == ErrorShape::openai) return request_error_body(type, message);
    std::string out;
    JsonWriter json(out);
    json.begin_object().key("type").value("error").key("error").begin_object();
    json.key("type").value(type).key("message").value(message);
    json.end_object().end_object();
    return out;
}

HttpResponse api_error(int http_status, std::string_view message, ErrorShape shape) {
    HttpResponse response;
    response.status = http_status;
    response.body = api_error_json(http_status, message, shape);
    if (http_status == 429 || http_status == 503) response.headers.emplace_back("retry-after", "1");
    if (http_status == 401) response.headers.emplace_back("www-authenticate", "Bearer");
    return response;
}

int http_status_of(const Status& status) {
    switch (status.code()) {
        case StatusCode::invalid_argument:
        case StatusCode::unsupported:
            return 400;
        case StatusCode::resource_exhausted:
            return 429;
        case StatusCode::deadline_exceeded:
            return 408;
        case StatusCode::cancelled:
        case StatusCode::unavailable:
            return 503;
        case StatusCode::permission_denied:
            return 401;
        case StatusCode::not_found:
            return 404;
        case StatusCode::ok:
        case StatusCode::data_loss:
        case StatusCode::internal:
            break;
    }
    return 500;
}

HttpResponse api_error(const Status& status, ErrorShape shape) {
    return api_error(http_status_of(status), status.message(), shape);
}

}  // namespace fathom
