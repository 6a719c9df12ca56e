// What files of measured costs have in common: they name what they were measured on, and are
// refused elsewhere, since wrong costs plan steps that are late, which looks like a slow machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace fathom {

// Whether the file's "format" is this one.
Status check_cost_format(const Json& file, const std::string& expected);
// Whether it was measured with this value of the field. Errors name the field and both values.
Status check_measured_on(const Json& file, const char* field, const std::string& expected);
Status check_measured_on(const Json& file, const char* field, std::int64_t expected);

// Whether an object has no other members than these: a name that is spelled wrongly would be a
// value that is not used.
Status check_members(const Json& object, std::span<const std::string_view> known);
// How good the fit was, as both kinds of files say it: mean_error and p99_error from 0 to 1,
// samples from 0. Errors name the field and the value.
Status check_fit_quality(const Json& file);

}  // namespace fathom
