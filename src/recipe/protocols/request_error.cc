#include "recipe/protocols/request_error.h"

#include "base/check.h"
#include "base/json.h"

namespace fathom {

std::string request_error_body(std::string_view type, std::string_view message) {
    std::string body;
    JsonWriter writer(body);
    writer.begin_object().key("error").begin_object();
    writer.key("message").value(message).key("type").value(type);
    writer.key("param").null().key("code").value(type);
    writer.end_object().end_object();
    return body;
}

RequestError request_error(const Status& status) {
    FATHOM_CHECK(!status.ok());
    const bool at_fault = status.code() == StatusCode::invalid_argument;
    return {.http_status = at_fault ? 400 : 500,
            .body = request_error_body(at_fault ? "invalid_request_error" : "internal_error",
                                       status.message())};
}

}  // namespace fathom
