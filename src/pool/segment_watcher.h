// What an embedded store tells of its segments to who protects them (ec_store.h). Called on the
// store's thread, in the order in which things happen; must be quick and must not call the store.
// Outlives the store.
#pragma once

#include <cstdint>

#include "base/block_key.h"
#include "base/traffic_class.h"

namespace fathom {

struct SealedSegment {
    std::uint64_t id = 0;
    TrafficClass traffic_class = TrafficClass::agent;
    std::int64_t bucket_start_ms = 0, expiry_ms = 0;
    std::uint32_t slots = 0;  // up to the last one that has a block
};

class SegmentWatcher {
  public:
    virtual ~SegmentWatcher() = default;
    // Its bytes are durable and stay as they are from here on. Also of segments that are found
    // sealed when the pool is opened, before open() returns.
    virtual void sealed(const SealedSegment& segment) = 0;
    // A sealed segment: blocks were wiped from it, by a drop of their namespace; or it goes, for
    // that reason or because of age or space.
    virtual void rewritten(std::uint64_t segment) = 0;
    virtual void removed(std::uint64_t segment, bool dropped) = 0;
    // A slot could not be read or was not the block that it should be. It is not found any more;
    // the answer of the call that met it comes later than this.
    virtual void damaged(const BlockKey& key, std::uint64_t segment, std::uint32_t slot) = 0;
};

}  // namespace fathom
