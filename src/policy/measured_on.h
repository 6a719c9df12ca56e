// What files of measured costs have in common: they name what they were measured on, and are
// refused elsewhere, since wrong costs plan steps that are late, which looks like a slow machine.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace fathom {

// Whether the file's "format" is this one.
Status check_cost_format(const Json& file, const std::string& expected);
// Whether it was measured with this value of the field. Errors name the field and both values.
Status check_measured_on(const Json& file, const char* field, const std::string& expected);
Status check_measured_on(const Json& file, const char* field, std::int64_t expected);

}  // namespace fathom
