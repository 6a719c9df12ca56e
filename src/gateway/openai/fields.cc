#include "gateway/openai/fields.h"

#include <limits>

namespace fathom {

const Json* field(const Json& object, std::string_view name) {
    const Json* value = object.find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
}

Status wrong_kind(std::string_view name, std::string_view expected, const Json& value) {
    return invalid_argument("invalid request body: {}: expected {}, got {}", name, expected,
                            value.kind_name());
}

Status not_supported(std::string_view what) {
    return invalid_argument("{} not supported by this server yet.", what);
}

std::optional<std::uint64_t> integer_up_to(const Json& value, std::uint64_t limit) {
    if (value.kind() == Json::Kind::integer && value.as_int64() < 0) return std::nullopt;
    const std::uint64_t number = value.as_uint64();
    return number <= limit ? std::optional<std::uint64_t>(number) : std::nullopt;
}

Result<std::optional<bool>> bool_field(const Json& object, std::string_view name) {
    const Json* value = field(object, name);
    if (value == nullptr) return std::optional<bool>();
    if (!value->is_bool()) return wrong_kind(name, "a boolean", *value);
    return std::optional<bool>(value->as_bool());
}

Result<std::optional<std::int64_t>> int_field(const Json& object, std::string_view name) {
    const Json* value = field(object, name);
    if (value == nullptr) return std::optional<std::int64_t>();
    if (!value->is_integer()) return wrong_kind(name, "an integer", *value);
    if (value->kind() == Json::Kind::unsigned_integer &&
        value->as_uint64() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        return invalid_argument("invalid request body: {}: {} is out of range", name,
                                value->as_uint64());
    return std::optional<std::int64_t>(value->as_int64());
}

Result<std::optional<double>> number_field(const Json& object, std::string_view name) {
    const Json* value = field(object, name);
    if (value == nullptr) return std::optional<double>();
    if (!value->is_number()) return wrong_kind(name, "a number", *value);
    return std::optional<double>(value->as_double());
}

Result<std::optional<std::string>> string_field(const Json& object, std::string_view name) {
    const Json* value = field(object, name);
    if (value == nullptr) return std::optional<std::string>();
    if (!value->is_string()) return wrong_kind(name, "a string", *value);
    return std::optional<std::string>(value->as_string());
}

}  // namespace fathom
