// How recorded and own results differ, as a sentence for people; empty when they are equal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace fathom {

// The first difference between two trees, with its path. Objects may have their members in any
// order, except schemas. `temperature` and `top_p` are compared as 32-bit floats. Members `prompt`
// and `special_ranges` of the golden tree are passed over: text_difference shows more of those.
std::string json_difference(const std::string& path, const Json& golden, const Json& ours);

// What stands around the first byte that differs. `what` names the texts: "prompt".
std::string text_difference(std::string_view what, std::string_view golden, std::string_view ours);

// The first line that differs, with the one before it.
std::string lines_difference(std::string_view what, const std::vector<std::string>& golden,
                             const std::vector<std::string>& ours);

}  // namespace fathom
