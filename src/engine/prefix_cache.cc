#include "engine/prefix_cache.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace fathom {

namespace {

constexpr std::int64_t kWindowsExpireUs = 1'000'000;

}  // namespace

PrefixCache::PrefixCache(PagePool& pool, const Clock& clock, const PrefixCacheOptions& options)
    : pool_(pool), clock_(clock), options_(options) {}

PrefixCache::~PrefixCache() = default;

PrefixCache::Block* PrefixCache::find(const BlockKey& key) {
    const auto found = blocks_.find(key);
    return found == blocks_.end() ? nullptr : &found->second;
}

void PrefixCache::use(Block& block) {
    if (block.users_++ == 0) idle_.erase(block.idle_);
}

void PrefixCache::leave(Block& block) {
    FATHOM_CHECK(block.users_ > 0, "a block is left once a use");
    if (--block.users_ == 0) block.idle_ = idle_.insert(idle_.end(), &block);
}

PrefixCache::Block& PrefixCache::publish(const BlockKey& key, Block* parent, bool replayed,
                                         PageId page) {
    FATHOM_CHECK(parent == nullptr || parent->users_ > 0, "a chain is used from its beginning");
    const auto [at, is_new] = blocks_.try_emplace(key, page);
    Block& block = at->second;
    if (is_new) {
        block.key_ = &at->first;
        block.users_ = 1;
        if (replayed && parent != nullptr) parent->replayed_behind_ = true;
    } else {
        pool_.release(page);
        use(block);
    }
    return block;
}

void PrefixCache::distrust(Block& block) {
    auto node = blocks_.extract(*block.key_);
    BlockKey& key = node.key();  // stays where it is
    key.bytes.fill(0xff);        // ends as no digest does
    std::memcpy(key.bytes.data(), &++distrusted_, sizeof(distrusted_));
    blocks_.insert(std::move(node));
}

std::optional<PageId> PrefixCache::take_page() {
    if (const std::optional<PageId> page = pool_.take()) return page;
    if (idle_.empty()) return std::nullopt;
    Block& block = *idle_.front();
    idle_.pop_front();
    if (block.snapshot_) forget_snapshot(block);
    pool_.release(block.page_);
    blocks_.erase(blocks_.find(*block.key_));
    ++counted_.evictions;
    return pool_.take();
}

std::int64_t PrefixCache::available_pages() const {
    return pool_.free_pages() + static_cast<std::int64_t>(idle_.size());
}

void PrefixCache::use_snapshot(Block& block) {
    FATHOM_CHECK(block.snapshot_.has_value());
    block.snapshot_was_used_ = true;
    block.snapshot_used_us_ = clock_.now_us();
    aged_.splice(aged_.end(), aged_, block.aged_);
}

void PrefixCache::keep_snapshot(Block& block, WindowSnapshot snapshot) {
    expire();
    if (block.snapshot_) return use_snapshot(block);  // the same bits
    if (options_.windows != nullptr) options_.windows->keep(*block.key_, snapshot.rows);
    put_snapshot(block, std::move(snapshot));
}

bool PrefixCache::recall_snapshot(Block& block, std::int64_t position) {
    if (block.snapshot_) return true;
    WindowSnapshot snapshot{.position = position, .rows = {}};
    if (options_.windows == nullptr || !options_.windows->recall(*block.key_, snapshot.rows))
        return false;
    ++counted_.recalls;
    put_snapshot(block, std::move(snapshot));
    return block.snapshot_.has_value();
}

void PrefixCache::put_snapshot(Block& block, WindowSnapshot snapshot) {
    const auto bytes = static_cast<std::int64_t>(snapshot.rows.size());
    if (!wants_snapshots(bytes)) return;
    while (counted_.snapshot_bytes + bytes > options_.snapshot_bytes_max)
        forget_snapshot(*aged_.front());
    counted_.snapshot_bytes += bytes;
    block.snapshot_ = std::move(snapshot);
    block.snapshot_was_used_ = false;
    block.snapshot_used_us_ = clock_.now_us();
    block.aged_ = aged_.insert(aged_.end(), &block);
}

void PrefixCache::drop_unused_snapshot(Block& block) {
    if (block.snapshot_ && !block.snapshot_was_used_) forget_snapshot(block);
}

void PrefixCache::expire() {
    const std::int64_t now_us = clock_.now_us();
    while (!aged_.empty() && now_us - aged_.front()->snapshot_used_us_ >= options_.snapshot_life_us)
        forget_snapshot(*aged_.front());
    if (options_.windows == nullptr || now_us - windows_expired_us_ < kWindowsExpireUs) return;
    windows_expired_us_ = now_us;
    options_.windows->expire();
}

void PrefixCache::forget_snapshot(Block& block) {
    counted_.snapshot_bytes -= static_cast<std::int64_t>(block.snapshot_->rows.size());
    ++counted_.snapshot_evictions;
    // Windows say what was asked; nothing of them stays in memory that is given to others.
    ::explicit_bzero(block.snapshot_->rows.data(), block.snapshot_->rows.size());
    block.snapshot_.reset();
    aged_.erase(block.aged_);
}

void PrefixCache::count_query(std::int64_t prompt_tokens, std::int64_t cached_tokens, bool snapshot,
                              bool replay) {
    counted_.query_tokens += static_cast<std::uint64_t>(prompt_tokens);
    counted_.hit_tokens += static_cast<std::uint64_t>(cached_tokens);
    counted_.snapshot_hits += snapshot ? 1 : 0;
    counted_.replays += replay ? 1 : 0;
}

PrefixCacheStats PrefixCache::stats() const {
    PrefixCacheStats stats = counted_;
    stats.blocks = static_cast<std::int64_t>(blocks_.size());
    stats.idle_blocks = static_cast<std::int64_t>(idle_.size());
    stats.snapshots = static_cast<std::int64_t>(aged_.size());
    return stats;
}

}  // namespace fathom
