// Results on standard output. A full disk or a closed pipe is a failure that is told, not an
// exception and not silence.
#pragma once

#include <string_view>

#include "base/result.h"

namespace fathom {

// Writes all of it, behind what was printed before. unavailable when that fails.
Status print_result(std::string_view text);

}  // namespace fathom
