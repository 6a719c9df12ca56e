#include "engine/fork.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace fathom {

void PromptFork::leave(std::uint64_t member) {
    members_.erase(std::remove(members_.begin(), members_.end(), member), members_.end());
    if (members_.empty()) release();
}

void PromptFork::capture(const SequenceState& state, std::span<PrefixCache::Block* const> blocks,
                         const std::uint8_t* last_page, const Anchors& anchors,
                         std::int64_t first_row) {
    if (members_.empty() || budget_.kept >= budget_.kept_max) return;
    FATHOM_CHECK(!ready());
    ++budget_.kept;
    blocks_.assign(blocks.begin(), blocks.end());
    for (PrefixCache::Block* block : blocks_)
        cache_.use(*block);
    last_page_.assign(last_page, last_page + state.layout->page_bytes);
    rows_.emplace(*state.layout);
    rows_->copy_rows(state);
    rows_->encoder_floor = state.encoder_floor;
    rows_->store_floor = state.store_floor;
    rows_->decoder_floor = state.decoder_floor;
    anchors_ = anchors;
    first_row_ = first_row;
}

void PromptFork::restore(std::uint8_t* last_page, SequenceState& state) const {
    FATHOM_CHECK(ready());
    std::memcpy(last_page, last_page_.data(), last_page_.size());
    state.copy_rows(*rows_);
    state.encoder_floor = rows_->encoder_floor;
    state.store_floor = rows_->store_floor;
    state.decoder_floor = rows_->decoder_floor;
}

void PromptFork::release() {
    for (; !blocks_.empty(); blocks_.pop_back())
        cache_.leave(*blocks_.back());
    last_page_ = {};
    if (ready()) --budget_.kept;
    rows_.reset();
}

}  // namespace fathom
