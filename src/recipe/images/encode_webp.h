// Pictures on their way to the vision encoder travel as lossy WebP (recipe.md 2.9).
#pragma once

#include <string>

#include "base/result.h"
#include "recipe/images/picture.h"

namespace fathom {

// The quality is that whose files are as large as the reference's. Sides are 1 to 16383.
Result<std::string> encode_webp(const Picture& picture);

}  // namespace fathom
