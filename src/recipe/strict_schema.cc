#include "recipe/strict_schema.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/spaced_json.h"

namespace fathom {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 7> kTypes = {"object",  "string", "number", "integer",
                                                    "boolean", "array",  "null"};
constexpr std::array<std::string_view, 5> kListedTypes = {"string", "number", "integer", "boolean",
                                                          "null"};
constexpr std::array<std::string_view, 5> kFormats = {"email", "hostname", "ipv4", "ipv6", "uuid"};
constexpr std::array<std::string_view, 7> kNumberKeys = {
    "const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};

struct Node;
using NamedNodes = std::vector<std::pair<std::string, Node>>;

// What was read of a schema, before the rules on objects are applied.
struct Node {
    enum class Kind { object, array, any_of, leaf };
    Kind kind = Kind::leaf;
    Json leaf = {};                                         // leaf: the node as it is written
    std::optional<Json> description = {};                   // object, array, any_of
    NamedNodes properties = {};                             // object
    NamedNodes defs = {};                                   // object
    bool allows_additional = false;                         // object
    std::optional<std::vector<std::string>> required = {};  // object
    std::vector<Node> children = {};                        // array: its items; any_of
};

// ------------------------------------------------------------------- reading

std::string described(const Json& json) {
    switch (json.kind()) {
        case Json::Kind::null:
            return "null";
        case Json::Kind::boolean:
            return fmt::format("boolean `{}`", json.dump());
        case Json::Kind::integer:
        case Json::Kind::unsigned_integer:
            return fmt::format("integer `{}`", json.dump());
        case Json::Kind::real:
            return fmt::format("floating point `{}`", wire_json(json));
        case Json::Kind::string:
            return "string " + json.dump();
        case Json::Kind::array:
            return "sequence";
        case Json::Kind::object:
            return "map";
    }
    return {};
}

Status wrong_type(const Json& json, std::string_view expected) {
    return invalid_argument("invalid type: {}, expected {}", described(json), expected);
}

Status in_field(std::string_view field, const Status& status) {
    return invalid_argument("field `{}`: {}", field, status.message());
}

Status check_variant(const Json& json, Names names) {
    if (!json.is_string()) return wrong_type(json, "variant identifier");
    if (std::find(names.begin(), names.end(), json.as_string()) != names.end()) return {};
    std::string list;
    for (const std::string_view name : names)
        list += fmt::format("{}`{}`", list.empty() ? "" : ", ", name);
    return invalid_argument("unknown variant `{}`, expected one of {}", json.as_string(), list);
}

Status check_string(const Json& json) {
    return json.is_string() ? Status() : wrong_type(json, "a string");
}

Status check_strings(const Json& json) {
    if (!json.is_array()) return wrong_type(json, "a sequence");
    for (const Json& item : json.items())
        FATHOM_RETURN_IF_ERROR(check_string(item));
    return {};
}

Status check_integer(const Json& json) {
    if (json.kind() == Json::Kind::unsigned_integer)
        return invalid_argument("invalid value: {}, expected i64", described(json));
    return json.is_integer() ? Status() : wrong_type(json, "i64");
}

Status check_number(const Json& json) {
    return json.is_number() ? Status() : wrong_type(json, "a JSON number");
}

// The member, or nullptr when absent or null.
const Json* given(const Json& schema, std::string_view key) {
    const Json* member = schema.find(key);
    return member == nullptr || member->is_null() ? nullptr : member;
}

Result<Node> read_node(const Json& schema);

Result<NamedNodes> read_named_nodes(const Json& json) {
    if (!json.is_object()) return wrong_type(json, "a map");
    NamedNodes nodes;
    for (const auto& [name, schema] : json.members()) {
        FATHOM_ASSIGN(Node node, read_node(schema));
        nodes.emplace_back(name, std::move(node));
    }
    return nodes;
}

// Faults are reported in the order of the document, so keys are read in that order.
Result<Node> read_object(const Json& schema) {
    Node node{.kind = Node::Kind::object};
    for (const auto& [key, value] : schema.members()) {
        if (value.is_null()) continue;
        if (key == "properties") {
            FATHOM_ASSIGN(node.properties, read_named_nodes(value));
        } else if (key == "$def") {
            FATHOM_ASSIGN(node.defs, read_named_nodes(value));
        } else if (key == "additionalProperties") {
            if (!value.is_bool()) return wrong_type(value, "a boolean");
            node.allows_additional = value.as_bool();
        } else if (key == "required") {
            FATHOM_RETURN_IF_ERROR(check_strings(value));
            node.required.emplace();
            for (const Json& name : value.items())
                node.required->push_back(name.as_string());
        } else if (key == "description") {
            FATHOM_RETURN_IF_ERROR(check_string(value));
            node.description = value;
        }
    }
    return node;
}

Result<Node> read_array(const Json& schema) {
    Node node{.kind = Node::Kind::array};
    for (const auto& [key, value] : schema.members()) {
        if (value.is_null()) continue;
        if (key == "items") {
            FATHOM_ASSIGN(Node items, read_node(value));
            node.children.push_back(std::move(items));
        } else if (key == "description") {
            FATHOM_RETURN_IF_ERROR(check_string(value));
            node.description = value;
        }
    }
    if (node.children.empty()) return invalid_argument("missing field `items`");
    return node;
}

bool is_number_key(std::string_view key) {
    return std::find(kNumberKeys.begin(), kNumberKeys.end(), key) != kNumberKeys.end();
}

Status check_scalar_key(std::string_view type, std::string_view key, const Json& value) {
    if (key == "description") return check_string(value);
    if (type == "string") {
        if (key == "pattern") return check_string(value);
        if (key == "format") return check_variant(value, kFormats);
        if (key == "enum") return check_strings(value);
    }
    if (is_number_key(key)) {
        if (type == "integer") return check_integer(value);
        if (type == "number") return check_number(value);
    }
    return {};
}

Result<Node> read_scalar(const Json& schema, const std::string& type) {
    for (const auto& [key, value] : schema.members())
        if (!value.is_null()) FATHOM_RETURN_IF_ERROR(check_scalar_key(type, key, value));
    Node node;
    node.leaf = Json::object({{"type", type}});
    const auto keep = [&](std::string_view key) {
        if (const Json* value = given(schema, key)) node.leaf.set(key, *value);
    };
    keep("description");
    if (type == "string") {
        for (const std::string_view key : {"pattern", "format", "enum"})
            keep(key);
    } else if (type == "integer" || type == "number") {
        for (const std::string_view key : kNumberKeys)
            keep(key);
    }
    return node;
}

// A node with one type that is named.
Result<Node> read_typed(const Json& schema, const Json& type) {
    FATHOM_RETURN_IF_ERROR(check_variant(type, kTypes));
    if (type.as_string() == "object") return read_object(schema);
    if (type.as_string() == "array") return read_array(schema);
    return read_scalar(schema, type.as_string());
}

Result<Node> read_type_list(const Json& schema, const Json& types) {
    for (const Json& type : types.items()) {
        if (const Status status = check_variant(type, kListedTypes); !status.ok())
            return in_field("type", status);
    }
    Node node;
    node.leaf = Json::object({{"type", types}});
    if (const Json* description = given(schema, "description")) {
        FATHOM_RETURN_IF_ERROR(check_string(*description));
        node.leaf.set("description", *description);
    }
    return node;
}

Result<Node> read_any_of(const Json& schema, const Json& members) {
    if (!members.is_array()) return in_field("anyOf", wrong_type(members, "a sequence"));
    Node node{.kind = Node::Kind::any_of};
    for (const Json& member : members.items()) {
        const Json* type = given(member, "type");
        if (type == nullptr) return in_field("anyOf", invalid_argument("missing field `type`"));
        Result<Node> child = read_typed(member, *type);
        if (!child.ok()) return in_field("anyOf", child.status());
        node.children.push_back(*std::move(child));
    }
    if (const Json* description = given(schema, "description")) {
        FATHOM_RETURN_IF_ERROR(check_string(*description));
        node.description = *description;
    }
    return node;
}

Result<Node> read_node(const Json& schema) {
    if (const Json* type = given(schema, "type"))
        return type->is_array() ? read_type_list(schema, *type) : read_typed(schema, *type);
    if (const Json* members = given(schema, "anyOf")) return read_any_of(schema, *members);
    const Json* reference = given(schema, "$ref");
    if (reference == nullptr)
        return invalid_argument("one of `type`, `anyOf`, `$ref` field is required");
    if (const Status status = check_string(*reference); !status.ok())
        return in_field("$ref", status);
    Node node;
    node.leaf = Json::object({{"$ref", *reference}});
    return node;
}

// ----------------------------------------------------------- rules of objects

Status check_required(const Node& object) {
    if (!object.required) return {};
    std::set<std::string_view> properties;
    for (const auto& [name, node] : object.properties)
        properties.insert(name);
    std::set<std::string_view> seen;
    for (const std::string& name : *object.required) {
        if (!properties.contains(name))
            return invalid_argument("Required property '{}' not found in object", name);
        if (!seen.insert(name).second)
            return invalid_argument("Duplicate required property '{}'", name);
    }
    if (seen.size() < properties.size())
        return invalid_argument("Required properties must match all properties in the object");
    return {};
}

Status check_objects(const Node& node, bool may_be_empty) {
    if (node.kind == Node::Kind::object) {
        if (node.allows_additional)
            return invalid_argument("additionalProperties should not be true");
        if (node.properties.empty() && !may_be_empty)
            return invalid_argument("An object with no properties is not allowed.");
        FATHOM_RETURN_IF_ERROR(check_required(node));
    }
    for (const auto& [name, property] : node.properties)
        FATHOM_RETURN_IF_ERROR(check_objects(property, false));
    for (const auto& [name, def] : node.defs)
        FATHOM_RETURN_IF_ERROR(check_objects(def, false));
    for (const Node& child : node.children)
        FATHOM_RETURN_IF_ERROR(check_objects(child, false));
    return {};
}

// ------------------------------------------------------------------- writing

Json written(Node node);

Json written(NamedNodes nodes) {
    Json::Object members;
    for (auto& [name, node] : nodes)
        members.emplace_back(std::move(name), written(std::move(node)));
    return Json::object(std::move(members));
}

Json written(std::vector<Node> nodes) {
    Json::Array items;
    for (Node& node : nodes)
        items.push_back(written(std::move(node)));
    return Json::array(std::move(items));
}

Json written(Node node) {
    Json::Object members;
    switch (node.kind) {
        case Node::Kind::leaf:
            return std::move(node.leaf);
        case Node::Kind::object: {
            Json::Array required;
            for (const auto& [name, property] : node.properties)
                required.emplace_back(name);
            members.emplace_back("type", "object");
            members.emplace_back("properties", written(std::move(node.properties)));
            members.emplace_back("additionalProperties", false);
            members.emplace_back("required", Json::array(std::move(required)));
            break;
        }
        case Node::Kind::array:
            members.emplace_back("type", "array");
            members.emplace_back("items", written(std::move(node.children.front())));
            break;
        case Node::Kind::any_of:
            members.emplace_back("anyOf", written(std::move(node.children)));
            break;
    }
    if (node.description) members.emplace_back("description", *std::move(node.description));
    if (!node.defs.empty()) members.emplace_back("$def", written(std::move(node.defs)));
    return Json::object(std::move(members));
}

}  // namespace

Result<Json> normalize_strict_parameters(const Json& schema) {
    Result<Node> node = schema.is_null() ? Node{.kind = Node::Kind::object} : read_node(schema);
    if (!node.ok())
        return invalid_argument("Invalid tool parameters schema : {}", node.status().message());
    if (node->kind != Node::Kind::object)
        return invalid_argument(
            "The top level of the function parameters schema must be an object.");
    FATHOM_RETURN_IF_ERROR(check_objects(*node, true));
    return written(*std::move(node));
}

Result<Json> normalize_strict_format(const Json& schema) {
    Result<Node> node = read_node(schema);
    if (!node.ok()) return invalid_argument("Invalid json schema: {}", node.status().message());
    if (node->kind != Node::Kind::object)
        return invalid_argument("The top level of the json schema must be an object.");
    FATHOM_RETURN_IF_ERROR(check_objects(*node, false));
    return written(*std::move(node));
}

}  // namespace fathom
