#include "recipe/protocols/responses_tools.h"

#include <array>
#include <optional>
#include <utility>

#include "recipe/protocols/fields.h"

namespace fathom {
namespace {

// What namespaces may add to the descriptions of their members: each member repeats the
// namespace's, so a short request could otherwise become a very long prompt.
constexpr std::size_t kDescriptionBytesMax = std::size_t{16} << 20;

constexpr std::string_view kApplyPatch = "apply_patch";

// The patch language as the model was taught it (recipe.md, appendix E; the recorded prompts say
// "hunks").
constexpr std::string_view kApplyPatchDescription =
    R"patch(Use the `apply_patch` tool to edit files.
Your patch language is a stripped‑down, file‑oriented diff format designed to be easy to parse and safe to apply. You can think of it as a high‑level envelope:

*** Begin Patch
[ one or more file sections ]
*** End Patch

Within that envelope, you get a sequence of file operations.
You MUST include a header to specify the action you are taking.
Each operation starts with one of three headers:

*** Add File: <path> - create a new file. Every following line is a + line (the initial contents).
*** Delete File: <path> - remove an existing file. Nothing follows.
*** Update File: <path> - patch an existing file in place (optionally with a rename).

May be immediately followed by *** Move to: <new path> if you want to rename the file.
Then one or more “hunks”, each introduced by @@ (optionally followed by a hunk header).
Within a hunk each line starts with:

For instructions on [context_before] and [context_after]:
- By default, show 3 lines of code immediately above and 3 lines immediately below each change. If a change is within 3 lines of a previous change, do NOT duplicate the first change’s [context_after] lines in the second change’s [context_before] lines.
- If 3 lines of context is insufficient to uniquely identify the snippet of code within the file, use the @@ operator to indicate the class or function to which the snippet belongs. For instance, we might have:
@@ class BaseClass
[3 lines of pre-context]
- [old_code]
+ [new_code]
[3 lines of post-context]

- If a code block is repeated so many times in a class or function such that even a single `@@` statement and 3 lines of context cannot uniquely identify the snippet of code, you can use multiple `@@` statements to jump to the right context. For instance:

@@ class BaseClass
@@ 	 def method():
[3 lines of pre-context]
- [old_code]
+ [new_code]
[3 lines of post-context]

The full grammar definition is below:
Patch := Begin { FileOp } End
Begin := "*** Begin Patch" NEWLINE
End := "*** End Patch" NEWLINE
FileOp := AddFile | DeleteFile | UpdateFile
AddFile := "*** Add File: " path NEWLINE { "+" line NEWLINE }
DeleteFile := "*** Delete File: " path NEWLINE
UpdateFile := "*** Update File: " path NEWLINE [ MoveTo ] { Hunk }
MoveTo := "*** Move to: " newPath NEWLINE
Hunk := "@@" [ header ] NEWLINE { HunkLine } [ "*** End of File" NEWLINE ]
HunkLine := (" " | "-" | "+") text NEWLINE

A full patch can combine several operations:

*** Begin Patch
*** Add File: hello.txt
+Hello world
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
-print("Hi")
+print("Hello, world!")
*** Delete File: obsolete.txt
*** End Patch

It is important to remember:

- You must include a header with your intended action (Add/Delete/Update)
- You must prefix new lines with `+` even when creating a new file
- File references can only be relative, NEVER ABSOLUTE.
)patch";

std::string apply_patch_description(Dialect dialect) {
    std::string text(kApplyPatchDescription);
    if (dialect == Dialect::v4) text.erase(text.find("\n\n"), 1);
    return text;
}

Json apply_patch_parameters() {
    Json input = Json::object();
    input.set("type", "string");
    input.set("description",
              "The entire contents of the apply_patch command (the *** Begin Patch ... *** End "
              "Patch envelope).");
    Json parameters = Json::object();
    parameters.set("type", "object");
    parameters.set("additionalProperties", false);
    parameters.set("properties", Json::object({{"input", std::move(input)}}));
    parameters.set("required", Json::array({"input"}));
    return parameters;
}

template <typename T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
}

Json function_json(const FunctionFields& function) {
    Json json = Json::object();
    json.set("type", "function");
    json.set("name", function.name);
    json.set("description", or_null(function.description));
    json.set("parameters", or_null(function.parameters));
    json.set("strict", or_null(function.strict));
    return json;
}

}  // namespace

std::string namespace_member_name(std::string_view space, std::string_view local, Dialect dialect) {
    return fmt::format("{}{}{}", space, dialect == Dialect::v4 ? "__" : "::", local);
}

Result<ResponsesTools> ResponsesToolReader::read(Json::Array& declarations, std::string_view path) {
    ResponsesTools out;
    for (std::size_t i = 0; i < declarations.size(); ++i)
        FATHOM_RETURN_IF_ERROR(read_one(declarations[i], fmt::format("{}[{}]", path, i), out));
    return out;
}

Status ResponsesToolReader::read_one(Json& declaration, const std::string& path,
                                     ResponsesTools& out) {
    FATHOM_ASSIGN(Fields fields, Fields::of(declaration, "internally tagged enum ResponsesTool"));
    FATHOM_ASSIGN(const std::string type, fields.string("type"));
    if (type == "function") return read_function_tool(fields, path, out);
    if (type == "namespace") return read_namespace(fields, path, out);
    if (type == "custom") return read_custom(fields, out);
    if (type == "tool_search") return read_tool_search(fields, path, out);
    if (type != "web_search" && type != "web_search_2025_08_26") return {};
    if (server_tools_ == ServerTools::reject)
        return invalid_argument("Server tools are not supported");
    Json repeated = Json::object();
    repeated.set("type", type);
    repeated.set("search_context_size", Json());
    repeated.set("user_location", Json());
    out.repeated.push_back(std::move(repeated));
    return {};
}

Status ResponsesToolReader::read_function_tool(Fields& fields, const std::string& path,
                                               ResponsesTools& out) {
    FATHOM_ASSIGN(FunctionFields function, read_function(fields));
    Json json = function_json(function);
    FATHOM_ASSIGN(Tool tool, lower_function(std::move(function), path + ".name"));
    out.tools.push_back(std::move(tool));
    out.functions.push_back(json);
    out.repeated.push_back(std::move(json));
    return {};
}

Status ResponsesToolReader::read_namespace(Fields& fields, const std::string& path,
                                           ResponsesTools& out) {
    FunctionFields space;
    FATHOM_ASSIGN(space.name, fields.string("name"));
    FATHOM_ASSIGN(space.description, fields.optional_string("description"));
    FATHOM_ASSIGN(Json::Array * members, fields.array("tools"));
    FATHOM_RETURN_IF_ERROR(check_tool_name(space.name, path + ".name"));
    const std::size_t first = out.tools.size();
    std::set<std::string> locals;
    Json repeated = Json::array();
    for (std::size_t i = 0; i < members->size(); ++i) {
        const std::string member_path = fmt::format("{}.tools[{}]", path, i);
        FATHOM_RETURN_IF_ERROR(read_member((*members)[i], member_path, space, repeated, out));
    }
    for (const Json& member : repeated.items())
        if (!locals.insert(member.find("name")->as_string()).second)
            return invalid_argument("Tool names within a namespace must be unique.");
    for (std::size_t i = first; i < out.tools.size(); ++i) {
        const std::string& local = repeated.items()[i - first].find("name")->as_string();
        Tool& tool = out.tools[i];
        tool.name = unused_name(namespace_member_name(space.name, local, dialect_));
        out.namespace_tools[tool.name] = {space.name, local};
        if (dialect_ == Dialect::v4 || space.description.value_or("").empty()) continue;
        tool.description = *space.description + "\n" + tool.description.value_or("");
    }
    Json json = Json::object();
    json.set("type", "namespace");
    json.set("name", std::move(space.name));
    json.set("description", or_null(space.description));
    json.set("tools", std::move(repeated));
    out.repeated.push_back(std::move(json));
    return {};
}

Status ResponsesToolReader::read_member(Json& member, const std::string& path,
                                        const FunctionFields& space, Json& repeated,
                                        ResponsesTools& out) {
    FATHOM_ASSIGN(Fields fields,
                  Fields::of(member, "internally tagged enum ResponsesNamespaceTool"));
    FATHOM_ASSIGN(const std::string type, fields.string("type"));
    if (type == "custom") {
        FATHOM_ASSIGN(const std::string name, fields.string("name"));
        return invalid_argument(
            "Currently custom tools are not allowed inside a namespace. Found custom tool '{}' in "
            "{}.",
            name, path);
    }
    if (type != "function") return {};
    description_bytes_ += space.name.size() + space.description.value_or("").size();
    if (description_bytes_ > kDescriptionBytesMax) {
        return invalid_argument(
            "{}: descriptions of namespaces, repeated for each of their tools, exceed {} bytes",
            path, kDescriptionBytesMax);
    }
    FATHOM_ASSIGN(FunctionFields function, read_function(fields));
    Json json = function_json(function);
    FATHOM_ASSIGN(Tool tool, lower_function(std::move(function), path + ".name"));
    out.tools.push_back(std::move(tool));
    repeated.push_back(json);
    Json home = Json::object();
    home.set("name", space.name);
    home.set("description", or_null(space.description));
    json.set("namespace", std::move(home));
    out.functions.push_back(std::move(json));
    return {};
}

Status ResponsesToolReader::read_custom(Fields& fields, ResponsesTools& out) {
    FATHOM_ASSIGN(std::string name, fields.string("name"));
    if (name != kApplyPatch) {
        return invalid_argument("Unsupported custom tool: '{}'. Only 'apply_patch' is supported.",
                                name);
    }
    out.tools.push_back({.name = name,
                         .description = apply_patch_description(dialect_),
                         .parameters = apply_patch_parameters()});
    Json repeated = Json::object();
    repeated.set("type", "custom");
    repeated.set("name", name);
    out.repeated.push_back(std::move(repeated));
    out.custom_tools.push_back(std::move(name));
    return {};
}

Status ResponsesToolReader::read_tool_search(Fields& fields, const std::string& path,
                                             ResponsesTools& out) {
    FATHOM_ASSIGN(const auto execution, fields.optional_string("execution"));
    FunctionFields function{.name = "tool_search"};
    FATHOM_ASSIGN(function.description, fields.optional_string("description"));
    if (Json* parameters = fields.present("parameters")) function.parameters = *parameters;
    Json repeated = Json::object();
    repeated.set("type", "tool_search");
    repeated.set("execution", or_null(execution));
    repeated.set("description", or_null(function.description));
    repeated.set("parameters", or_null(function.parameters));
    out.repeated.push_back(std::move(repeated));
    if (dialect_ == Dialect::v4 || execution != "client") return {};
    FATHOM_ASSIGN(Tool tool, lower_function(std::move(function), path + ".name"));
    out.tools.push_back(std::move(tool));
    out.tool_search = true;
    return {};
}

std::string ResponsesToolReader::unused_name(const std::string& name) {
    std::string unused = name;
    while (!member_names_.insert(unused).second)
        unused = fmt::format("{}_{}", name, ++next_suffix_[name]);
    return unused;
}

}  // namespace fathom
