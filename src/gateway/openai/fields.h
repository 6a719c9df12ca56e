// Typed reads of the members of a request body: absent and null give nothing, a wrong kind gives
// the error "invalid request body: NAME: expected …, got …". Used by request.cc and messages.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace fathom {

const Json* field(const Json& object, std::string_view name);  // null when absent or null
Status wrong_kind(std::string_view name, std::string_view expected, const Json& value);
Status not_supported(
    std::string_view what);  // "WHAT not supported by this server yet." with "X is" as WHAT

// An integer's value when it lies in [0, limit], else nothing.
std::optional<std::uint64_t> integer_up_to(const Json& value, std::uint64_t limit);

Result<std::optional<bool>> bool_field(const Json& object, std::string_view name);
Result<std::optional<std::int64_t>> int_field(const Json& object, std::string_view name);
Result<std::optional<double>> number_field(const Json& object, std::string_view name);
Result<std::optional<std::string>> string_field(const Json& object, std::string_view name);

}  // namespace fathom
