// What a device's store says of its segments, brought to the thread of its set. Not for others.
#pragma once

#include "pool/ec_core.h"

namespace fathom {

struct EcCore::Watcher : SegmentWatcher {
    Watcher(StoreThread& to, EcCore& of, int position) : thread(to), core(of), device(position) {}

    void sealed(const SealedSegment& segment) override {
        thread.post([this, segment] { core.segment_sealed(device, segment); });
    }
    void rewritten(std::uint64_t segment) override {
        thread.post([this, segment] { core.segment_changed(device, segment, true); });
    }
    void removed(std::uint64_t segment, bool dropped) override {
        thread.post([this, segment, dropped] { core.segment_removed(device, segment, dropped); });
    }
    void damaged(const BlockKey& key, std::uint64_t segment, std::uint32_t slot) override {
        thread.post([this, key, segment, slot] { core.block_damaged(device, key, segment, slot); });
    }

    StoreThread& thread;
    EcCore& core;
    const int device;
};

}  // namespace fathom
