#include "policy/measured_on.h"

#include <fmt/format.h>

#include <algorithm>

namespace fathom {

namespace {

Status expect_equal(const char* field, const std::string& found, const std::string& expected) {
    if (found == expected) return {};
    return invalid_argument(
        "{}: the file was measured with \"{}\", this is \"{}\"; calibrate again", field, found,
        expected);
}

}  // namespace

Status check_cost_format(const Json& file, const std::string& expected) {
    FATHOM_ASSIGN(const std::string format, json_string(file, "format", ""));
    if (format == expected) return {};
    return invalid_argument("format: \"{}\", expected \"{}\"", format, expected);
}

Status check_measured_on(const Json& file, const char* field, const std::string& expected) {
    FATHOM_ASSIGN(const std::string found, json_string(file, field, ""));
    return expect_equal(field, found, expected);
}

Status check_measured_on(const Json& file, const char* field, std::int64_t expected) {
    FATHOM_ASSIGN(const std::int64_t found, json_int(file, field, ""));
    return expect_equal(field, std::to_string(found), std::to_string(expected));
}

Status check_members(const Json& object, std::span<const std::string_view> known) {
    for (const Json::Member& member : object.members())
        if (std::find(known.begin(), known.end(), member.first) == known.end())
            return invalid_argument("{}: no such field, expected one of {}", member.first,
                                    fmt::join(known, ", "));
    return {};
}

Status check_fit_quality(const Json& file) {
    for (const char* const name : {"mean_error", "p99_error"}) {
        const Json* const value = file.find(name);
        const double share = value != nullptr && value->is_number() ? value->as_double() : -1;
        if (!(share >= 0 && share <= 1))
            return invalid_argument("{}: {}, expected a number from 0 to 1", name,
                                    value == nullptr ? "missing" : value->dump());
    }
    FATHOM_ASSIGN(const std::int64_t samples, json_int(file, "samples", ""));
    if (samples < 0) return invalid_argument("samples: {}, expected at least 0", samples);
    return {};
}

}  // namespace fathom
