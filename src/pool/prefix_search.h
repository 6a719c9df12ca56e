// The length of a chain's present beginning by binary search: about log2(n) probes instead of n
// (kvpool.md 5.2). Where blocks are missing in the middle the answer is the end of some run of
// present blocks, never before the end of the first: a hint that reads confirm.
#pragma once

#include <cstddef>

namespace fathom {

// `present(i)` for block i < blocks.
template <typename Present>
std::size_t search_prefix(std::size_t blocks, const Present& present) {
    std::size_t found = 0, beyond = blocks + 1;  // block found − 1 is present, beyond − 1 is not
    while (beyond - found > 1) {
        const std::size_t middle = found + (beyond - found) / 2;
        (present(middle - 1) ? found : beyond) = middle;
    }
    return found;
}

}  // namespace fathom
