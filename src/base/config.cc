#include "base/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <variant>

#include "base/check.h"
#include "base/input_file.h"
#include "base/json.h"

namespace fathom {

namespace {

constexpr std::uintmax_t kFileBytesMax = 1 << 20;

using Value = std::variant<std::string, bool, std::int64_t, double, std::vector<std::string>>;

// A quoted string that TOML reads back: JSON's escapes are a subset of TOML's.
std::string toml_string(std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out;
}

std::string toml_list(const std::vector<std::string>& list) {
    std::string out;
    for (const std::string& item : list)
        out += (out.empty() ? "" : ", ") + toml_string(item);
    return "[" + out + "]";
}

std::string number_text(double value) {
    return fmt::format("{}", value);
}

// "1..65535", "at least 1", "at most 5", or empty when every number will do.
template <typename T>
std::string range_text(T min, T max) {
    const bool no_min = min == std::numeric_limits<T>::lowest() || min < -1e308;
    const bool no_max = max == std::numeric_limits<T>::max() || max > 1e308;
    if (no_min && no_max) return "";
    if (no_max) return fmt::format("at least {}", min);
    if (no_min) return fmt::format("at most {}", max);
    return fmt::format("{}..{}", min, max);
}

template <typename T>
std::optional<T> number_from_text(std::string_view text) {
    T value{};
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

// What TOML calls the kinds of values.
std::string_view kind_of(const toml::node& node) {
    if (node.is_table()) return "a table";
    if (node.is_array()) return "an array";
    if (node.is_string()) return "a string";
    if (node.is_integer()) return "an integer";
    if (node.is_floating_point()) return "a number with a point";
    if (node.is_boolean()) return "true or false";
    return "a date or time";
}

}  // namespace

struct ConfigSchema::Entry {
    std::string key, help;
    bool secret = false;
    std::vector<std::string> choices = {};
    std::variant<std::string*, bool*, std::int64_t*, double*, std::vector<std::string>*> target;
    std::int64_t int_min = 0, int_max = 0;
    double double_min = 0, double_max = 0;
    std::string default_text = {};
    std::string origin = "default";
    bool from_flag = false;

    const char* expected() const {
        constexpr const char* kExpected[] = {"a string", "true or false", "an integer", "a number",
                                             "an array of strings"};
        return kExpected[target.index()];
    }

    std::string limits_text() const {
        if (!choices.empty()) return fmt::format("{}", fmt::join(choices, "|"));
        if (std::holds_alternative<std::int64_t*>(target)) return range_text(int_min, int_max);
        if (std::holds_alternative<double*>(target)) return range_text(double_min, double_max);
        return "";
    }

    bool is_empty() const {
        if (const auto* text = std::get_if<std::string*>(&target)) return (*text)->empty();
        if (const auto* list = std::get_if<std::vector<std::string>*>(&target))
            return (*list)->empty();
        return false;
    }

    // As TOML writes it, or for reading.
    std::string value_text(bool as_toml) const {
        if (secret && !is_empty()) return "(set)";
        return std::visit(
            [&](const auto* value) -> std::string {
                using T = std::decay_t<decltype(*value)>;
                if constexpr (std::is_same_v<T, std::string>)
                    return as_toml ? toml_string(*value) : *value;
                else if constexpr (std::is_same_v<T, std::vector<std::string>>)
                    return as_toml ? toml_list(*value) : fmt::format("{}", fmt::join(*value, ", "));
                else if constexpr (std::is_same_v<T, double>)
                    return number_text(*value);
                else
                    return fmt::format("{}", *value);
            },
            target);
    }

    Status wrong_kind(std::string_view from, std::string_view got) const {
        return invalid_argument("{}: {} must be {}, got {}", from, key, expected(), got);
    }

    Status check(std::string_view from, const Value& value) const {
        const auto out_of_range = [&](const auto& shown) {
            return invalid_argument("{}: {} is {}; the limits are {}", from, key, shown,
                                    limits_text());
        };
        if (const auto* number = std::get_if<std::int64_t>(&value)) {
            if (*number < int_min || *number > int_max) return out_of_range(*number);
        } else if (const auto* real = std::get_if<double>(&value)) {
            if (std::isnan(*real)) return invalid_argument("{}: {} is not a number", from, key);
            if (*real < double_min || *real > double_max) return out_of_range(*real);
        } else if (const auto* text = std::get_if<std::string>(&value); text && !choices.empty()) {
            if (std::find(choices.begin(), choices.end(), *text) == choices.end())
                return invalid_argument("{}: {} is {}; it must be one of {}", from, key,
                                        toml_string(*text), fmt::join(choices, ", "));
        }
        return {};
    }

    Result<Value> from_toml(std::string_view from, const toml::node& node) const {
        std::optional<Value> value;
        if (std::holds_alternative<std::string*>(target)) {
            if (node.is_string()) value = node.as_string()->get();
        } else if (std::holds_alternative<bool*>(target)) {
            if (node.is_boolean()) value = node.as_boolean()->get();
        } else if (std::holds_alternative<std::int64_t*>(target)) {
            if (node.is_integer()) value = node.as_integer()->get();
        } else if (std::holds_alternative<double*>(target)) {
            if (node.is_number()) value = *node.value<double>();
        } else if (const toml::array* array = node.as_array()) {
            std::vector<std::string> list;
            for (const toml::node& item : *array) {
                if (!item.is_string())
                    return invalid_argument("{}: {} must be {}, but contains {}", from, key,
                                            expected(), kind_of(item));
                list.push_back(item.as_string()->get());
            }
            value = std::move(list);
        }
        if (!value) return wrong_kind(from, kind_of(node));
        FATHOM_RETURN_IF_ERROR(check(from, *value));
        return *std::move(value);
    }

    Result<Value> from_text(std::string_view from, std::string_view text) const {
        std::optional<Value> value;
        if (std::holds_alternative<std::string*>(target)) {
            value = std::string(text);
        } else if (std::holds_alternative<bool*>(target)) {
            if (text == "true" || text.empty()) value = true;
            if (text == "false") value = false;
        } else if (std::holds_alternative<std::int64_t*>(target)) {
            if (const auto number = number_from_text<std::int64_t>(text)) value = *number;
        } else if (std::holds_alternative<double*>(target)) {
            if (const auto number = number_from_text<double>(text)) value = *number;
        } else {
            value = std::vector<std::string>{std::string(text)};
        }
        if (!value) return wrong_kind(from, toml_string(text));
        FATHOM_RETURN_IF_ERROR(check(from, *value));
        return *std::move(value);
    }

    void assign(Value value) {
        std::visit(
            [&](auto* to) {
                *to = std::get<std::remove_pointer_t<decltype(to)>>(std::move(value));
            },
            target);
    }
};

namespace {

// The levels of a table, flattened: dotted key, value, line.
struct Leaf {
    std::string key;
    const toml::node* node;
    std::uint32_t line;
};

// Keys that are nested deeper by dots than anything could mean: parsers and tables follow them by
// recursion.
Status check_nesting(std::string_view text, std::string_view origin) {
    constexpr int kDotsMax = 64;
    int dots = 0;
    std::size_t line = 1;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (c == '"' || c == '\'') {
            const std::string mark(text.substr(at, 3) == std::string(3, c) ? 3 : 1, c);
            std::size_t end = at + mark.size();
            while (end < text.size() && text.substr(end, mark.size()) != mark &&
                   (mark.size() > 1 || text[end] != '\n')) {
                line += text[end] == '\n' ? 1 : 0;
                end += c == '"' && text[end] == '\\' ? 2 : 1;
            }
            at = end + mark.size() - 1;
            if (at < text.size() && text[at] == '\n') --at;
        } else if (c == '#') {
            at = std::min(text.find('\n', at), text.size()) - 1;
        } else if (c == '.') {
            if (++dots > kDotsMax)
                return invalid_argument("{}:{}: a key of more than {} parts", origin, line,
                                        kDotsMax);
        } else if (std::string_view("=,{}[]\n").find(c) != std::string_view::npos) {
            dots = 0;
            line += c == '\n' ? 1 : 0;
        }
    }
    return {};
}

void flatten(const toml::table& table, const std::string& prefix, std::vector<Leaf>& leaves) {
    for (const auto& [name, node] : table) {
        // A quoted name with a dot would be taken for two levels.
        const std::string_view text = name.str();
        const std::string key =
            prefix +
            (text.find('.') == std::string_view::npos ? std::string(text) : toml_string(text));
        const toml::table* inner = node.as_table();
        if (inner != nullptr && !inner->empty())
            flatten(*inner, key + ".", leaves);
        else
            leaves.push_back({key, &node, static_cast<std::uint32_t>(name.source().begin.line)});
    }
}

}  // namespace

void ConfigSchema::add_entry(Entry entry) {
    FATHOM_CHECK(find(entry.key) == nullptr, entry.key);
    entry.default_text = entry.value_text(false);
    entries_.push_back(std::make_shared<Entry>(std::move(entry)));
}

void ConfigSchema::add(std::string key, std::string* target, std::string help, bool secret) {
    add_entry({.key = std::move(key), .help = std::move(help), .secret = secret, .target = target});
}

void ConfigSchema::add(std::string key, bool* target, std::string help) {
    add_entry({.key = std::move(key), .help = std::move(help), .target = target});
}

void ConfigSchema::add(std::string key, std::int64_t* target, std::int64_t min, std::int64_t max,
                       std::string help) {
    FATHOM_CHECK(min <= *target && *target <= max, key);
    add_entry({.key = std::move(key),
               .help = std::move(help),
               .target = target,
               .int_min = min,
               .int_max = max});
}

void ConfigSchema::add(std::string key, double* target, double min, double max, std::string help) {
    FATHOM_CHECK(min <= *target && *target <= max, key);
    add_entry({.key = std::move(key),
               .help = std::move(help),
               .target = target,
               .double_min = min,
               .double_max = max});
}

void ConfigSchema::add(std::string key, std::vector<std::string>* target, std::string help,
                       bool secret) {
    add_entry({.key = std::move(key), .help = std::move(help), .secret = secret, .target = target});
}

void ConfigSchema::add_choice(std::string key, std::string* target,
                              std::vector<std::string> choices, std::string help) {
    FATHOM_CHECK(std::find(choices.begin(), choices.end(), *target) != choices.end(), key);
    add_entry({.key = std::move(key),
               .help = std::move(help),
               .choices = std::move(choices),
               .target = target});
}

ConfigSchema::Entry* ConfigSchema::find(std::string_view key) {
    for (const auto& entry : entries_)
        if (entry->key == key) return entry.get();
    return nullptr;
}

Status ConfigSchema::unknown_key(std::string_view key, std::string_view origin) const {
    std::vector<std::string> known;
    for (const auto& entry : entries_)
        known.push_back(entry->key);
    const std::string nearest = nearest_word(key, known);
    return invalid_argument("{}: unknown key \"{}\"{}", origin, key,
                            nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
}

Status ConfigSchema::load_file(const std::string& path) {
    std::error_code failed;
    const std::filesystem::file_status status = std::filesystem::status(path, failed);
    if (!std::filesystem::exists(status))
        return error(StatusCode::not_found, "configuration file {} does not exist", path);
    if (!std::filesystem::is_regular_file(status))
        return invalid_argument("configuration file {} is not a regular file", path);
    const std::uintmax_t bytes = std::filesystem::file_size(path, failed);
    if (!failed && bytes > kFileBytesMax)
        return invalid_argument("configuration file {} has {} bytes; the limit is {}", path, bytes,
                                kFileBytesMax);
    // Of some files the system says that they are empty; they are read all the same.
    const Result<std::string> text = read_input_file(path, kFileBytesMax);
    if (!text.ok()) return text.status().with_context("configuration file");
    return load_text(*text, "file " + path);
}

Status ConfigSchema::load_text(std::string_view toml_text, std::string_view origin) {
    FATHOM_RETURN_IF_ERROR(check_nesting(toml_text, origin));
    toml::table table;
    try {
        table = toml::parse(toml_text, origin);
    } catch (const toml::parse_error& failure) {
        return invalid_argument("{}:{}: {}", origin, failure.source().begin.line,
                                failure.description());
    }
    std::vector<Leaf> leaves;
    flatten(table, "", leaves);
    // toml++ orders keys by name; errors and effects follow the file.
    std::stable_sort(leaves.begin(), leaves.end(),
                     [](const Leaf& a, const Leaf& b) { return a.line < b.line; });

    // Nothing is applied unless all of it is right.
    struct Change {
        Entry* entry;
        Value value;
        std::string origin;
    };
    std::vector<Change> changes;
    for (const Leaf& leaf : leaves) {
        std::string from = fmt::format("{}:{}", origin, leaf.line);
        Entry* entry = find(leaf.key);
        const bool known_table =
            leaf.node->is_table() &&
            std::any_of(entries_.begin(), entries_.end(), [&](const auto& candidate) {
                return candidate->key.starts_with(leaf.key + ".");
            });
        if (known_table) continue;  // an empty one
        if (entry == nullptr) return unknown_key(leaf.key, from);
        FATHOM_ASSIGN(Value value, entry->from_toml(from, *leaf.node));
        changes.push_back({entry, std::move(value), std::move(from)});
    }
    for (Change& change : changes) {
        if (change.entry->from_flag) continue;
        change.entry->assign(std::move(change.value));
        change.entry->origin = std::move(change.origin);
    }
    return {};
}

Status ConfigSchema::set_flag(std::string_view key, std::string_view value,
                              std::string_view origin) {
    Entry* entry = find(key);
    if (entry == nullptr) return unknown_key(key, origin);
    FATHOM_ASSIGN(Value parsed, entry->from_text(origin, value));
    auto* list = std::get_if<std::vector<std::string>*>(&entry->target);
    if (list != nullptr && entry->from_flag)
        (*list)->push_back(std::string(value));
    else
        entry->assign(std::move(parsed));
    entry->from_flag = true;
    entry->origin = origin;
    return {};
}

std::vector<ConfigSchema::Option> ConfigSchema::options() const {
    std::vector<Option> options;
    for (const auto& entry : entries_)
        options.push_back({.key = entry->key,
                           .help = entry->help,
                           .default_text = entry->default_text,
                           .choices_or_range = entry->limits_text(),
                           .is_bool = std::holds_alternative<bool*>(entry->target)});
    return options;
}

std::vector<ConfigSchema::Origin> ConfigSchema::effective() const {
    std::vector<Origin> all;
    for (const auto& entry : entries_)
        all.push_back({entry->key, entry->value_text(true), entry->origin});
    return all;
}

// Optimal string alignment: insertions, deletions, replacements and swaps of neighbours.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
    constexpr std::size_t kWordMax = 256;
    if (word.size() > kWordMax) return "";
    std::string best;
    std::size_t best_distance = word.size() / 3 + 1;
    for (const std::string& candidate : candidates) {
        if (candidate.size() > kWordMax) continue;
        const std::size_t columns = candidate.size() + 1;
        std::vector<std::size_t> two_up(columns), up(columns), row(columns);
        for (std::size_t j = 0; j < columns; ++j)
            row[j] = j;
        for (std::size_t i = 1; i <= word.size(); ++i) {
            std::swap(two_up, up);
            std::swap(up, row);
            row[0] = i;
            for (std::size_t j = 1; j < columns; ++j) {
                const bool same = word[i - 1] == candidate[j - 1];
                row[j] = std::min({up[j] + 1, row[j - 1] + 1, up[j - 1] + (same ? 0u : 1u)});
                if (i > 1 && j > 1 && word[i - 1] == candidate[j - 2] &&
                    word[i - 2] == candidate[j - 1])
                    row[j] = std::min(row[j], two_up[j - 2] + 1);
            }
        }
        if (row.back() < best_distance) {
            best_distance = row.back();
            best = candidate;
        }
    }
    return best;
}

}  // namespace fathom
