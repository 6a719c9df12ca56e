#include "engine/fork.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace fathom {

void PromptFork::leave(std::uint64_t member) {
    members_.erase(std::remove(members_.begin(), members_.end(), member), members_.end());
    if (members_.empty()) release();
}

void PromptFork::capture(const SequenceState& state, const std::vector<PageId>& pages,
                         std::int64_t tokens) {
    if (members_.empty() || budget_.kept >= budget_.kept_max) return;
    FATHOM_CHECK(!ready() && tokens > 0);
    ++budget_.kept;
    const auto last = static_cast<std::size_t>((tokens - 1) / kPageTokens);
    shared_.assign(pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(last));
    for (const PageId page : shared_)
        pool_->retain(page);
    const std::uint8_t* bytes = pool_->memory(pages[last]);
    last_page_.assign(bytes, bytes + state.layout->page_bytes);
    rows_.emplace(*state.layout);
    rows_->copy_rows(state);
}

void PromptFork::restore(std::uint8_t* last_page, SequenceState& state) const {
    FATHOM_CHECK(ready());
    std::memcpy(last_page, last_page_.data(), last_page_.size());
    state.copy_rows(*rows_);
}

void PromptFork::release() {
    for (const PageId page : shared_)
        pool_->release(page);
    shared_.clear();
    last_page_ = {};
    if (ready()) --budget_.kept;
    rows_.reset();
}

}  // namespace fathom
