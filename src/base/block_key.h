// The name of a block of 128 tokens of computed KV: 32 bytes, a chained SHA-256 (kvpool.md 4). What
// goes into it is engine/block_key.h's; to everything else it is just bytes that are equal or not.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>

#include "base/sha256.h"

namespace fathom {

struct BlockKey {
    Sha256Digest bytes{};
    friend bool operator==(const BlockKey&, const BlockKey&) = default;
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
