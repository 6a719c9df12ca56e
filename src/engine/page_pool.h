// Who holds which KV page. The pool owns the page memory (PageArena) and counts references: a page
// is free, or held by sequences and prefixes. Pages are handed out lowest number first, so equal
// histories use equal pages.
//
// Sharing: a page is written only by the one sequence that took it and never after it is full, so
// a full page may be read by any number of holders. A Prefix names full pages of a prompt's
// beginning; the partly filled last page of a sequence is never shared.
//
// The engine's thread takes pages; a Prefix may be dropped on any thread. The pool therefore holds
// a lock, and lives until its last holder is gone.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
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

    std::optional<PageId> take();  // one reference; empty when no page is free
    void retain(PageId id);        // the page must be held
    void release(PageId id);       // the page must be held

    std::uint8_t* memory(PageId id) const { return arena_.page(id); }
    std::int64_t total() const { return arena_.pages(); }
    std::int64_t free_pages() const;
    std::int64_t used_pages() const { return total() - free_pages(); }
    std::int64_t references(PageId id) const;

  private:
    PageArena arena_;
    mutable std::mutex mutex_;
    std::vector<std::int32_t> references_;  // by page
    std::vector<std::uint32_t> free_;       // min-heap
};

// The pages of positions [0, tokens()) of a prompt, and the encoder windows there. Immutable; any
// thread.
class Prefix {
  public:
    // Takes a reference to each page; `ids` covers them in full.
    Prefix(std::shared_ptr<PagePool> pool, std::vector<TokenId> ids,
           std::vector<std::uint8_t> in_image, std::vector<PageId> pages,
           std::optional<WindowSnapshot> snapshot);
    ~Prefix();
    Prefix(const Prefix&) = delete;
    Prefix& operator=(const Prefix&) = delete;

    std::int64_t tokens() const { return static_cast<std::int64_t>(ids_.size()); }
    const std::vector<TokenId>& ids() const { return ids_; }
    const std::vector<std::uint8_t>& in_image() const { return in_image_; }  // beside ids, or empty
    const std::vector<PageId>& pages() const { return pages_; }
    const std::optional<WindowSnapshot>& snapshot() const { return snapshot_; }
    const PagePool& pool() const { return *pool_; }

  private:
    std::shared_ptr<PagePool> pool_;
    std::vector<TokenId> ids_;
    std::vector<std::uint8_t> in_image_;
    std::vector<PageId> pages_;
    std::optional<WindowSnapshot> snapshot_;
};

}  // namespace fathom
