// Text for the codec's benchmark: English, Chinese and code in equal parts, in stretches of some
// kilobytes, always the same for the same tree.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace fathom::bench {

// `bytes` or a little more. Code is the tree's own, in order, from `tree`; English has the tree's
// words, drawn as often as its documents and comments use them; Chinese is drawn from common words.
Result<std::string> mixed_text(const std::string& tree, std::size_t bytes);

}  // namespace fathom::bench
