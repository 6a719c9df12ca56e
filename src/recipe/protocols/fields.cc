#include "recipe/protocols/fields.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/utf8.h"

namespace fathom {
namespace {

constexpr int kDepthMax = 127;
constexpr std::size_t kShownBytesMax = 200;

// The beginning of a text that may be long, in whole characters.
std::string_view shown(std::string_view text) {
    if (text.size() <= kShownBytesMax) return text;
    return text.substr(0, utf8_valid_bytes(text.substr(0, kShownBytesMax)));
}

std::string described(const Json& value) {
    switch (value.kind()) {
        case Json::Kind::null:
            return "null";
        case Json::Kind::boolean:
            return value.as_bool() ? "boolean `true`" : "boolean `false`";
        case Json::Kind::integer:
        case Json::Kind::unsigned_integer:
            return "integer `" + value.dump() + "`";
        case Json::Kind::real:
            return "floating point `" + value.dump() + "`";
        case Json::Kind::string:
            return "string " + Json(shown(value.as_string())).dump();
        case Json::Kind::array:
            return "sequence";
        case Json::Kind::object:
            return "map";
    }
    return "value";
}

}  // namespace

std::string shown_value(const Json& value) {
    return value.is_string() ? Json(shown(value.as_string())).dump()
                             : std::string(shown(value.dump()));
}

std::string listed_names(std::span<const std::string_view> names) {
    std::string text = names.size() > 2 ? "one of " : "";
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += names.size() == 2 ? " or " : ", ";
        text += fmt::format("`{}`", names[i]);
    }
    return text;
}

Status wrong_type(const Json& value, std::string_view expected) {
    return invalid_argument("invalid request body: invalid type: {}, expected {}", described(value),
                            expected);
}

Status wrong_type_of(std::string_view key, const Json& value, std::string_view expected) {
    return invalid_argument("invalid request body: {}: invalid type: {}, expected {}", key,
                            described(value), expected);
}

Status missing_field(std::string_view key) {
    return invalid_argument("invalid request body: missing field `{}`", key);
}

Result<Json> parse_request_body(std::string_view body, std::string_view expected) {
    auto json = parse_json(body, {.depth_max = kDepthMax});
    if (!json.ok()) return invalid_argument("invalid JSON request: {}", json.status().message());
    if (!json->is_object()) return wrong_type(*json, expected);
    return json;
}

Result<std::size_t> json_variant(const Json& value, std::span<const std::string_view> names) {
    if (!value.is_string()) return wrong_type(value, "variant identifier");
    const auto found = std::find(names.begin(), names.end(), value.as_string());
    if (found == names.end()) {
        return invalid_argument("invalid request body: unknown variant `{}`, expected {}",
                                shown(value.as_string()), listed_names(names));
    }
    return static_cast<std::size_t>(found - names.begin());
}

Result<Fields> Fields::of(Json& value, std::string_view expected) {
    if (!value.is_object()) return wrong_type(value, expected);
    return Fields(value.members());
}

Json* Fields::find(std::string_view key) {
    for (Json::Member& member : *members_)
        if (member.first == key) return &member.second;
    return nullptr;
}

Json* Fields::present(std::string_view key) {
    Json* member = find(key);
    return member == nullptr || member->is_null() ? nullptr : member;
}

Result<Json*> Fields::required(std::string_view key) {
    Json* member = find(key);
    if (member == nullptr) return missing_field(key);
    return member;
}

Result<std::string> Fields::string(std::string_view key) {
    FATHOM_ASSIGN(Json * member, required(key));
    if (!member->is_string()) return wrong_type(*member, "a string");
    return member->as_string();
}

Result<std::optional<std::string>> Fields::optional_string(std::string_view key) {
    if (present(key) == nullptr) return std::optional<std::string>();
    FATHOM_ASSIGN(std::string text, string(key));
    return std::optional<std::string>(std::move(text));
}

Result<std::optional<bool>> Fields::optional_bool(std::string_view key) {
    const Json* member = present(key);
    if (member == nullptr) return std::optional<bool>();
    if (!member->is_bool()) return wrong_type(*member, "a boolean");
    return std::optional<bool>(member->as_bool());
}

Result<std::optional<std::uint64_t>> Fields::optional_unsigned(std::string_view key,
                                                               std::uint64_t max,
                                                               std::string_view type) {
    const Json* member = present(key);
    if (member == nullptr) return std::optional<std::uint64_t>();
    if (!member->is_integer()) return wrong_type(*member, type);
    const bool negative = member->kind() == Json::Kind::integer && member->as_int64() < 0;
    if (negative || member->as_uint64() > max) {
        return invalid_argument("invalid request body: invalid value: {}, expected {}",
                                described(*member), type);
    }
    return std::optional<std::uint64_t>(member->as_uint64());
}

Result<std::optional<float>> Fields::optional_float(std::string_view key) {
    const Json* member = present(key);
    if (member == nullptr) return std::optional<float>();
    if (!member->is_number()) return wrong_type(*member, "f32");
    // A double beyond the range of float must not be converted: that is undefined.
    const double value = std::clamp(member->as_double(), -double{std::numeric_limits<float>::max()},
                                    double{std::numeric_limits<float>::max()});
    return std::optional<float>(static_cast<float>(value));
}

Result<Json::Array*> Fields::array(std::string_view key) {
    FATHOM_ASSIGN(Json * member, required(key));
    if (!member->is_array()) return wrong_type(*member, "a sequence");
    return &member->items();
}

Result<Json::Array*> Fields::optional_array(std::string_view key) {
    if (present(key) == nullptr) return static_cast<Json::Array*>(nullptr);
    return array(key);
}

Result<std::size_t> Fields::variant(std::string_view key, std::span<const std::string_view> names) {
    FATHOM_ASSIGN(const Json* member, required(key));
    return json_variant(*member, names);
}

}  // namespace fathom
