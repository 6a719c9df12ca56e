// Errors as HTTP answers. OpenAI's shape, {"error":{"message","type","param","code"}}, has `param`
// null and `code` equal to the type, as the reference component writes it (recipe.md 4.1); it is
// that of request_error() (recipe/protocols/request_error.h) for more statuses. Anthropic's is
// {"type":"error","error":{"type","message"}}.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "gateway/http/message.h"

namespace fathom {

enum class ErrorShape { openai, anthropic };

// "invalid_request_error", "authentication_error", … as the shape's protocol calls an HTTP status.
const char* api_error_type(int http_status, ErrorShape shape);
std::string api_error_json(int http_status, std::string_view message, ErrorShape shape);
HttpResponse api_error(int http_status, std::string_view message,
                       ErrorShape shape = ErrorShape::openai);

// invalid_argument 400, resource_exhausted 429 (with Retry-After), deadline_exceeded 408,
// cancelled and unavailable 503, everything else 500.
int http_status_of(const Status& status);
HttpResponse api_error(const Status& status, ErrorShape shape = ErrorShape::openai);

}  // namespace fathom
