#include "recipe/protocols/request_error.h"

#include <string_view>

#include "base/check.h"
#include "base/json.h"

namespace fathom {

RequestError request_error(const Status& status) {
    FATHOM_CHECK(!status.ok());
    const bool at_fault = status.code() == StatusCode::invalid_argument;
    const std::string_view type = at_fault ? "invalid_request_error" : "internal_error";
    RequestError error;
    error.http_status = at_fault ? 400 : 500;
    JsonWriter writer(error.body);
    writer.begin_object().key("error").begin_object();
    writer.key("message").value(status.message()).key("type").value(type);
    writer.key("param").null().key("code").value(type);
    writer.end_object().end_object();
    return error;
}

}  // namespace fathom
