#include "recipe/spaced_json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include "base/check.h"

namespace fathom {
namespace {

// A positive double is d.ddd * 10^exponent with the fewest digits that read back as the double.
struct Decimal {
    std::string digits;
    int exponent = 0;
};

Decimal shortest_decimal(double magnitude) {
    std::array<char, 32> text;
    const auto end = std::to_chars(text.data(), text.data() + text.size(), magnitude,
                                   std::chars_format::scientific);
    FATHOM_CHECK(end.ec == std::errc());
    Decimal decimal;
    const char* at = text.data();
    for (; *at != 'e'; ++at)
        if (*at != '.') decimal.digits += *at;
    ++at;
    if (*at == '+') ++at;
    std::from_chars(at, end.ptr, decimal.exponent);
    return decimal;
}

struct NumberForm {
    int fixed_exponent_min;  // below it the number has an exponent
    int exponent_digits_min;
};
constexpr NumberForm kPythonNumbers{-4, 2};
constexpr NumberForm kWireNumbers{-5, 1};
constexpr int kFixedExponentMax = 15;

void append_double(std::string& out, double number, const NumberForm& form) {
    if (!std::isfinite(number)) {
        out += "null";
        return;
    }
    if (std::signbit(number)) out += '-';
    auto [digits, exponent] = shortest_decimal(std::fabs(number));
    if (exponent < form.fixed_exponent_min || exponent > kFixedExponentMax) {
        out += digits[0];
        if (digits.size() > 1) out.append(".").append(digits, 1);
        out += exponent < 0 ? "e-" : "e+";
        const std::string power = std::to_string(std::abs(exponent));
        if (power.size() < static_cast<std::size_t>(form.exponent_digits_min)) out += '0';
        out += power;
        return;
    }
    if (exponent < 0) {
        out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
        return;
    }
    const std::size_t whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() < whole + 1) digits.append(whole + 1 - digits.size(), '0');
    out.append(digits, 0, whole).append(".").append(digits, whole);
}

// Recurses as deep as the tree; parsed trees have a limit.
class Printer {
  public:
    Printer(std::string& out, bool spaces, const NumberForm& numbers)
        : out_(out),
          item_separator_(spaces ? ", " : ","),
          key_separator_(spaces ? ": " : ":"),
          numbers_(numbers) {}

    void print(const Json& json) {
        switch (json.kind()) {
            case Json::Kind::string:
                append_json_string(out_, json.as_string());
                return;
            case Json::Kind::real:
                append_double(out_, json.as_double(), numbers_);
                return;
            case Json::Kind::array:
                print_array(json.items());
                return;
            case Json::Kind::object:
                print_object(json.members());
                return;
            case Json::Kind::null:
            case Json::Kind::boolean:
            case Json::Kind::integer:
            case Json::Kind::unsigned_integer:
                out_ += json.dump();
                return;
        }
    }

  private:
    void print_array(const Json::Array& items) {
        out_ += '[';
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i > 0) out_ += item_separator_;
            print(items[i]);
        }
        out_ += ']';
    }
    void print_object(const Json::Object& members) {
        out_ += '{';
        for (std::size_t i = 0; i < members.size(); ++i) {
            if (i > 0) out_ += item_separator_;
            append_json_string(out_, members[i].first);
            out_ += key_separator_;
            print(members[i].second);
        }
        out_ += '}';
    }

    std::string& out_;
    std::string_view item_separator_;
    std::string_view key_separator_;
    NumberForm numbers_;
};

}  // namespace

void append_spaced_json(std::string& out, const Json& json, Dialect dialect) {
    Printer(out, true, dialect == Dialect::v4 ? kWireNumbers : kPythonNumbers).print(json);
}

std::string spaced_json(const Json& json, Dialect dialect) {
    std::string out;
    append_spaced_json(out, json, dialect);
    return out;
}

void append_wire_json(std::string& out, const Json& json) {
    Printer(out, false, kWireNumbers).print(json);
}

std::string wire_json(const Json& json) {
    std::string out;
    append_wire_json(out, json);
    return out;
}

}  // namespace fathom
