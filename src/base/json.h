// JSON in and out. Json is an owning tree with object keys in the order received (duplicate keys
// keep the first position and the last value) and numbers with their exact 64-bit integer where
// they are integers (-0 is not: it is the double). parse_json never throws and never recurses
// without a limit; the library behind it (simdjson, with Boost.JSON for integers beyond 64 bits)
// stays in json.cc.
//
// JsonWriter appends compact JSON to a string: no tree, for hot paths such as streamed events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace fathom {

class Json {
  public:
    // unsigned_integer only for values beyond int64.
    enum class Kind { null, boolean, integer, unsigned_integer, real, string, array, object };
    using Array = std::vector<Json>;
    using Member = std::pair<std::string, Json>;
    using Object = std::vector<Member>;

    Json() = default;              // null
    Json(bool value);              // NOLINT(google-explicit-constructor)
    Json(int value);               // NOLINT(google-explicit-constructor)
    Json(std::int64_t value);      // NOLINT(google-explicit-constructor)
    Json(std::uint64_t value);     // NOLINT(google-explicit-constructor)
    Json(double value);            // NOLINT(google-explicit-constructor)
    Json(std::string value);       // NOLINT(google-explicit-constructor)
    Json(std::string_view value);  // NOLINT(google-explicit-constructor)
    Json(const char* value);       // NOLINT(google-explicit-constructor)
    Json(Array value);             // NOLINT(google-explicit-constructor)
    static Json object(Object members = {});
    static Json array(Array items = {});

    Kind kind() const { return static_cast<Kind>(value_.index()); }
    const char* kind_name() const;  // "null", "boolean", "integer", "number", "string", ...
    bool is_null() const { return kind() == Kind::null; }
    bool is_bool() const { return kind() == Kind::boolean; }
    bool is_integer() const { return kind() == Kind::integer || kind() == Kind::unsigned_integer; }
    bool is_number() const { return is_integer() || kind() == Kind::real; }
    bool is_string() const { return kind() == Kind::string; }
    bool is_array() const { return kind() == Kind::array; }
    bool is_object() const { return kind() == Kind::object; }

    // Typed reads; the kind must match (CHECK). as_double accepts every number; as_int64 needs an
    // integer within int64.
    bool as_bool() const;
    std::int64_t as_int64() const;
    std::uint64_t as_uint64() const;
    double as_double() const;
    const std::string& as_string() const;
    const Array& items() const;
    const Object& members() const;
    Array& items();
    Object& members();

    // The member's value, or nullptr when absent (or when this is no object).
    const Json* find(std::string_view key) const;
    // Sets a member, replacing an earlier one of that name. This must be an object (or null, which
    // becomes one). Linear, as find is; whoever builds a large object fills an Object instead.
    void set(std::string_view key, Json value);
    void push_back(Json value);  // this must be an array (or null, which becomes one)

    std::string dump() const;  // compact
    friend bool operator==(const Json& a, const Json& b) { return a.value_ == b.value_; }

  private:
    // The alternatives stand in the order of Kind. 40 bytes, whatever the kind.
    std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array,
                 Object>
        value_;
};

struct JsonLimits {
    std::size_t bytes_max = std::size_t{256} << 20;
    int depth_max = 128;
};

// Parses one JSON text (surrounded by white space at most). Errors say what is wrong and at which
// byte where the library knows it.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});
// Reads and parses a file; errors carry the path.
Result<Json> parse_json_file(const std::string& path, const JsonLimits& limits = {});

// Typed member access with messages that name the field, for readers of configs and requests:
// "text_config.hidden_size: expected a positive integer, got string".
Result<std::int64_t> json_int(const Json& object, std::string_view key, std::string_view where);
Result<std::string> json_string(const Json& object, std::string_view key, std::string_view where);

// Appends `text` as a JSON string with quotes. Escapes only what must be; invalid UTF-8 becomes
// U+FFFD.
void append_json_string(std::string& out, std::string_view text);
// The same without the quotes, for strings that come in pieces.
void append_json_escaped(std::string& out, std::string_view text);

class JsonWriter {
  public:
    explicit JsonWriter(std::string& out) : out_(out) {}
    JsonWriter& begin_object();
    JsonWriter& end_object();
    JsonWriter& begin_array();
    JsonWriter& end_array();
    JsonWriter& key(std::string_view name);
    JsonWriter& value(std::string_view text);
    JsonWriter& value(const char* text) { return value(std::string_view(text)); }
    JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
    JsonWriter& value(std::int64_t number);
    JsonWriter& value(std::uint64_t number);
    JsonWriter& value(int number) { return value(static_cast<std::int64_t>(number)); }
    JsonWriter& value(
        double number);  // shortest form that round-trips; NaN and infinities give null
    JsonWriter& value(bool flag);
    JsonWriter& null();
    JsonWriter& value(const Json& json);
    JsonWriter& raw(std::string_view json);  // a value that is JSON text already

  private:
    void separate();
    std::string& out_;
    bool need_comma_ = false;
};

}  // namespace fathom
