// Streaming detokenization (recipe.md 1.8): text is released only as whole UTF-8 characters.
// Pending ids are held while the bytes so far end in an incomplete but possible character. One
// owner; cheap to copy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/ids.h"
#include "recipe/tokenizer.h"

namespace fathom {

class Detokenizer {
  public:
    struct Piece {
        std::string text;              // may be empty: the id is held
        std::int64_t token_count = 0;  // ids that this text stands for
    };
    explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer)
        : tokenizer_(std::move(tokenizer)) {}

    Piece push(TokenId id);
    // What is still pending at the end, ill-formed bytes replaced. The reference drops it; callers
    // that show text to people use it, the reference profile does not.
    Piece finish();

  private:
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::string pending_;
    std::int64_t pending_count_ = 0;
};

}  // namespace fathom
