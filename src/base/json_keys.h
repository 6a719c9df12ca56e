// JSON files of people and tools that are read whole and trusted with much: a key that is there
// twice would count once, and nobody would know which.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace fathom {

// Reads and parses a file. Errors carry the path; invalid_argument when an object, at any depth,
// names a key twice: costs.json: classes[1]."k0_us": given twice.
Result<Json> parse_json_file_of_single_keys(const std::string& path);

// The same check of a text that parse_json accepts, without the path.
Status check_single_keys(std::string_view text);

}  // namespace fathom
