// Tells right bytes from wrong ones without a model: the payload of a block is a pseudo-random
// function of its key and of the writer who put it, and says which writer that was. Also what a
// store may, must and must not hold. Thread safe where said.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pool/block_store.h"

namespace fathom::testing {

// The payload that `writer` (below 2^63) puts under `key`. Needs at least 8 bytes. Any thread.
std::vector<std::uint8_t> oracle_payload(const BlockKey& key, std::uint64_t writer,
                                         std::int64_t payload_bytes);
// Whose payload this is; nothing when it is nobody's, in any byte. Any thread.
std::optional<std::uint64_t> payload_writer(const BlockKey& key,
                                            std::span<const std::uint8_t> payload);

// The name of block `number` of chain `chain`, everything in it made from these and the namespace.
BlockName oracle_name(std::uint64_t chain, std::uint32_t number, std::uint64_t ns = 0);
NamespaceId oracle_namespace(std::uint64_t ns);

// What a store may hold, as follows from what it answered. One thread.
class ContentOracle {
  public:
    // A put of this writer's payload ended so.
    void put(const BlockName& name, std::uint64_t writer, PutOutcome outcome);
    // Everything of the namespace was dropped, or: this block's life is over.
    void dropped(const NamespaceId& ns);
    void expired(const BlockName& name);
    // From here on a block that was there may have gone: a crash, or no room.
    void may_have_lost();
    void may_have_lost(const BlockName& name);

    // What is wrong with a read of `name` that ended so; empty when nothing is.
    std::string check(const BlockName& name, GetStatus status,
                      std::span<const std::uint8_t> payload) const;

  private:
    struct Known {
        NamespaceId ns;
        std::vector<std::uint64_t> writers;  // whose bytes it may be
        bool must = false, must_not = false;
    };
    std::map<Sha256Digest, Known> known_;
};

}  // namespace fathom::testing
