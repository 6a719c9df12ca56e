// The cache against a plain model of it: chains of blocks, users, least recent use, snapshots with
// a budget and a life.
#include "engine/prefix_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/marker_model.h"

namespace fathom {
namespace {

constexpr std::int64_t kSnapshotBytes = 10;
constexpr std::int64_t kBudget = 35;  // three of them
constexpr std::int64_t kLifeUs = 20;

const KvLayout& layout() {
    static const testing::MarkerModel model;
    return model.kv_layout();
}

// A block's place in the tree, "" for the root: what a key stands for.
BlockKey key_of(const std::string& path) {
    Sha256 hash;
    hash.update(path);
    return {hash.finish()};
}

WindowSnapshot some_snapshot() {
    return {.position = 128, .rows = std::vector<std::uint8_t>(kSnapshotBytes)};
}

struct ModelBlock {
    std::string path;
    int users = 0;
    std::int64_t idle_since = 0;
    bool snapshot = false;
    std::int64_t snapshot_order = 0, snapshot_used_us = 0;
};

// A sequence that maps a path from the root.
struct User {
    std::string path;
    std::vector<PrefixCache::Block*> blocks;
};

class Twins {
  public:
    explicit Twins(std::int64_t pages)
        : pool_(layout(), pages),
          cache_(pool_, clock_, {.snapshot_bytes_max = kBudget, .snapshot_life_us = kLifeUs}) {}

    // Follows what is there of a path, then writes and publishes the rest as far as pages go.
    void begin(const std::string& path) {
        User user;
        for (std::size_t i = 1; i <= path.size(); ++i) {
            PrefixCache::Block* block = cache_.find(key_of(path.substr(0, i)));
            RC_ASSERT((block != nullptr) == (model(path.substr(0, i)) != nullptr));
            if (block == nullptr) break;
            cache_.use(*block);
            ++model(path.substr(0, i))->users;
            user.blocks.push_back(block);
            user.path = path.substr(0, i);
        }
        while (user.path.size() < path.size()) {
            const std::optional<PageId> page = take_page();
            if (!page.has_value()) break;
            user.path = path.substr(0, user.path.size() + 1);
            user.blocks.push_back(
                &cache_.publish(key_of(user.path),
                                user.blocks.empty() ? nullptr : user.blocks.back(), false, *page));
            blocks_.push_back({.path = user.path, .users = 1});
        }
        if (!user.blocks.empty()) users_.push_back(std::move(user));
    }

    void end(std::size_t number) {
        if (users_.empty()) return;
        const auto at = users_.begin() + static_cast<std::ptrdiff_t>(number % users_.size());
        for (; !at->blocks.empty(); at->blocks.pop_back(), at->path.pop_back()) {
            cache_.leave(*at->blocks.back());
            ModelBlock& block = *model(at->path);
            if (--block.users == 0) block.idle_since = ++order_;
        }
        users_.erase(at);
    }

    // Computes a block that is there already: the page goes back.
    void publish_again(std::size_t number) {
        if (users_.empty()) return;
        User& user = users_[number % users_.size()];
        const std::optional<PageId> page = take_page();
        if (!page.has_value()) return;
        PrefixCache::Block& block = cache_.publish(
            key_of(user.path), user.blocks.size() < 2 ? nullptr : user.blocks.rbegin()[1], false,
            *page);
        RC_ASSERT(&block == user.blocks.back());
        cache_.leave(block);
    }

    void keep_snapshot(std::size_t number) {
        if (users_.empty()) return;
        const User& user = users_[number % users_.size()];
        cache_.keep_snapshot(*user.blocks.back(), some_snapshot());
        expire();
        ModelBlock& block = *model(user.path);
        if (!block.snapshot && snapshots() == kBudget / kSnapshotBytes) {
            oldest_snapshot()->snapshot = false;
        }
        block.snapshot = true;
        block.snapshot_order = ++order_;
        block.snapshot_used_us = clock_.now_us();
    }

    void advance(std::int64_t us) {
        clock_.advance_us(us);
        cache_.expire();
        expire();
    }

    void take_and_release() {
        if (const std::optional<PageId> page = take_page()) pool_.release(*page);
    }

    void compare() {
        const PrefixCacheStats stats = cache_.stats();
        RC_ASSERT(stats.blocks == static_cast<std::int64_t>(blocks_.size()));
        std::int64_t idle = 0;
        for (const ModelBlock& block : blocks_) {
            const PrefixCache::Block* twin = cache_.find(key_of(block.path));
            RC_ASSERT(twin != nullptr);
            RC_ASSERT(twin->users() == block.users);
            RC_ASSERT(twin->snapshot().has_value() == block.snapshot);
            idle += block.users == 0 ? 1 : 0;
            // What is there can be reached.
            if (block.path.size() > 1)
                RC_ASSERT(model(block.path.substr(0, block.path.size() - 1)) != nullptr);
        }
        RC_ASSERT(stats.idle_blocks == idle);
        RC_ASSERT(stats.snapshot_bytes == snapshots() * kSnapshotBytes);
        RC_ASSERT(stats.snapshot_bytes <= kBudget);
        RC_ASSERT(cache_.available_pages() == pool_.total() - (stats.blocks - stats.idle_blocks));
    }

  private:
    ModelBlock* model(const std::string& path) {
        const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                        [&](const ModelBlock& b) { return b.path == path; });
        return found == blocks_.end() ? nullptr : &*found;
    }
    std::int64_t snapshots() const {
        return std::count_if(blocks_.begin(), blocks_.end(),
                             [](const ModelBlock& b) { return b.snapshot; });
    }
    ModelBlock* oldest_snapshot() {
        ModelBlock* oldest = nullptr;
        for (ModelBlock& block : blocks_)
            if (block.snapshot &&
                (oldest == nullptr || block.snapshot_order < oldest->snapshot_order))
                oldest = &block;
        return oldest;
    }
    void expire() {
        for (ModelBlock& block : blocks_)
            if (clock_.now_us() - block.snapshot_used_us >= kLifeUs) block.snapshot = false;
    }
    std::optional<PageId> take_page() {
        const bool evicts = pool_.free_pages() == 0;
        const std::optional<PageId> page = cache_.take_page();
        if (!evicts) {
            RC_ASSERT(page.has_value());
            return page;
        }
        auto oldest = blocks_.end();
        for (auto it = blocks_.begin(); it != blocks_.end(); ++it)
            if (it->users == 0 && (oldest == blocks_.end() || it->idle_since < oldest->idle_since))
                oldest = it;
        RC_ASSERT(page.has_value() == (oldest != blocks_.end()));
        if (oldest != blocks_.end()) blocks_.erase(oldest);
        return page;
    }

    ManualClock clock_;
    PagePool pool_;
    PrefixCache cache_;
    std::vector<ModelBlock> blocks_;
    std::vector<User> users_;
    std::int64_t order_ = 0;
};

TEST(PrefixCache, AgreesWithAPlainModel) {
    EXPECT_TRUE(rc::check([] {
        Twins twins(*rc::gen::inRange<std::int64_t>(1, 9));
        for (const int action : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 60))) {
            const auto number = static_cast<std::size_t>(action);
            if (action < 20) {
                std::string path;
                for (int i = 0; i <= action % 5; ++i)
                    path += static_cast<char>('a' + (action >> i) % 2);
                twins.begin(path);
            } else if (action < 32) {
                twins.end(number);
            } else if (action < 42) {
                twins.keep_snapshot(number);
            } else if (action < 48) {
                twins.publish_again(number);
            } else if (action < 54) {
                twins.advance(action % 13);
            } else {
                twins.take_and_release();
            }
            twins.compare();
        }
    }));
}

TEST(PrefixCache, AUsedSnapshotOutlivesTheOnesThatNobodyBeganFrom) {
    ManualClock clock;
    PagePool pool(layout(), 2);
    PrefixCache cache(pool, clock, {.snapshot_bytes_max = kBudget, .snapshot_life_us = kLifeUs});
    PrefixCache::Block& first = cache.publish(key_of("a"), nullptr, false, *cache.take_page());
    PrefixCache::Block& second = cache.publish(key_of("b"), nullptr, false, *cache.take_page());
    cache.keep_snapshot(first, some_snapshot());
    cache.keep_snapshot(second, some_snapshot());
    cache.use_snapshot(first);
    cache.drop_unused_snapshot(first);
    cache.drop_unused_snapshot(second);
    EXPECT_TRUE(first.snapshot().has_value());
    EXPECT_FALSE(second.snapshot().has_value());
    EXPECT_EQ(cache.stats().snapshot_evictions, 1u);
}

TEST(PrefixCache, SnapshotsBeyondTheBudgetAreNotKept) {
    ManualClock clock;
    PagePool pool(layout(), 1);
    PrefixCache cache(pool, clock, {.snapshot_bytes_max = kSnapshotBytes - 1});
    EXPECT_FALSE(cache.wants_snapshots(kSnapshotBytes));
    PrefixCache::Block& block = cache.publish(key_of("a"), nullptr, false, *cache.take_page());
    cache.keep_snapshot(block, some_snapshot());
    EXPECT_FALSE(block.snapshot().has_value());
}

}  // namespace
}  // namespace fathom
