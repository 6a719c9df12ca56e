#include "base/json_keys.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <vector>

#include "base/input_file.h"

namespace fathom {

namespace {

// The first key that its object names twice, with where it stands, or nothing. As deep as
// parse_json lets a text be.
std::string repeated_key(simdjson::dom::element element, const std::string& where) {
    if (element.is_array()) {
        const simdjson::dom::array items = element.get_array().value_unsafe();
        std::size_t i = 0;
        for (const simdjson::dom::element item : items) {
            std::string found = repeated_key(item, fmt::format("{}[{}]", where, i++));
            if (!found.empty()) return found;
        }
    }
    if (!element.is_object()) return {};
    const std::string prefix = where.empty() ? "" : where + ".";
    const simdjson::dom::object object = element.get_object().value_unsafe();
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : object) {
        keys.push_back(key);
        std::string found = repeated_key(value, prefix + std::string(key));
        if (!found.empty()) return found;
    }
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    return twice == keys.end() ? std::string() : fmt::format("{}\"{}\"", prefix, *twice);
}

}  // namespace

Status check_single_keys(std::string_view text) {
    simdjson::dom::parser parser;
    simdjson::dom::element root;
    // What parse_json accepts and this does not are integers beyond 64 bits.
    if (parser.parse(text.data(), text.size()).get(root) != simdjson::SUCCESS)
        return invalid_argument("a number is an integer of more than 64 bits");
    const std::string key = repeated_key(root, "");
    return key.empty() ? Status() : invalid_argument("{}: given twice", key);
}

Result<Json> parse_json_file_of_single_keys(const std::string& path) {
    const JsonLimits limits;
    FATHOM_ASSIGN(const std::string text, read_input_file(path, limits.bytes_max));
    Result<Json> json = parse_json(text, limits);
    if (!json.ok()) return json.status().with_context(path);
    const Status single = check_single_keys(text);
    if (!single.ok()) return single.with_context(path);
    return json;
}

}  // namespace fathom
