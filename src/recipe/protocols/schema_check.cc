#define PCRE2_CODE_UNIT_WIDTH 8
#include "recipe/protocols/schema_check.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom {
namespace {

// What a keyword's value must be.
enum class Form {
    schema,   // a schema
    schemas,  // a list of schemas, not empty
    schema_or_list,
    schema_map,    // an object of schemas
    pattern_map,   // the same, with patterns as names
    dependencies,  // an object of schemas or lists of names
    type,
    text,
    pattern,
    flag,
    number,
    positive_number,
    count,
    list,
    names,     // a list of different strings
    name_map,  // an object of such lists
    object,
};

struct Keyword {
    std::string_view name;
    Form form;
};

// Sorted by name.
constexpr std::array<Keyword, 49> kKeywords = {{
    {"$anchor", Form::text},
    {"$comment", Form::text},
    {"$defs", Form::schema_map},
    {"$dynamicAnchor", Form::text},
    {"$dynamicRef", Form::text},
    {"$id", Form::text},
    {"$ref", Form::text},
    {"$schema", Form::text},
    {"additionalItems", Form::schema},
    {"additionalProperties", Form::schema},
    {"allOf", Form::schemas},
    {"anyOf", Form::schemas},
    {"contains", Form::schema},
    {"contentEncoding", Form::text},
    {"contentMediaType", Form::text},
    {"contentSchema", Form::schema},
    {"definitions", Form::schema_map},
    {"dependencies", Form::dependencies},
    {"dependentRequired", Form::name_map},
    {"dependentSchemas", Form::schema_map},
    {"deprecated", Form::flag},
    {"description", Form::text},
    {"else", Form::schema},
    {"enum", Form::list},
    {"examples", Form::list},
    {"format", Form::text},
    {"if", Form::schema},
    {"items", Form::schema_or_list},
    {"maxContains", Form::count},
    {"maxItems", Form::count},
    {"maxLength", Form::count},
    {"maxProperties", Form::count},
    {"maximum", Form::number},
    {"minContains", Form::count},
    {"minItems", Form::count},
    {"minLength", Form::count},
    {"minProperties", Form::count},
    {"minimum", Form::number},
    {"multipleOf", Form::positive_number},
    {"not", Form::schema},
    {"oneOf", Form::schemas},
    {"pattern", Form::pattern},
    {"patternProperties", Form::pattern_map},
    {"prefixItems", Form::schemas},
    {"properties", Form::schema_map},
    {"propertyNames", Form::schema},
    {"required", Form::names},
    {"then", Form::schema},
    {"type", Form::type},
}};
constexpr std::array<Keyword, 8> kMoreKeywords = {{
    {"exclusiveMaximum", Form::number},
    {"exclusiveMinimum", Form::number},
    {"readOnly", Form::flag},
    {"title", Form::text},
    {"unevaluatedItems", Form::schema},
    {"unevaluatedProperties", Form::schema},
    {"uniqueItems", Form::flag},
    {"writeOnly", Form::flag},
}};

const Keyword* keyword(std::string_view name) {
    const auto find = [name](const auto& table) -> const Keyword* {
        const auto at = std::lower_bound(
            table.begin(), table.end(), name,
            [](const Keyword& entry, std::string_view wanted) { return entry.name < wanted; });
        return at != table.end() && at->name == name ? &*at : nullptr;
    };
    const Keyword* found = find(kKeywords);
    return found != nullptr ? found : find(kMoreKeywords);
}

Status not_of_type(const Json& value, std::string_view type) {
    return invalid_argument("{} is not of type \"{}\"", value.dump(), type);
}

bool is_type_name(const Json& value) {
    static constexpr std::array<std::string_view, 7> kTypes = {
        "array", "boolean", "integer", "null", "number", "object", "string"};
    return value.is_string() &&
           std::find(kTypes.begin(), kTypes.end(), value.as_string()) != kTypes.end();
}

bool all_different(const Json::Array& values) {
    std::vector<std::string_view> texts;
    texts.reserve(values.size());
    for (const Json& value : values)
        texts.push_back(value.as_string());
    std::sort(texts.begin(), texts.end());
    return std::adjacent_find(texts.begin(), texts.end()) == texts.end();
}

Status check_type(const Json& value) {
    bool fits = is_type_name(value);
    if (value.is_array()) {
        const Json::Array& names = value.items();
        fits = !names.empty() && std::all_of(names.begin(), names.end(), is_type_name) &&
               all_different(names);
    }
    if (fits) return {};
    return invalid_argument(
        "{} is not valid under any of the schemas listed in the 'anyOf' keyword", value.dump());
}

// What PCRE2 cannot say of a pattern that other engines may well take.
bool is_beyond_pcre2(int code) {
    switch (code) {
        case PCRE2_ERROR_PATTERN_TOO_LARGE:
        case PCRE2_ERROR_PARENTHESES_NEST_TOO_DEEP:
        case PCRE2_ERROR_HEAP_FAILED:
        case PCRE2_ERROR_UNKNOWN_UNICODE_PROPERTY:
        case PCRE2_ERROR_LOOKBEHIND_NOT_FIXED_LENGTH:
        case PCRE2_ERROR_LOOKBEHIND_TOO_COMPLICATED:
            return true;
        default:
            return false;
    }
}

// Read as ECMA-262 reads patterns, as far as PCRE2 can.
Status check_pattern(std::string_view pattern) {
    int code = 0;
    PCRE2_SIZE offset = 0;
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    pcre2_set_compile_extra_options(context, PCRE2_EXTRA_ALT_BSUX);
    pcre2_code* compiled =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                      PCRE2_UTF | PCRE2_ALLOW_EMPTY_CLASS, &code, &offset, context);
    pcre2_compile_context_free(context);
    const bool fits = compiled != nullptr || is_beyond_pcre2(code);
    pcre2_code_free(compiled);
    if (fits) return {};
    return invalid_argument("{} is not a \"regex\"", Json(pattern).dump());
}

Status check_names(const Json& value) {
    if (!value.is_array()) return not_of_type(value, "array");
    for (const Json& name : value.items())
        if (!name.is_string()) return not_of_type(name, "string");
    if (!all_different(value.items()))
        return invalid_argument("{} has non-unique elements", value.dump());
    return {};
}

bool is_whole(const Json& value) {
    return value.is_number() && std::floor(value.as_double()) == value.as_double();
}

Status check_number(const Json& value, Form form) {
    if (form == Form::count && !is_whole(value)) return not_of_type(value, "integer");
    if (!value.is_number()) return not_of_type(value, "number");
    if (form == Form::count && value.as_double() < 0)
        return invalid_argument("{} is less than the minimum of 0", value.dump());
    if (form == Form::positive_number && value.as_double() <= 0)
        return invalid_argument("{} is less than or equal to the minimum of 0", value.dump());
    return {};
}

// The keywords whose value is no schema and holds none.
Status check_plain(const Json& value, Form form) {
    switch (form) {
        case Form::type:
            return check_type(value);
        case Form::text:
            return value.is_string() ? Status() : not_of_type(value, "string");
        case Form::pattern:
            if (!value.is_string()) return not_of_type(value, "string");
            return check_pattern(value.as_string());
        case Form::flag:
            return value.is_bool() ? Status() : not_of_type(value, "boolean");
        case Form::number:
        case Form::positive_number:
        case Form::count:
            return check_number(value, form);
        case Form::list:
            return value.is_array() ? Status() : not_of_type(value, "array");
        case Form::names:
            return check_names(value);
        case Form::name_map:
            if (!value.is_object()) return not_of_type(value, "object");
            for (const Json::Member& member : value.members())
                FATHOM_RETURN_IF_ERROR(check_names(member.second));
            return {};
        default:
            return {};
    }
}

// A JSON pointer's step: ~1 is /, ~0 is ~, %XX a byte.
std::string pointer_step(std::string_view text) {
    std::string step;
    for (std::size_t i = 0; i < text.size(); ++i) {
        unsigned byte = 0;
        if (text[i] == '~' && i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1')) {
            step += text[++i] == '0' ? '~' : '/';
        } else if (text[i] == '%' && i + 2 < text.size() &&
                   std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr ==
                       text.data() + i + 3) {
            step += static_cast<char>(byte);
            i += 2;
        } else {
            step += text[i];
        }
    }
    return step;
}

class SchemaChecker {
  public:
    explicit SchemaChecker(const Json& root) : root_(root) {}

    Status check() {
        FATHOM_RETURN_IF_ERROR(check_dialect());
        FATHOM_RETURN_IF_ERROR(check_schema(root_));
        for (const std::string* reference : references_)
            FATHOM_RETURN_IF_ERROR(check_reference(*reference));
        return {};
    }

  private:
    Status check_dialect() {
        const Json* dialect = root_.find("$schema");
        if (dialect == nullptr || !dialect->is_string()) return {};
        std::string_view name = dialect->as_string();
        if (name.ends_with('#')) name.remove_suffix(1);
        for (const std::string_view known :
             {"http://json-schema.org/draft-04/schema", "http://json-schema.org/draft-06/schema",
              "http://json-schema.org/draft-07/schema",
              "https://json-schema.org/draft/2019-09/schema",
              "https://json-schema.org/draft/2020-12/schema"}) {
            if (name != known) continue;
            is_draft_4_ = known.find("draft-04") != std::string_view::npos;
            lists_of_items_ = known.find("2020-12") == std::string_view::npos;
            return {};
        }
        return invalid_argument(
            "Unknown meta-schema: '{}'. Custom meta-schemas must be registered in the registry "
            "before use",
            dialect->as_string());
    }

    Status check_schema(const Json& schema) {
        if (schema.is_bool()) return {};
        if (!schema.is_object())
            return invalid_argument("{} is not of types \"boolean\", \"object\"", schema.dump());
        for (const auto& [name, value] : schema.members()) {
            const Keyword* known = keyword(name);
            if (known == nullptr) continue;
            if (name == "$ref" && value.is_string()) references_.push_back(&value.as_string());
            if (name == "$id" && value.is_string()) ids_.insert(value.as_string());
            FATHOM_RETURN_IF_ERROR(check_keyword(*known, value));
        }
        return {};
    }

    Status check_keyword(const Keyword& known, const Json& value) {
        switch (known.form) {
            case Form::schema:
                return check_schema(value);
            case Form::schema_or_list:
                if (!value.is_array() || !lists_of_items_) return check_schema(value);
                return check_list(value);
            case Form::schemas:
                if (!value.is_array()) return not_of_type(value, "array");
                if (value.items().empty()) return invalid_argument("[] has less than 1 item");
                return check_list(value);
            case Form::schema_map:
            case Form::pattern_map:
            case Form::dependencies:
                return check_map(value, known.form);
            case Form::number:
                // Draft 4 has flags beside minimum and maximum.
                if (is_draft_4_ && value.is_bool() && known.name.starts_with("exclusive"))
                    return {};
                return check_plain(value, known.form);
            default:
                return check_plain(value, known.form);
        }
    }

    Status check_list(const Json& value) {
        for (const Json& item : value.items())
            FATHOM_RETURN_IF_ERROR(check_schema(item));
        return {};
    }

    Status check_map(const Json& value, Form form) {
        if (!value.is_object()) return not_of_type(value, "object");
        for (const auto& [name, item] : value.members()) {
            if (form == Form::pattern_map) FATHOM_RETURN_IF_ERROR(check_pattern(name));
            if (form == Form::dependencies && item.is_array()) {
                FATHOM_RETURN_IF_ERROR(check_names(item));
            } else {
                FATHOM_RETURN_IF_ERROR(check_schema(item));
            }
        }
        return {};
    }

    Status check_reference(std::string_view reference) {
        const std::size_t hash = reference.find('#');
        const std::string_view resource = reference.substr(0, hash);
        if (!resource.empty()) {
            const bool known = resource.starts_with("http://json-schema.org/draft-") ||
                               resource.starts_with("https://json-schema.org/draft/") ||
                               ids_.contains(resource);
            if (known) return {};
            return invalid_argument(
                "Resource '{}' is not present in a registry and retrieving it failed: Retrieval is "
                "disabled, cannot fetch {}",
                resource, resource);
        }
        if (hash == std::string_view::npos) return {};
        const std::string_view pointer = reference.substr(hash + 1);
        // A plain name is an anchor, which may stand anywhere.
        if (pointer.empty() || pointer[0] != '/') return {};
        const Json* schema = target(pointer);
        if (schema == nullptr) return invalid_argument("Pointer '{}' does not exist", pointer);
        // Where no keyword leads, the meta-schema has not looked.
        const Json* type = schema->find("type");
        if (type != nullptr && !check_type(*type).ok()) return invalid_argument("Unexpected type");
        return {};
    }

    const Json* target(std::string_view pointer) {
        const Json* at = &root_;
        while (!pointer.empty()) {
            pointer.remove_prefix(1);
            const std::size_t end = std::min(pointer.find('/'), pointer.size());
            at = child(*at, pointer_step(pointer.substr(0, end)));
            if (at == nullptr) return nullptr;
            pointer.remove_prefix(end);
        }
        return at;
    }

    const Json* child(const Json& parent, const std::string& step) {
        if (parent.is_array()) {
            std::size_t index = 0;
            const auto read = std::from_chars(step.data(), step.data() + step.size(), index);
            if (read.ec != std::errc() || read.ptr != step.data() + step.size()) return nullptr;
            return index < parent.items().size() ? &parent.items()[index] : nullptr;
        }
        if (!parent.is_object()) return nullptr;
        // Many references into one large object must not each search all of it.
        auto [members, is_new] = members_.try_emplace(&parent);
        if (is_new)
            for (const Json::Member& member : parent.members())
                members->second.emplace(member.first, &member.second);
        const auto found = members->second.find(step);
        return found == members->second.end() ? nullptr : found->second;
    }

    const Json& root_;
    bool is_draft_4_ = false;
    bool lists_of_items_ = false;
    std::vector<const std::string*> references_;
    std::set<std::string_view> ids_;
    std::map<const Json*, std::map<std::string_view, const Json*, std::less<>>> members_;
};

}  // namespace

Status check_json_schema(const Json& schema) {
    return SchemaChecker(schema).check();
}

}  // namespace fathom
