// Reads a Hugging Face tokenizer.json into the plain parts that Tokenizer is built from, and
// refuses, with the field and the value found, whatever this tokenizer would not do the same way.
//
// The section post_processor is not read: it only moves offsets and adds special tokens, and the
// prompt already holds every special token (recipe.md 1.1).
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "recipe/added_tokens.h"
#include "recipe/bpe.h"

namespace fathom {

struct TokenizerFile {
    struct Word {
        TokenId id = 0;
        std::string spelling;  // in the byte alphabet, except where it repeats an added token
    };
    std::vector<Word> vocab;                  // ascending, distinct ids
    std::vector<Bpe::Merge> merges;           // by rank
    std::array<TokenId, 256> byte_ids{};      // the id of each single byte
    std::vector<AddedToken> added;            // in file order
    std::vector<std::string> split_patterns;  // Oniguruma regular expressions, in order
};

struct TokenizerLimits {
    // Ids lie below this bound: tables are indexed by id, so the bound is also one on memory.
    TokenId id_end = TokenId{1} << 22;
    std::size_t file_bytes_max = std::size_t{64} << 20;
    std::size_t vocab_max = std::size_t{1} << 20;
    std::size_t merges_max = (std::size_t{1} << 20) - 1;
    std::size_t added_max = std::size_t{1} << 16;
    std::size_t spelling_bytes_max = std::size_t{1} << 12;
    std::size_t added_bytes_max = 256;
};

// `where` starts each message, usually the file's path.
Result<TokenizerFile> read_tokenizer_file(const Json& root, std::string_view where,
                                          const TokenizerLimits& limits = {});

}  // namespace fathom
