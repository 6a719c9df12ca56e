#include "recipe/detokenizer.h"

#include <algorithm>

#include "recipe/utf8_text.h"

namespace fathom {

std::string_view Detokenizer::bytes(TokenId id) const {
    const bool silent = std::find(silent_.begin(), silent_.end(), id) != silent_.end();
    return silent ? std::string_view() : tokenizer_->bytes(id);
}

Detokenizer::Piece Detokenizer::push(std::span<const TokenId> ids) {
    for (const TokenId id : ids)
        pending_ += bytes(id);
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
