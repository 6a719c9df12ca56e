// A tokenizer for models that are made up: the release's tokenizer.json layout and pre-tokenizer, a
// vocabulary made by rule instead of from text. Letters merge to pairs, pairs to words of four
// letters, both with and without a space before them; common letters come first. It encodes any
// text, English at about two bytes a token, and has the special tokens that prompts are made of.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "base/result.h"

namespace fathom {

// The largest vocabulary that the rule gives, and the smallest: special tokens, bytes and pairs.
inline constexpr std::int64_t kSyntheticVocabMax = 600'000;
inline constexpr std::int64_t kSyntheticVocabMin = 1000;

// The root of a tokenizer.json with exactly the ids 0 … vocab_size − 1: begin, end and pad, the
// bytes, the merged words, then the other special tokens. invalid_argument outside the range above.
Result<Json> make_synthetic_tokenizer(std::int64_t vocab_size);

// Its image token (the model marks image positions by its id).
inline constexpr const char* kSyntheticImageToken = "<｜deepseek_image｜>";

}  // namespace fathom
