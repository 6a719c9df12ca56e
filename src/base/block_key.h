// Names of computed KV: a block of 128 tokens goes by 32 bytes, a chained SHA-256 (kvpool.md 4).
// What goes into it is engine/block_key.h's; to everything else it is just bytes that are equal or
// not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "base/sha256.h"

namespace fathom {

struct BlockKey {
    Sha256Digest bytes{};
    friend bool operator==(const BlockKey&, const BlockKey&) = default;
};

// The tenant and everything that decides what KV means, in one secret-keyed digest (kvpool.md 4).
struct NamespaceId {
    Sha256Digest bytes{};
    friend bool operator==(const NamespaceId&, const NamespaceId&) = default;
};

// What must agree before a stored block is believed. `mac` proves the tokens to who knows the
// namespace: a reader that gives another one than the writer gets a miss, counted as collision.
struct BlockName {
    BlockKey key;
    BlockKey parent;
    NamespaceId ns;
    std::array<std::uint8_t, 16> token_mac{};
    std::uint32_t ordinal = 0;  // in its chain, from 1
    friend bool operator==(const BlockName&, const BlockName&) = default;
};

}  // namespace fathom

template <>
struct std::hash<fathom::BlockKey> {
    std::size_t operator()(const fathom::BlockKey& key) const {
        std::size_t value = 0;
        std::memcpy(&value, key.bytes.data(), sizeof(value));
        return value;
    }
};
