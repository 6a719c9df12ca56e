// The text side of json.h: strings, numbers, JsonWriter and Json::dump.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/utf8.h"

namespace fathom {

namespace {

constexpr char kHexDigits[] = "0123456789abcdef";
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

void append_escape(std::string& out, unsigned char c) {
    switch (c) {
        case '"':
            out += "\\\"";
            return;
        case '\\':
            out += "\\\\";
            return;
        case '\b':
            out += "\\b";
            return;
        case '\f':
            out += "\\f";
            return;
        case '\n':
            out += "\\n";
            return;
        case '\r':
            out += "\\r";
            return;
        case '\t':
            out += "\\t";
            return;
        default:
            out += "\\u00";
            out += kHexDigits[c >> 4];
            out += kHexDigits[c & 15];
    }
}

// Appends valid UTF-8 with escapes.
void append_valid_escaped(std::string& out, std::string_view text) {
    std::size_t start = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        out.append(text, start, i - start);
        append_escape(out, c);
        start = i + 1;
    }
    out.append(text, start, text.size() - start);
}

void append_number(std::string& out, double number) {
    if (!std::isfinite(number)) {
        out += "null";
        return;
    }
    std::array<char, 32> digits;  // the shortest form has at most 24 characters
    const auto end = fmt::format_to(digits.data(), "{}", number);
    const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
    out += text;
    // Without a point or an exponent it would be read back as an integer.
    if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

template <typename Int>
void append_integer(std::string& out, Int number) {
    std::array<char, 24> digits;
    out.append(digits.data(),
               std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

// Recurses as deep as the tree; parsed trees have a limit.
class TreePrinter {
  public:
    explicit TreePrinter(std::string& out) : out_(out) {}

    void print(const Json& json) {
        switch (json.kind()) {
            case Json::Kind::null:
                out_ += "null";
                break;
            case Json::Kind::boolean:
                out_ += json.as_bool() ? "true" : "false";
                break;
            case Json::Kind::integer:
                append_integer(out_, json.as_int64());
                break;
            case Json::Kind::unsigned_integer:
                append_integer(out_, json.as_uint64());
                break;
            case Json::Kind::real:
                append_number(out_, json.as_double());
                break;
            case Json::Kind::string:
                append_json_string(out_, json.as_string());
                break;
            case Json::Kind::array:
                print_all(json.items(), '[', ']', [this](const Json& item) { print(item); });
                break;
            case Json::Kind::object:
                print_all(json.members(), '{', '}', [this](const Json::Member& member) {
                    append_json_string(out_, member.first);
                    out_ += ':';
                    print(member.second);
                });
                break;
        }
    }

  private:
    template <typename List, typename PrintOne>
    void print_all(const List& list, char begin, char end, PrintOne print_one) {
        out_ += begin;
        bool first = true;
        for (const auto& item : list) {
            if (!first) out_ += ',';
            first = false;
            print_one(item);
        }
        out_ += end;
    }

    std::string& out_;
};

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
    while (true) {
        const std::size_t valid = utf8_valid_bytes(text);
        append_valid_escaped(out, text.substr(0, valid));
        text.remove_prefix(valid);
        if (text.empty()) return;
        out += kReplacement;
        text.remove_prefix(static_cast<std::size_t>(-utf8_sequence(text)));
    }
}

void append_json_string(std::string& out, std::string_view text) {
    out += '"';
    append_json_escaped(out, text);
    out += '"';
}

std::string Json::dump() const {
    std::string out;
    TreePrinter(out).print(*this);
    return out;
}

void JsonWriter::separate() {
    if (need_comma_) out_ += ',';
    need_comma_ = true;
}

JsonWriter& JsonWriter::begin_object() {
    separate();
    out_ += '{';
    need_comma_ = false;
    return *this;
}

JsonWriter& JsonWriter::end_object() {
    out_ += '}';
    need_comma_ = true;
    return *this;
}

JsonWriter& JsonWriter::begin_array() {
    separate();
    out_ += '[';
    need_comma_ = false;
    return *this;
}

JsonWriter& JsonWriter::end_array() {
    out_ += ']';
    need_comma_ = true;
    return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
    separate();
    append_json_string(out_, name);
    out_ += ':';
    need_comma_ = false;
    return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
    separate();
    append_json_string(out_, text);
    return *this;
}

JsonWriter& JsonWriter::value(std::int64_t number) {
    separate();
    append_integer(out_, number);
    return *this;
}

JsonWriter& JsonWriter::value(std::uint64_t number) {
    separate();
    append_integer(out_, number);
    return *this;
}

JsonWriter& JsonWriter::value(double number) {
    separate();
    append_number(out_, number);
    return *this;
}

JsonWriter& JsonWriter::value(bool flag) {
    separate();
    out_ += flag ? "true" : "false";
    return *this;
}

JsonWriter& JsonWriter::null() {
    separate();
    out_ += "null";
    return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
    separate();
    out_ += json;
    return *this;
}

JsonWriter& JsonWriter::value(const Json& json) {
    separate();
    TreePrinter(out_).print(json);
    return *this;
}

}  // namespace fathom
