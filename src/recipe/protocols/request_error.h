// What a request that cannot be served is answered with (recipe.md 4.1): the same shape in all
// three protocols. Lowering reports faults of the request as invalid_argument.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

struct RequestError {
    int http_status = 400;  // 400: the request is at fault; 500: this side
    std::string body;       // {"error":{"message":…,"type":…,"param":null,"code":…}}
};

std::string request_error_body(std::string_view type, std::string_view message);

// `status` must be a failed one.
RequestError request_error(const Status& status);

}  // namespace fathom
