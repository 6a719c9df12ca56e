#include "pool/block_index.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fathom {

namespace {

constexpr std::size_t kFirstCapacity = 16;

// At most 7 of 8 entries are used: probes stay short, and there is always an end to them.
bool too_full(std::size_t used, std::size_t capacity) {
    return used * 8 >= capacity * 7;
}

}  // namespace

// Keys are digests, but whoever asks may send anything, so they are mixed before they choose a
// place (the finalizer of MurmurHash3).
std::uint64_t BlockIndex::hash_of(std::uint64_t low, std::uint64_t high) {
    std::uint64_t h = low ^ (high * 0x9e3779b97f4a7c15U);
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdU;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53U;
    return h ^ (h >> 33);
}

BlockIndex::Probe BlockIndex::probe_of(const BlockKey& key) {
    Probe probe;
    std::memcpy(&probe.low, key.bytes.data(), 8);
    std::memcpy(&probe.high, key.bytes.data() + 8, 8);
    probe.hash = hash_of(probe.low, probe.high);
    return probe;
}

std::size_t BlockIndex::home(const Shard& shard, std::uint64_t hash) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::size_t>(static_cast<Wide>(hash) * shard.capacity >> 64);
}

std::size_t BlockIndex::locate(const Shard& shard, const Probe& probe) {
    if (shard.used == 0) return kNone;
    for (std::size_t at = home(shard, probe.hash);; at = at + 1 == shard.capacity ? 0 : at + 1) {
        const Entry& entry = shard.entries[at];
        if ((entry.flags & kUsed) == 0) return kNone;
        if (entry.low == probe.low && entry.high == probe.high) return at;
    }
}

std::optional<BlockPlace> BlockIndex::find(const BlockKey& key) const {
    const Probe probe = probe_of(key);
    const Shard& shard = shards_[shard_of(probe.hash)];
    const std::size_t at = locate(shard, probe);
    if (at == kNone) return std::nullopt;
    const Entry& entry = shard.entries[at];
    return BlockPlace{entry.segment, entry.slot, static_cast<std::uint16_t>(entry.flags & ~kUsed)};
}

void BlockIndex::insert_new(Shard& shard, const Entry& entry, std::uint64_t hash) {
    std::size_t at = home(shard, hash);
    while ((shard.entries[at].flags & kUsed) != 0)
        at = at + 1 == shard.capacity ? 0 : at + 1;
    shard.entries[at] = entry;
    ++shard.used;
}

void BlockIndex::grow(Shard& shard) {
    Shard larger;
    larger.capacity = std::max(kFirstCapacity, shard.capacity + shard.capacity / 2);
    larger.entries = std::make_unique<Entry[]>(larger.capacity);
    for (std::size_t i = 0; i < shard.capacity; ++i) {
        const Entry& entry = shard.entries[i];
        if ((entry.flags & kUsed) != 0) insert_new(larger, entry, hash_of(entry.low, entry.high));
    }
    shard = std::move(larger);
}

void BlockIndex::put(const BlockKey& key, const BlockPlace& place) {
    const Probe probe = probe_of(key);
    Shard& shard = shards_[shard_of(probe.hash)];
    const Entry entry{probe.low, probe.high, place.segment, place.slot,
                      static_cast<std::uint16_t>(place.flags | kUsed)};
    if (const std::size_t at = locate(shard, probe); at != kNone) {
        shard.entries[at] = entry;
        return;
    }
    if (too_full(shard.used + 1, shard.capacity)) grow(shard);
    insert_new(shard, entry, probe.hash);
    ++size_;
}

// Closes the gap: what follows without a hole and may lie at the gap moves there.
void BlockIndex::remove_at(Shard& shard, std::size_t gap) {
    const std::size_t capacity = shard.capacity;
    for (std::size_t at = gap;;) {
        at = at + 1 == capacity ? 0 : at + 1;
        const Entry& entry = shard.entries[at];
        if ((entry.flags & kUsed) == 0) break;
        const std::size_t wanted = home(shard, hash_of(entry.low, entry.high));
        const std::size_t from_wanted = at >= wanted ? at - wanted : at + capacity - wanted;
        const std::size_t from_gap = at >= gap ? at - gap : at + capacity - gap;
        if (from_wanted < from_gap) continue;
        shard.entries[gap] = entry;
        gap = at;
    }
    shard.entries[gap] = Entry{};
    --shard.used;
}

bool BlockIndex::erase(const BlockKey& key) {
    const Probe probe = probe_of(key);
    Shard& shard = shards_[shard_of(probe.hash)];
    const std::size_t at = locate(shard, probe);
    if (at == kNone) return false;
    remove_at(shard, at);
    --size_;
    return true;
}

bool BlockIndex::erase_if_at(const BlockKey& key, const BlockPlace& place) {
    const auto found = find(key);
    if (!found || found->segment != place.segment || found->slot != place.slot) return false;
    return erase(key);
}

std::size_t BlockIndex::sweep(std::size_t shard_number,
                              const std::function<bool(const BlockPlace&)>& dying) {
    Shard& shard = shards_[shard_number];
    std::size_t erased = 0;
    for (std::size_t at = 0; at < shard.capacity;) {
        const Entry& entry = shard.entries[at];
        const bool goes =
            (entry.flags & kUsed) != 0 &&
            dying({entry.segment, entry.slot, static_cast<std::uint16_t>(entry.flags & ~kUsed)});
        if (!goes) {
            ++at;
            continue;
        }
        remove_at(shard, at);  // something else may lie here now
        ++erased;
    }
    size_ -= erased;
    return erased;
}

std::size_t BlockIndex::memory_bytes() const {
    std::size_t bytes = sizeof(*this);
    for (const Shard& shard : shards_)
        bytes += shard.capacity * sizeof(Entry);
    return bytes;
}

}  // namespace fathom
