#include "policy/measured_on.h"

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

}  // namespace fathom
