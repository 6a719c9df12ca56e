// How tools are offered to the model, and how its earlier calls are shown to it (recipe.md 2.6 and
// 2.7). Markup is '<' or '</', the special token ｜DSML｜, and a name of the dialect; names, keys
// and values of the request stand in it as plain text, unescaped.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "recipe/conversation.h"
#include "recipe/prompt_writer.h"

namespace fathom {

// The names of the three tags (V4.1's begin with a space), and the two ways in which forms of
// markup differ besides.
struct ToolMarkup {
    std::string_view block, call, parameter;
    Dialect json;              // how JSON is spelled in it
    bool empty_line_for_none;  // a call without parameters has an empty line
};
ToolMarkup tool_markup(Dialect dialect);

// A line, without line feed, that shows a tool to the model.
std::string tool_schema_line(const Tool& tool, Dialect dialect);

// The instructions with the given schemas (lines, each with its line feed); ends with a line feed.
void write_tool_prompt(std::string_view schema_lines, const ToolMarkup& markup, PromptWriter& out);

// The same with the schema of every tool that is not deferred.
void write_tool_prompt(std::span<const Tool> tools, Dialect dialect, PromptWriter& out);

// A block of calls in the order given; an empty block where there are none.
void write_tool_calls(std::span<const ToolCall> calls, const ToolMarkup& markup, PromptWriter& out);

// The line that opens a block of calls, with its line feed.
void write_tool_calls_begin(const ToolMarkup& markup, PromptWriter& out);

}  // namespace fathom
