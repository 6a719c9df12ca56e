// Errors in the shape that OpenAI clients expect: {"error":{"message","type","param","code"}}, with
// `param` null and `code` equal to the type as the reference component writes them (recipe.md 4.1).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "gateway/http/message.h"

namespace fathom {

// The "type" for an HTTP status: "invalid_request_error", "authentication_error", …
const char* api_error_type(int http_status);
std::string api_error_json(int http_status, std::string_view message);
HttpResponse api_error(int http_status, std::string_view message);

// invalid_argument 400, resource_exhausted 429 (with Retry-After), deadline_exceeded 408,
// cancelled and unavailable 503, everything else 500.
int http_status_of(const Status& status);
HttpResponse api_error(const Status& status);

}  // namespace fathom
