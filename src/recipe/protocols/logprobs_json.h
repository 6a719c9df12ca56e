// Log probabilities as Chat and Responses write them (recipe.md 3.6): a list of
// {"token","logprob","bytes","top_logprobs"}.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "recipe/output_parser.h"
#include "recipe/tokenizer.h"

namespace fathom {

// How a token is shown: as text; bytes that are no UTF-8 by themselves as \x and two hex digits.
std::string shown_token(std::string_view bytes);

void write_logprobs(JsonWriter& writer, const Tokenizer& tokenizer,
                    const std::vector<TokenLogprob>& logprobs);

}  // namespace fathom
