#include "engine/page_pool.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace fathom {

PagePool::PagePool(const KvLayout& layout, std::int64_t pages)
    : arena_(layout, pages), references_(static_cast<std::size_t>(pages)) {
    free_.resize(static_cast<std::size_t>(pages));
    for (std::size_t i = 0; i < free_.size(); ++i)
        free_[i] = static_cast<std::uint32_t>(i);  // ascending is a heap
}

std::optional<PageId> PagePool::take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return std::nullopt;
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const PageId id(free_.back());
    free_.pop_back();
    references_[id.value] = 1;
    return id;
}

void PagePool::retain(PageId id) {
    std::lock_guard lock(mutex_);
    FATHOM_CHECK(references_[id.value] > 0, "a free page cannot be shared");
    ++references_[id.value];
}

void PagePool::release(PageId id) {
    std::lock_guard lock(mutex_);
    FATHOM_CHECK(references_[id.value] > 0, "a page is released once a reference");
    if (--references_[id.value] > 0) return;
    free_.push_back(id.value);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

std::int64_t PagePool::free_pages() const {
    std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(free_.size());
}

std::int64_t PagePool::references(PageId id) const {
    std::lock_guard lock(mutex_);
    return references_[id.value];
}

Prefix::Prefix(std::shared_ptr<PagePool> pool, std::vector<TokenId> ids,
               std::vector<std::uint8_t> in_image, std::vector<PageId> pages,
               std::optional<WindowSnapshot> snapshot)
    : pool_(std::move(pool)),
      ids_(std::move(ids)),
      in_image_(std::move(in_image)),
      pages_(std::move(pages)),
      snapshot_(std::move(snapshot)) {
    FATHOM_CHECK(tokens() == static_cast<std::int64_t>(pages_.size()) * kPageTokens);
    FATHOM_CHECK(in_image_.empty() || in_image_.size() == ids_.size());
    for (const PageId page : pages_)
        pool_->retain(page);
}

Prefix::~Prefix() {
    for (const PageId page : pages_)
        pool_->release(page);
}

}  // namespace fathom
