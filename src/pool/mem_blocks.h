// The blocks of a MemStore: a table by key and an order of expiry. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>

#include "pool/mem_store.h"

namespace fathom {

class MemBlocks {
  public:
    MemBlocks(const MemStoreOptions& options, MemStoreCounters& counters)
        : options_(options), counters_(counters) {}

    bool present(const BlockKey& key, std::int64_t now_ms);
    GetStatus read(const GetRequest& request, std::int64_t now_ms);
    // `cause` is set when the outcome is failed or full.
    PutOutcome write(const PutRequest& request, const PutOptions& options, std::int64_t now_ms,
                     Status& cause);
    void drop(const NamespaceId& ns);

  private:
    using Expiries = std::multimap<std::int64_t, BlockKey>;
    struct Block {
        BlockName name;
        std::array<std::uint8_t, 16> digest{};
        std::unique_ptr<std::uint8_t[]> bytes;
        Expiries::iterator expiry;
    };
    using Table = std::unordered_map<BlockKey, Block>;

    Table::iterator find(const BlockKey& key, std::int64_t now_ms);
    Table::iterator erase(Table::iterator at);
    bool make_room(std::int64_t now_ms);

    const MemStoreOptions options_;
    MemStoreCounters& counters_;
    Table table_;
    Expiries expiries_;
};

}  // namespace fathom
