// Full pages that outlive the sequence that wrote them, found by key (block_key.h), and the encoder
// windows at their ends. Nothing here is needed for an answer: any block and any snapshot may go at
// any time, and then its rows are computed again.
//
//   block     a page of 128 positions and its key. It has users: the sequences that map it. A block
//             without users stays, is "idle", and is evicted only when a page is needed, least
//             recently used first. Who maps a block maps all blocks in front of it, and leaves the
//             last ones first, so the least recently used one always ends its chain: what is left
//             can still be reached from K_0.
//   snapshot  the windows at a block's end, for an exact continuation there. They have a budget in
//             bytes and a life since their last use, and go with their block.
//
// A key names bits. Pages that were computed after a replay are stored under a key that says so
// (their lineage), never under the one of a cold run: which pages a request finds cannot change
// what equal Anchors mean.
//
// One thread, the engine's. The pool and the clock must outlive the cache.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "base/clock.h"
#include "engine/block_key.h"
#include "engine/page_pool.h"
#include "engine/window_tier.h"
#include "model/kv_cache.h"

namespace fathom {

struct PrefixCacheOptions {
    std::int64_t snapshot_bytes_max = 0;
    std::int64_t snapshot_life_us = 180'000'000;
    WindowTier* windows = nullptr;  // keeps copies; null: none
};

struct PrefixCacheStats {
    std::int64_t blocks = 0, idle_blocks = 0;  // idle: without users
    std::int64_t snapshots = 0, snapshot_bytes = 0;
    std::uint64_t query_tokens = 0, hit_tokens = 0;  // of prompts when they first start
    std::uint64_t snapshot_hits = 0, replays = 0;
    std::uint64_t recalls = 0;             // snapshots that came from the window tier
    std::uint64_t evictions = 0;           // blocks
    std::uint64_t snapshot_evictions = 0;  // by budget, by age or with their block
};

class PrefixCache {
  public:
    class Block {
      public:
        explicit Block(PageId page) : page_(page) {}
        PageId page() const { return page_; }
        std::int64_t users() const { return users_; }
        // Some block behind this one was computed after a replay: a lookup tries that key too.
        bool replayed_behind() const { return replayed_behind_; }
        const std::optional<WindowSnapshot>& snapshot() const { return snapshot_; }
        // When a tier (block_tier.h) should be given the block, by the wall clock; 0: it has not
        // got it.
        std::int64_t store_due_ms() const { return store_due_ms_; }
        void set_store_due_ms(std::int64_t due_ms) { store_due_ms_ = due_ms; }

      private:
        friend class PrefixCache;
        PageId page_;
        const BlockKey* key_ = nullptr;
        std::int64_t users_ = 0;
        bool replayed_behind_ = false;
        std::int64_t store_due_ms_ = 0;
        std::list<Block*>::iterator idle_;  // when users_ == 0
        std::optional<WindowSnapshot> snapshot_;
        std::int64_t snapshot_used_us_ = 0;
        bool snapshot_was_used_ = false;
        std::list<Block*>::iterator aged_;  // with a snapshot
    };

    PrefixCache(PagePool& pool, const Clock& clock, const PrefixCacheOptions& options);
    ~PrefixCache();
    PrefixCache(const PrefixCache&) = delete;
    PrefixCache& operator=(const PrefixCache&) = delete;

    // Blocks. Pointers stay valid while the block has users, and else until the next take_page().
    Block* find(const BlockKey& key);  // nullptr when absent; changes nothing
    void use(Block& block);            // one more user
    void leave(Block& block);          // one less; behind it in its chain must be left before
    // Takes over a full page that the caller wrote; the caller becomes a user of the block that is
    // returned. When the key is there already (another sequence was faster) the given page goes
    // back to the pool and the block has the other one: the same bits. `parent` is the block in
    // front, nullptr for the first; the caller uses it. `replayed` as in next_key.
    Block& publish(const BlockKey& key, Block* parent, bool replayed, PageId page);

    // Nobody finds the block any more: what it holds is in doubt. Its users may go on.
    void distrust(Block& block);

    // A page to write, from the pool or from the least recently used idle block.
    std::optional<PageId> take_page();
    std::int64_t available_pages() const;  // free ones and those of idle blocks
    PagePool& pool() { return pool_; }

    // Snapshots.
    bool wants_snapshots(std::int64_t bytes) const { return bytes <= options_.snapshot_bytes_max; }
    void use_snapshot(Block& block);  // its life begins anew
    void keep_snapshot(Block& block, WindowSnapshot snapshot);
    // Looks for the windows at the block's end, at `position`, behind the cache as well. True when
    // the block has a snapshot now.
    bool recall_snapshot(Block& block, std::int64_t position);
    void drop_unused_snapshot(Block& block);  // one that nobody has begun from
    void expire();                            // zeroes and drops what is past its life

    void count_query(std::int64_t prompt_tokens, std::int64_t cached_tokens, bool snapshot,
                     bool replay);
    PrefixCacheStats stats() const;

  private:
    void forget_snapshot(Block& block);
    void put_snapshot(Block& block, WindowSnapshot snapshot);

    PagePool& pool_;
    const Clock& clock_;
    const PrefixCacheOptions options_;
    std::unordered_map<BlockKey, Block> blocks_;  // never iterated: order would depend on keys
    std::list<Block*> idle_;                      // least recently used first
    std::list<Block*> aged_;                      // blocks with a snapshot, likewise
    PrefixCacheStats counted_;
    std::int64_t windows_expired_us_ = 0;
    std::uint64_t distrusted_ = 0;
};

}  // namespace fathom
