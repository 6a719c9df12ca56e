// A home of window snapshots besides the blocks they belong to: memory of the node, where they
// outlive their page, and where other processes on it find them (src/pool has one). What it gives
// back is what was kept, bit for bit, or nothing.
//
// Of one thread, the engine's; calls return at once. Outlives the engine that uses it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/block_key.h"

namespace fathom {

class WindowTier {
  public:
    virtual ~WindowTier() = default;

    // A copy of the rows in front of a block's end. Others of the same block are the same bits.
    virtual void keep(const BlockKey& block, std::span<const std::uint8_t> rows) = 0;
    // Fills `rows`, which keep() was given; false: untouched.
    virtual bool recall(const BlockKey& block, std::vector<std::uint8_t>& rows) = 0;
    // Gives up what nobody used for its life. Called about once a second.
    virtual void expire() = 0;
};

}  // namespace fathom
