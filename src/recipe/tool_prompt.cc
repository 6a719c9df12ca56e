#include "recipe/tool_prompt.h"

#include <string>

#include "base/check.h"
#include "recipe/spaced_json.h"

namespace fathom {
namespace {

// Names in braces stand for special tokens, the dialect's tag names and the schemas.
constexpr std::string_view kToolPrompt =
    R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<{dsml}{block}>" block like the following:

<{dsml}{block}>
<{dsml}{call} name="$TOOL_NAME">
<{dsml}{parameter} name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{dsml}{parameter}>
...
</{dsml}{call}>
<{dsml}{call} name="$TOOL_NAME2">
...
</{dsml}{call}>
</{dsml}{block}>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {think_begin}), you MUST output your complete reasoning inside {think_begin}...{think_end} BEFORE any tool calls or final response.

Otherwise, output directly after {think_end} with tool calls or final response.

### Available Tool Schemas

{schemas}
You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
)";

// With no tool to list V4.1 keeps the line feed that ends the last line.
std::string listed_schema_lines(std::span<const Tool> tools, Dialect dialect) {
    std::string lines;
    for (const Tool& tool : tools)
        if (!tool.defer_loading) lines += tool_schema_line(tool, dialect) + '\n';
    if (lines.empty() && dialect == Dialect::v41) lines += '\n';
    return lines;
}

void write_placeholder(std::string_view name, std::string_view schema_lines,
                       const ToolMarkup& markup, PromptWriter& out) {
    if (name == "dsml") {
        out.special(out.tokens().dsml);
    } else if (name == "think_begin") {
        out.special(out.tokens().think_begin);
    } else if (name == "think_end") {
        out.special(out.tokens().think_end);
    } else if (name == "block") {
        out.text(markup.block);
    } else if (name == "call") {
        out.text(markup.call);
    } else if (name == "parameter") {
        out.text(markup.parameter);
    } else {
        FATHOM_CHECK(name == "schemas");
        out.text(schema_lines);
    }
}

void write_open_tag(std::string_view tag, PromptWriter& out) {
    out.text("<");
    out.special(out.tokens().dsml);
    out.text(tag);
}

void write_close_tag(std::string_view tag, PromptWriter& out) {
    out.text("</");
    out.special(out.tokens().dsml);
    out.text(tag);
    out.text(">");
}

void write_parameter(std::string_view tag, std::string_view key, bool is_string,
                     std::string_view value, PromptWriter& out) {
    write_open_tag(tag, out);
    out.text(" name=\"");
    out.text(key);
    out.text(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
    out.text(value);
    write_close_tag(tag, out);
}

// The reference's JSON reader refuses what is nested deeper.
constexpr JsonLimits kArgumentLimits{.depth_max = 127};

void write_parameters(const ToolCall& call, const ToolMarkup& markup, PromptWriter& out) {
    const std::string_view tag = markup.parameter;
    const Result<Json> arguments = parse_json(call.arguments, kArgumentLimits);
    if (!arguments.ok() || !arguments->is_object()) {
        write_parameter(tag, "arguments", true, call.arguments, out);
        out.text("\n");
        return;
    }
    for (const auto& [key, value] : arguments->members()) {
        const bool is_string = value.is_string();
        write_parameter(tag, key, is_string,
                        is_string ? value.as_string() : spaced_json(value, markup.json), out);
        out.text("\n");
    }
    if (arguments->members().empty() && markup.empty_line_for_none) out.text("\n");
}

}  // namespace

ToolMarkup tool_markup(Dialect dialect) {
    if (dialect == Dialect::v4) return {"tool_calls", "invoke", "parameter", Dialect::v4, false};
    return {" calls", " invoke", " parameter", Dialect::v41, true};
}

std::string tool_schema_line(const Tool& tool, Dialect dialect) {
    std::string line = "{\"name\": ";
    append_json_string(line, tool.name);
    line += ", \"description\": ";
    append_json_string(line, tool.description.value_or(""));
    line += ", \"parameters\": ";
    append_spaced_json(line, tool.parameters.value_or(Json()), dialect);
    line += '}';
    return line;
}

void write_tool_prompt(std::string_view schema_lines, const ToolMarkup& markup, PromptWriter& out) {
    std::string_view rest = kToolPrompt;
    for (;;) {
        const std::size_t begin = rest.find('{');
        out.text(rest.substr(0, begin));
        if (begin == std::string_view::npos) return;
        const std::size_t end = rest.find('}', begin);
        write_placeholder(rest.substr(begin + 1, end - begin - 1), schema_lines, markup, out);
        rest.remove_prefix(end + 1);
    }
}

void write_tool_prompt(std::span<const Tool> tools, Dialect dialect, PromptWriter& out) {
    write_tool_prompt(listed_schema_lines(tools, dialect), tool_markup(dialect), out);
}

void write_tool_calls_begin(const ToolMarkup& markup, PromptWriter& out) {
    write_open_tag(markup.block, out);
    out.text(">\n");
}

void write_tool_calls(std::span<const ToolCall> calls, const ToolMarkup& markup,
                      PromptWriter& out) {
    write_tool_calls_begin(markup, out);
    for (const ToolCall& call : calls) {
        write_open_tag(markup.call, out);
        out.text(" name=\"");
        out.text(call.name);
        out.text("\">\n");
        write_parameters(call, markup, out);
        write_close_tag(markup.call, out);
        out.text("\n");
    }
    write_close_tag(markup.block, out);
}

}  // namespace fathom
