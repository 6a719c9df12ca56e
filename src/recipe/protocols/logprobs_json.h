// Log probabilities as Chat and Responses write them (recipe.md 3.6): a list of
// {"token","logprob","bytes","top_logprobs"}.
#pragma once

#include <vector>

#include "base/json.h"
#include "recipe/output_parser.h"
#include "recipe/tokenizer.h"

namespace fathom {

void write_logprobs(JsonWriter& writer, const Tokenizer& tokenizer,
                    const std::vector<TokenLogprob>& logprobs);

}  // namespace fathom
