#include "base/json.h"

#include <fcntl.h>
#include <simdjson.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/utf8.h"

namespace fathom {

// --------------------------------------------------------------------------------------- the tree

Json::Json(bool value) : value_(value) {}
Json::Json(int value) : value_(std::int64_t{value}) {}
Json::Json(std::int64_t value) : value_(value) {}
Json::Json(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        value_ = static_cast<std::int64_t>(value);
    else
        value_ = value;
}
Json::Json(double value) : value_(value) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(std::string_view value) : value_(std::string(value)) {}
Json::Json(const char* value) : value_(std::string(value)) {}
Json::Json(Array value) : value_(std::move(value)) {}

Json Json::object(Object members) {
    Json json;
    json.value_ = std::move(members);
    return json;
}

Json Json::array(Array items) {
    return Json(std::move(items));
}

const char* Json::kind_name() const {
    switch (kind()) {
        case Kind::null:
            return "null";
        case Kind::boolean:
            return "boolean";
        case Kind::integer:
        case Kind::unsigned_integer:
            return "integer";
        case Kind::real:
            return "number";
        case Kind::string:
            return "string";
        case Kind::array:
            return "array";
        case Kind::object:
            return "object";
    }
    return "unknown";
}

bool Json::as_bool() const {
    FATHOM_CHECK(is_bool(), kind_name());
    return std::get<bool>(value_);
}

std::int64_t Json::as_int64() const {
    FATHOM_CHECK(kind() == Kind::integer, kind_name());
    return std::get<std::int64_t>(value_);
}

std::uint64_t Json::as_uint64() const {
    FATHOM_CHECK(is_integer(), kind_name());
    if (kind() == Kind::unsigned_integer) return std::get<std::uint64_t>(value_);
    const std::int64_t value = std::get<std::int64_t>(value_);
    FATHOM_CHECK(value >= 0, "negative integer");
    return static_cast<std::uint64_t>(value);
}

double Json::as_double() const {
    FATHOM_CHECK(is_number(), kind_name());
    switch (kind()) {
        case Kind::integer:
            return static_cast<double>(std::get<std::int64_t>(value_));
        case Kind::unsigned_integer:
            return static_cast<double>(std::get<std::uint64_t>(value_));
        default:
            return std::get<double>(value_);
    }
}

const std::string& Json::as_string() const {
    FATHOM_CHECK(is_string(), kind_name());
    return std::get<std::string>(value_);
}

const Json::Array& Json::items() const {
    FATHOM_CHECK(is_array(), kind_name());
    return std::get<Array>(value_);
}

const Json::Object& Json::members() const {
    FATHOM_CHECK(is_object(), kind_name());
    return std::get<Object>(value_);
}

Json::Array& Json::items() {
    FATHOM_CHECK(is_array(), kind_name());
    return std::get<Array>(value_);
}

Json::Object& Json::members() {
    FATHOM_CHECK(is_object(), kind_name());
    return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
    if (!is_object()) return nullptr;
    for (const Member& member : members())
        if (member.first == key) return &member.second;
    return nullptr;
}

void Json::set(std::string_view key, Json value) {
    if (is_null()) value_ = Object{};
    for (Member& member : members()) {
        if (member.first == key) {
            member.second = std::move(value);
            return;
        }
    }
    members().emplace_back(std::string(key), std::move(value));
}

void Json::push_back(Json value) {
    if (is_null()) value_ = Array{};
    items().push_back(std::move(value));
}

// ---------------------------------------------------------------------------------------- parsing

namespace {

// simdjson reserves about twelve bytes for each byte of text and converts by recursion.
constexpr int kDepthLimit = 1024;

// Keeps the first position and the last value of every key. Sorts by hash, then by key, rather than
// use a hash table: no choice of keys makes it slow.
void merge_duplicate_keys(Json::Object& members) {
    constexpr std::size_t kFewMembers = 16;
    if (members.size() <= kFewMembers) {
        for (std::size_t i = 1; i < members.size();) {
            const auto earlier = std::find_if(
                members.begin(), members.begin() + static_cast<std::ptrdiff_t>(i),
                [&](const Json::Member& member) { return member.first == members[i].first; });
            if (earlier == members.begin() + static_cast<std::ptrdiff_t>(i)) {
                ++i;
                continue;
            }
            earlier->second = std::move(members[i].second);
            members.erase(members.begin() + static_cast<std::ptrdiff_t>(i));
        }
        return;
    }
    struct Slot {
        std::size_t hash;
        std::uint32_t position;
    };
    std::vector<Slot> order(members.size());
    for (std::size_t i = 0; i < members.size(); ++i)
        order[i] = {std::hash<std::string_view>()(members[i].first), static_cast<std::uint32_t>(i)};
    std::sort(order.begin(), order.end(), [&](const Slot& a, const Slot& b) {
        if (a.hash != b.hash) return a.hash < b.hash;
        const int compared = members[a.position].first.compare(members[b.position].first);
        return compared != 0 ? compared < 0 : a.position < b.position;
    });
    std::vector<bool> drop(members.size());
    bool found = false;
    Slot first = order[0];
    for (std::size_t i = 1; i < order.size(); ++i) {
        const Slot slot = order[i];
        if (slot.hash != first.hash ||
            members[slot.position].first != members[first.position].first) {
            first = slot;
            continue;
        }
        members[first.position].second = std::move(members[slot.position].second);
        drop[slot.position] = found = true;
    }
    if (!found) return;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
        if (drop[i]) continue;
        if (kept != i) members[kept] = std::move(members[i]);
        ++kept;
    }
    members.resize(kept);
}

// False when nested deeper than `depth_left` arrays and objects.
bool tree_from_simdjson(simdjson::dom::element element, int depth_left, Json& json) {
    using Type = simdjson::dom::element_type;
    switch (element.type()) {
        case Type::NULL_VALUE:
            break;
        case Type::BOOL:
            json = Json(element.get_bool().value_unsafe());
            break;
        case Type::INT64:
            json = Json(static_cast<std::int64_t>(element.get_int64().value_unsafe()));
            break;
        case Type::UINT64:
            json = Json(static_cast<std::uint64_t>(element.get_uint64().value_unsafe()));
            break;
        case Type::DOUBLE:
            json = Json(element.get_double().value_unsafe());
            break;
        case Type::STRING:
            json = Json(element.get_string().value_unsafe());
            break;
        case Type::ARRAY: {
            if (depth_left == 0) return false;
            const simdjson::dom::array from = element.get_array().value_unsafe();
            Json::Array items;
            items.reserve(from.size());
            for (const simdjson::dom::element item : from)
                if (!tree_from_simdjson(item, depth_left - 1, items.emplace_back())) return false;
            json = Json(std::move(items));
            break;
        }
        case Type::OBJECT: {
            if (depth_left == 0) return false;
            const simdjson::dom::object from = element.get_object().value_unsafe();
            Json::Object members;
            members.reserve(from.size());
            for (const auto& [key, value] : from) {
                Json& member = members.emplace_back(std::string(key), Json()).second;
                if (!tree_from_simdjson(value, depth_left - 1, member)) return false;
            }
            merge_duplicate_keys(members);
            json = Json::object(std::move(members));
            break;
        }
    }
    return true;
}

// Builds the tree from Boost.JSON's events. Used where simdjson refused a text (for integers beyond
// 64 bits, which become doubles here, and to learn where the fault is) and for -0. Numbers are
// converted from their text, since Boost.JSON's own doubles can be off by a unit in the last place.
struct TreeBuilder {
    using ErrorCode = boost::json::error_code;
    using StringView = boost::json::string_view;

    // NOLINTBEGIN(readability-identifier-naming): names that Boost.JSON asks for
    static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
    static constexpr std::size_t max_array_size = max_object_size;
    static constexpr std::size_t max_key_size = max_object_size;
    static constexpr std::size_t max_string_size = max_object_size;
    // NOLINTEND(readability-identifier-naming)

    struct Open {
        bool is_object;
        std::string key;
        Json::Array items;
        Json::Object members;
    };
    std::vector<Open> open;
    std::string text;  // of the string or number being read
    Json root;
    bool number_too_large = false;

    bool add(Json value) {
        if (open.empty())
            root = std::move(value);
        else if (open.back().is_object)
            open.back().members.emplace_back(std::move(open.back().key), std::move(value));
        else
            open.back().items.push_back(std::move(value));
        return true;
    }
    bool append(StringView part) {
        text.append(part.data(), part.size());
        return true;
    }
    std::string take_text(StringView last) {
        append(last);
        return std::exchange(text, {});
    }

    bool on_document_begin(ErrorCode&) { return true; }
    bool on_document_end(ErrorCode&) { return true; }
    bool on_object_begin(ErrorCode&) {
        open.push_back({true, {}, {}, {}});
        return true;
    }
    bool on_object_end(std::size_t, ErrorCode&) {
        Json::Object members = std::move(open.back().members);
        open.pop_back();
        merge_duplicate_keys(members);
        return add(Json::object(std::move(members)));
    }
    bool on_array_begin(ErrorCode&) {
        open.push_back({false, {}, {}, {}});
        return true;
    }
    bool on_array_end(std::size_t, ErrorCode&) {
        Json::Array items = std::move(open.back().items);
        open.pop_back();
        return add(Json(std::move(items)));
    }
    bool on_key_part(StringView part, std::size_t, ErrorCode&) { return append(part); }
    bool on_key(StringView last, std::size_t, ErrorCode&) {
        open.back().key = take_text(last);
        return true;
    }
    bool on_string_part(StringView part, std::size_t, ErrorCode&) { return append(part); }
    bool on_string(StringView last, std::size_t, ErrorCode&) { return add(Json(take_text(last))); }
    bool on_number_part(StringView part, ErrorCode&) { return append(part); }
    bool on_int64(std::int64_t value, StringView last, ErrorCode&) {
        const bool negative = take_text(last).front() == '-';
        return add(value == 0 && negative ? Json(-0.0) : Json(value));
    }
    bool on_uint64(std::uint64_t value, StringView, ErrorCode&) {
        text.clear();
        return add(Json(value));
    }
    bool on_double(double, StringView last, ErrorCode& ec) {
        const std::string number = take_text(last);
        double value = 0;
        const auto result = std::from_chars(number.data(), number.data() + number.size(), value);
        // Underflow is reported as out of range too; the nearest double is then zero.
        if (result.ec == std::errc::result_out_of_range)
            value = std::strtod(number.c_str(), nullptr);
        if (!std::isfinite(value)) {
            number_too_large = true;
            ec = boost::json::error::exponent_overflow;
            return false;
        }
        return add(Json(value));
    }
    bool on_bool(bool value, ErrorCode&) { return add(Json(value)); }
    bool on_null(ErrorCode&) { return add(Json()); }
    bool on_comment_part(StringView, ErrorCode&) { return true; }
    bool on_comment(StringView, ErrorCode&) { return true; }
};

// Whether the text may hold the number -0, which has no integer. It may also be part of a string.
bool may_have_negative_zero(std::string_view text) {
    for (std::size_t at = text.find("-0"); at != std::string_view::npos;
         at = text.find("-0", at + 2)) {
        const std::size_t end = at + 2;
        if (end == text.size() ||
            std::string_view(",]} \t\r\n").find(text[end]) != std::string_view::npos)
            return true;
    }
    return false;
}

Result<Json> parse_with_boost(std::string_view text, const JsonLimits& limits) {
    boost::json::parse_options options;
    options.max_depth = static_cast<std::size_t>(limits.depth_max);
    boost::json::basic_parser<TreeBuilder> parser(options);
    boost::json::error_code ec;
    const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
    if (ec == boost::json::error::too_deep)
        return invalid_argument("JSON is nested more than {} deep at byte {}", limits.depth_max,
                                used);
    if (ec == boost::json::error::exponent_overflow || parser.handler().number_too_large)
        return invalid_argument("JSON has a number beyond the range of a double at byte {}", used);
    if (ec == boost::json::error::incomplete)
        return invalid_argument("JSON ends too early, at byte {}", used);
    if (ec) return invalid_argument("invalid JSON at byte {}: {}", used, ec.message());
    if (used < text.size())
        return invalid_argument("JSON is followed by other text at byte {}", used);
    return std::move(parser.handler().root);
}

class FileDescriptor {
  public:
    explicit FileDescriptor(int fd) : fd_(fd) {}
    ~FileDescriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
    int get() const { return fd_; }

  private:
    int fd_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
    FATHOM_CHECK(limits.depth_max >= 1 && limits.depth_max <= kDepthLimit);
    if (text.size() > limits.bytes_max)
        return invalid_argument("JSON has {} bytes; the limit is {}", text.size(),
                                limits.bytes_max);
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
        return invalid_argument("JSON is empty");
    simdjson::dom::parser parser(limits.bytes_max);
    // simdjson counts the root as a level of its own, and does not count an empty array or object.
    simdjson::error_code failed =
        parser.allocate(text.size(), static_cast<std::size_t>(limits.depth_max) + 1);
    simdjson::dom::element root;
    if (!failed) failed = parser.parse(text.data(), text.size()).get(root);
    if (failed == simdjson::MEMALLOC)
        return error(StatusCode::resource_exhausted, "no memory to parse {} bytes of JSON",
                     text.size());
    if (failed == simdjson::UTF8_ERROR)
        return invalid_argument("JSON is not valid UTF-8 at byte {}", utf8_valid_bytes(text));
    Json json;
    if (!failed && !may_have_negative_zero(text) &&
        tree_from_simdjson(root, limits.depth_max, json))
        return json;
    return parse_with_boost(text, limits);
}

Result<Json> parse_json_file(const std::string& path, const JsonLimits& limits) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (file.get() < 0 || ::fstat(file.get(), &info) != 0) {
        const int code = errno;
        return error(code == ENOENT ? StatusCode::not_found : StatusCode::unavailable,
                     "cannot read {}: {}", path, std::strerror(code));
    }
    if (!S_ISREG(info.st_mode)) return invalid_argument("{} is not a regular file", path);
    const auto bytes = static_cast<std::uint64_t>(info.st_size);
    if (bytes > limits.bytes_max)
        return invalid_argument("{} has {} bytes; the limit for JSON is {}", path, bytes,
                                limits.bytes_max);
    std::string text(bytes, '\0');
    std::size_t used = 0;
    while (used < text.size()) {
        const ssize_t got = ::read(file.get(), text.data() + used, text.size() - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return error(StatusCode::data_loss, "cannot read {}: {}", path, std::strerror(errno));
        if (got == 0) break;
        used += static_cast<std::size_t>(got);
    }
    text.resize(used);
    Result<Json> json = parse_json(text, limits);
    if (!json.ok()) return json.status().with_context(path);
    return json;
}

// ---------------------------------------------------------------------------------- typed members

namespace {

std::string member_name(std::string_view where, std::string_view key) {
    return where.empty() ? std::string(key) : fmt::format("{}.{}", where, key);
}

Result<const Json*> require_member(const Json& object, std::string_view key, std::string_view where,
                                   const char* expected) {
    if (!object.is_object())
        return invalid_argument("{}: expected an object, got {}", where.empty() ? "JSON" : where,
                                object.kind_name());
    const Json* member = object.find(key);
    if (member == nullptr)
        return invalid_argument("{}: expected {}, but it is missing", member_name(where, key),
                                expected);
    return member;
}

Status wrong_kind(std::string_view where, std::string_view key, const char* expected,
                  const Json& got) {
    return invalid_argument("{}: expected {}, got {}", member_name(where, key), expected,
                            got.kind_name());
}

}  // namespace

Result<std::int64_t> json_int(const Json& object, std::string_view key, std::string_view where) {
    FATHOM_ASSIGN(const Json* member, require_member(object, key, where, "an integer"));
    if (member->kind() == Json::Kind::unsigned_integer)
        return invalid_argument("{}: {} is beyond 64 bits, signed", member_name(where, key),
                                member->as_uint64());
    if (!member->is_integer()) return wrong_kind(where, key, "an integer", *member);
    return member->as_int64();
}

Result<std::string> json_string(const Json& object, std::string_view key, std::string_view where) {
    FATHOM_ASSIGN(const Json* member, require_member(object, key, where, "a string"));
    if (!member->is_string()) return wrong_kind(where, key, "a string", *member);
    return member->as_string();
}

}  // namespace fathom
