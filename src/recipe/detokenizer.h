// Streaming detokenization (recipe.md 1.8): text is released only as whole UTF-8 characters.
// Pending ids are held while what they decode to ends with U+FFFD, since a character may yet come
// of its bytes. One owner; cheap to copy.
//
// The pieces of a stream joined are decode() of all its ids, however the stream was cut. U+FFFD
// that the model means, and bytes that no continuation can repair, are held as well, as the
// reference does: until a good character follows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "recipe/tokenizer.h"

namespace fathom {

class Detokenizer {
  public:
    struct Piece {
        std::string text;              // may be empty: the id is held
        std::int64_t token_count = 0;  // ids that this text stands for
    };
    // `silent`: ids that have no bytes here, whatever the vocabulary says.
    explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer,
                         std::vector<TokenId> silent = {})
        : tokenizer_(std::move(tokenizer)), silent_(std::move(silent)) {}

    std::string_view bytes(TokenId id) const;

    // An id outside the vocabulary has no bytes either: it is held, and counted with the next text.
    Piece push(TokenId id) { return push({&id, 1}); }
    // Several ids that came together give one piece: none of it while the last character is
    // incomplete or U+FFFD. Time is linear in the bytes of these ids, however many are held.
    Piece push(std::span<const TokenId> ids);
    // What is still pending at the end, ill-formed bytes replaced. The reference drops it; callers
    // that show text to people use it, the reference profile does not. The detokenizer is then as
    // new.
    Piece finish();

  private:
    Piece release();

    std::shared_ptr<const Tokenizer> tokenizer_;  // immutable, shared with everyone who has text
    std::vector<TokenId> silent_;
    std::string pending_;
    std::int64_t pending_count_ = 0;
};

}  // namespace fathom
