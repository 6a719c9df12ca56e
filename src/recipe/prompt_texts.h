// Texts of the template that more than one form of prompt has (recipe.md 2.2 and 2.4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "recipe/conversation.h"
#include "recipe/prompt.h"

namespace fathom {

// Precedes a schema, or {"type": "json_object"}, that answers are to follow.
inline constexpr std::string_view kSchemaFormatHeading =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

// States the effort at the start of a prompt; empty where nothing is said. `percent` takes the
// place of the name in V4.1.
std::string effort_text(bool thinking, ReasoningEffort effort, std::optional<int> percent,
                        const RenderOptions& options);

}  // namespace fathom
