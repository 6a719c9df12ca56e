// Well-formedness of UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, nothing above
// U+10FFFF. Pure; any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace fathom {

// Bytes of the well-formed sequence at the start of `text`, which must not be empty. Otherwise the
// negated length of the maximal subpart there, at least one byte: what one U+FFFD stands for
// (section 3.9). A sequence cut off by the end of `text` is such a subpart.
int utf8_sequence(std::string_view text);

// Length of the longest well-formed prefix; text.size() when all of it is. Looks at no more than
// that prefix and the sequence behind it, so a caller may go on behind each fault.
std::size_t utf8_valid_bytes(std::string_view text);

}  // namespace fathom
