// Where blocks lie, in memory: the first 16 bytes of a key to segment and slot, 24 bytes an entry
// (kvpool.md 5.2). It is rebuilt from the segments when a pool is opened, so it may forget and
// never needs to be stored.
//
// 256 shards by key, each a table with linear probing that grows by half, so that a block takes 27
// to 42 bytes and growing moves one shard only. Of one owner thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/block_key.h"

namespace fathom {

struct BlockPlace {
    std::uint32_t segment = 0;  // the owner's handle of a segment, not its id
    std::uint16_t slot = 0;
    std::uint16_t flags = 0;  // the owner's
    friend bool operator==(const BlockPlace&, const BlockPlace&) = default;
};

class BlockIndex {
  public:
    static constexpr std::size_t kShards = 256;

    BlockIndex() = default;
    BlockIndex(const BlockIndex&) = delete;
    BlockIndex& operator=(const BlockIndex&) = delete;

    std::optional<BlockPlace> find(const BlockKey& key) const;
    // Inserts, or replaces what the key had.
    void put(const BlockKey& key, const BlockPlace& place);
    bool erase(const BlockKey& key);
    // Erases only if the key still leads to `place`.
    bool erase_if_at(const BlockKey& key, const BlockPlace& place);

    // Erases what `dying` says of one shard; to remove segments, go through all shards, some at a
    // time.
    std::size_t sweep(std::size_t shard, const std::function<bool(const BlockPlace&)>& dying);

    std::size_t size() const { return size_; }
    std::size_t shard_size(std::size_t shard) const { return shards_[shard].used; }
    std::size_t memory_bytes() const;

  private:
    struct Entry {
        std::uint64_t low = 0, high = 0;  // of the key
        std::uint32_t segment = 0;
        std::uint16_t slot = 0;
        std::uint16_t flags = 0;  // with kUsed
    };
    static_assert(sizeof(Entry) == 24);
    struct Shard {
        std::unique_ptr<Entry[]> entries;
        std::size_t capacity = 0, used = 0;
    };
    static constexpr std::uint16_t kUsed = 0x8000;
    static constexpr std::size_t kNone = ~std::size_t{0};
    struct Probe {
        std::uint64_t low = 0, high = 0, hash = 0;
    };

    static Probe probe_of(const BlockKey& key);
    static std::uint64_t hash_of(std::uint64_t low, std::uint64_t high);
    static std::size_t shard_of(std::uint64_t hash) { return hash & (kShards - 1); }
    static std::size_t home(const Shard& shard, std::uint64_t hash);
    static std::size_t locate(const Shard& shard, const Probe& probe);
    static void insert_new(Shard& shard, const Entry& entry, std::uint64_t hash);
    static void remove_at(Shard& shard, std::size_t at);
    static void grow(Shard& shard);

    std::array<Shard, kShards> shards_;
    std::size_t size_ = 0;
};

}  // namespace fathom
