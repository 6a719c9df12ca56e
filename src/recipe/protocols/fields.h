// Typed reads of the members of a JSON object, for request bodies (recipe.md 4.1). Unknown members
// are ignored; null counts as absent where a member may be absent. Errors are invalid_argument in
// the words of the reference's deserialiser as far as that is sensible; long values in them are
// cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace fathom {

// A whole body: one JSON object, at most 127 levels deep. `expected` names it in errors.
Result<Json> parse_request_body(std::string_view body, std::string_view expected);

// "invalid request body: invalid type: integer `3`, expected a string"
Status wrong_type(const Json& value, std::string_view expected);
// The same for the member `key`, which it names.
Status wrong_type_of(std::string_view key, const Json& value, std::string_view expected);
Status missing_field(std::string_view key);
// A value in a message: JSON, cut where it is long. Names: "one of `a`, `b`, `c`".
std::string shown_value(const Json& value);
std::string listed_names(std::span<const std::string_view> names);

// The place of a string in a list of names.
Result<std::size_t> json_variant(const Json& value, std::span<const std::string_view> names);

class Fields {
  public:
    // The object must outlive the reader. `expected` names it in the error for another type.
    static Result<Fields> of(Json& value, std::string_view expected);

    // The member, or nullptr when it is absent. present() takes null for absent.
    Json* find(std::string_view key);
    Json* present(std::string_view key);
    // Must be there; may be null.
    Result<Json*> required(std::string_view key);

    Result<std::string> string(std::string_view key);
    Result<std::optional<std::string>> optional_string(std::string_view key);
    Result<std::optional<bool>> optional_bool(std::string_view key);
    // `type` names the range 0..max in errors: "u32".
    Result<std::optional<std::uint64_t>> optional_unsigned(std::string_view key, std::uint64_t max,
                                                           std::string_view type);
    Result<std::optional<float>> optional_float(std::string_view key);
    Result<Json::Array*> array(std::string_view key);
    Result<Json::Array*> optional_array(std::string_view key);  // nullptr when absent
    Result<std::size_t> variant(std::string_view key, std::span<const std::string_view> names);

  private:
    explicit Fields(Json::Object& members) : members_(&members) {}
    Json::Object* members_;
};

}  // namespace fathom
