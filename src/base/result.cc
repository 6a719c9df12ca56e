#include "base/result.h"

namespace fathom {

const char* status_code_name(StatusCode code) {
    switch (code) {
        case StatusCode::ok:
            return "ok";
        case StatusCode::invalid_argument:
            return "invalid_argument";
        case StatusCode::not_found:
            return "not_found";
        case StatusCode::data_loss:
            return "data_loss";
        case StatusCode::resource_exhausted:
            return "resource_exhausted";
        case StatusCode::unavailable:
            return "unavailable";
        case StatusCode::deadline_exceeded:
            return "deadline_exceeded";
        case StatusCode::cancelled:
            return "cancelled";
        case StatusCode::permission_denied:
            return "permission_denied";
        case StatusCode::unsupported:
            return "unsupported";
        case StatusCode::internal:
            return "internal";
    }
    return "unknown";
}

std::string Status::to_string() const {
    return ok() ? "ok" : fmt::format("{}: {}", status_code_name(code_), message_);
}

Status Status::with_context(std::string_view context) const {
    return ok() ? *this : Status(code_, fmt::format("{}: {}", context, message_));
}

}  // namespace fathom
