#include "recipe/detokenizer.h"

#include "recipe/utf8_text.h"

namespace fathom {

Detokenizer::Piece Detokenizer::push(std::span<const TokenId> ids) {
    for (const TokenId id : ids)
        pending_ += tokenizer_->bytes(id);
    pending_count_ += static_cast<std::int64_t>(ids.size());
    if (!utf8_ends_well(pending_)) return {};
    return release();
}

Detokenizer::Piece Detokenizer::finish() {
    return release();
}

Detokenizer::Piece Detokenizer::release() {
    Piece piece{.text = utf8_lossy(pending_), .token_count = pending_count_};
    pending_.clear();
    pending_count_ = 0;
    return piece;
}

}  // namespace fathom
