// JSON text as the model reads it in prompts, and as the wire has it (recipe.md 2.5). Both keep the
// key order and write strings as raw UTF-8 with the escapes that must be; they differ in spaces and
// in how doubles with a negative exponent look.
#pragma once

#include <string>

#include "base/json.h"
#include "recipe/conversation.h"

namespace fathom {

// Appends `json` with ", " and ": " between parts. Doubles: 1e-05 and 1.5e-07 in V4.1 (as Python
// writes them), 0.00001 and 1.5e-7 in V4.
void append_spaced_json(std::string& out, const Json& json, Dialect dialect);
std::string spaced_json(const Json& json, Dialect dialect);

// Appends `json` without spaces, doubles as in V4: the form in which schemas travel in answers and
// output constraints.
void append_wire_json(std::string& out, const Json& json);
std::string wire_json(const Json& json);

}  // namespace fathom
