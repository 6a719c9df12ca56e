#include "pool/mem_blocks.h"

#include <cstring>

#include "pool/class_life.h"

namespace fathom {

MemBlocks::Table::iterator MemBlocks::erase(Table::iterator at) {
    expiries_.erase(at->second.expiry);
    return table_.erase(at);
}

MemBlocks::Table::iterator MemBlocks::find(const BlockKey& key, std::int64_t now_ms) {
    const auto at = table_.find(key);
    if (at == table_.end() || at->second.expiry->first > now_ms) return at;
    counters_.expired.add();
    erase(at);
    return table_.end();
}

bool MemBlocks::present(const BlockKey& key, std::int64_t now_ms) {
    return find(key, now_ms) != table_.end();
}

GetStatus MemBlocks::read(const GetRequest& request, std::int64_t now_ms) {
    const auto at = find(request.name.key, now_ms);
    if (at == table_.end()) return GetStatus::miss;
    const Block& block = at->second;
    if (block.name != request.name) {
        counters_.collisions.add();
        return GetStatus::miss;
    }
    std::uint8_t* page = request.destination.page;
    std::memcpy(page, block.bytes.get(), static_cast<std::size_t>(options_.payload_bytes));
    if (payload_digest(page, options_.payload_bytes) == block.digest) return GetStatus::hit;
    counters_.corrupt.add();
    erase(at);
    return GetStatus::corrupt;
}

PutOutcome MemBlocks::write(const PutRequest& request, const PutOptions& options,
                            std::int64_t now_ms, Status& cause) {
    const ClassLife& life = class_life(options.traffic_class);
    const std::int64_t expiry_ms = bucket_expiry_ms(life, bucket_start_ms(life, now_ms));
    if (const auto at = find(request.name.key, now_ms); at != table_.end()) {
        Block& block = at->second;
        if (block.name != request.name) counters_.collisions.add();
        if (block.expiry->first - now_ms >= options.renew_before_ms ||
            block.expiry->first >= expiry_ms)
            return PutOutcome::exists;
        expiries_.erase(block.expiry);
        block.expiry = expiries_.emplace(expiry_ms, request.name.key);
        return PutOutcome::renewed;
    }
    if (!make_room(now_ms)) {
        cause = error(StatusCode::resource_exhausted,
                      "the pool in memory has no room for a block of {} bytes; raise its capacity "
                      "of {} bytes",
                      options_.payload_bytes, options_.capacity_bytes);
        return PutOutcome::full;
    }
    const auto bytes = static_cast<std::size_t>(options_.payload_bytes);
    Block block{.name = request.name,
                .digest = request.has_digest ? request.digest
                                             : payload_digest(request.page, options_.payload_bytes),
                .bytes = std::make_unique_for_overwrite<std::uint8_t[]>(bytes),
                .expiry = {}};
    std::memcpy(block.bytes.get(), request.page, bytes);
    if (payload_digest(block.bytes.get(), options_.payload_bytes) != block.digest) {
        cause = Status(StatusCode::data_loss,
                       "a block to be stored is not what its producer had; it was not stored, and "
                       "will be computed again");
        return PutOutcome::failed;
    }
    block.expiry = expiries_.emplace(expiry_ms, request.name.key);
    table_.emplace(request.name.key, std::move(block));
    return PutOutcome::stored;
}

// Room for one more block, by dropping those that would expire first.
bool MemBlocks::make_room(std::int64_t now_ms) {
    const auto used = [this] {
        return static_cast<std::int64_t>(table_.size() + 1) * options_.payload_bytes;
    };
    if (used() <= options_.capacity_bytes / 10 * 9) return true;
    while (!table_.empty() && used() > options_.capacity_bytes / 100 * 85) {
        const auto first = expiries_.begin();
        (first->first > now_ms ? counters_.evicted : counters_.expired).add();
        erase(table_.find(first->second));
    }
    return used() <= options_.capacity_bytes;
}

void MemBlocks::drop(const NamespaceId& ns) {
    for (auto at = table_.begin(); at != table_.end();)
        at = at->second.name.ns == ns ? erase(at) : std::next(at);
}

}  // namespace fathom
