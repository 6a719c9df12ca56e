#include "engine/page_pool.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace fathom {

PagePool::PagePool(const KvLayout& layout, std::int64_t pages)
    : arena_(layout, pages), taken_(static_cast<std::size_t>(pages)) {
    free_.resize(static_cast<std::size_t>(pages));
    for (std::size_t i = 0; i < free_.size(); ++i)
        free_[i] = static_cast<std::uint32_t>(i);  // ascending is a heap
}

std::optional<PageId> PagePool::take() {
    if (free_.empty()) return std::nullopt;
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const PageId id(free_.back());
    free_.pop_back();
    taken_[id.value] = true;
    return id;
}

void PagePool::release(PageId id) {
    FATHOM_CHECK(taken_[id.value], "a page is released once");
    taken_[id.value] = false;
    free_.push_back(id.value);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

}  // namespace fathom
