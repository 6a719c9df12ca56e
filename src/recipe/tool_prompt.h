// How tools are offered to the model, and how its earlier calls are shown to it (recipe.md 2.6 and
// 2.7). Markup is '<' or '</', the special token ｜DSML｜, and a name of the dialect; names, keys
// and values of the request stand in it as plain text, unescaped.
#pragma once

#include <span>
#include <string_view>

#include "recipe/conversation.h"
#include "recipe/prompt_writer.h"

namespace fathom {

// The names of the three tags. V4.1's begin with a space.
struct DsmlNames {
    std::string_view block, call, parameter;
};
DsmlNames dsml_names(Dialect dialect);

// The instructions and the schema of every tool that is not deferred; ends with a line feed.
void write_tool_prompt(std::span<const Tool> tools, Dialect dialect, PromptWriter& out);

// One line for each tool, without a line feed after the last.
void write_tool_schemas(std::span<const Tool> tools, Dialect dialect, PromptWriter& out);

// A block of calls in the order given; an empty block where there are none.
void write_tool_calls(std::span<const ToolCall> calls, Dialect dialect, PromptWriter& out);

// The line that opens a block of calls, with its line feed.
void write_tool_calls_begin(Dialect dialect, PromptWriter& out);

}  // namespace fathom
