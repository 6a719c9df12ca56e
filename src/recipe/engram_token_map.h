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

std::string engram_normalise(std::string_view text);

struct EngramTokenMap {
    std::vector<std::int32_t> map;  // [vocab_size]
    std::int64_t distinct = 0;
};
EngramTokenMap make_engram_token_map(const Tokenizer& tokenizer, std::int64_t vocab_size);

}  // namespace fathom
