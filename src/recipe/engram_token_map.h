// The Engram token compression of a tokenizer (model.md 3.11): ids whose normalised texts are equal
// share a number; numbers are given in order of first appearance. NFKC, NFD, marks removed, lower
// case, white space collapsed and stripped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "recipe/tokenizer.h"

namespace fathom {

// The normalised form of well-formed UTF-8; may be empty. A text that is one white space character
// gives one space, and so does U+E000, which the rule uses as its mark for that case. Unicode
// tables are utf8proc's.
std::string engram_normalise(std::string_view text);

struct EngramTokenMap {
    std::vector<std::int32_t> map;  // [vocab_size], by token id
    std::int64_t distinct = 0;
};

// An id that the tokenizer does not have counts as the empty text. A text that normalises to
// nothing is its own key, and so is the vocabulary spelling of a token that is not whole
// characters.
EngramTokenMap make_engram_token_map(const Tokenizer& tokenizer, std::int64_t vocab_size);

}  // namespace fathom
