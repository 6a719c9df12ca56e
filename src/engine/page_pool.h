// The KV pages of an engine. The pool owns their memory (PageArena) and knows which are free. Pages
// are handed out lowest number first, so equal histories use equal pages. Who may read a page and
// when it is kept is decided above: a sequence owns the pages it writes, and a full one may pass to
// the PrefixCache (prefix_cache.h), which shares it. One thread, the engine's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "model/kv_cache.h"

namespace fathom {

class PagePool {
  public:
    PagePool(const KvLayout& layout, std::int64_t pages);
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    std::optional<PageId> take();  // empty when no page is free
    void release(PageId id);       // the page must be taken

    std::uint8_t* memory(PageId id) const { return arena_.page(id); }
    std::int64_t total() const { return arena_.pages(); }
    std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }

  private:
    PageArena arena_;
    std::vector<bool> taken_;          // by page
    std::vector<std::uint32_t> free_;  // min-heap
};

}  // namespace fathom
