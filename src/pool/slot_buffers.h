// Memory that direct I/O can use: 4 KiB-aligned pieces of equal size, cut from one mapping.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/huge_memory.h"
#include "pool/block_store.h"

namespace fathom {

class SlotBuffers {
  public:
    SlotBuffers(std::int64_t piece_bytes, std::int64_t pieces)
        : memory_(map_huge_memory(piece_bytes * pieces)), piece_bytes_(piece_bytes) {
        FATHOM_CHECK(memory_ != nullptr, "no memory for the buffers of a store");
    }
    std::uint8_t* piece(std::int64_t i) {
        return reinterpret_cast<std::uint8_t*>(memory_.get()) + i * piece_bytes_;
    }

  private:
    std::shared_ptr<std::byte> memory_;
    std::int64_t piece_bytes_;
};

// Whether a whole slot may be read straight to where its block is wanted.
inline bool takes_whole_slot(const BlockDestination& destination) {
    constexpr std::uintptr_t kPageMask = 4095;
    return destination.whole_slot &&
           (reinterpret_cast<std::uintptr_t>(destination.page) & kPageMask) == 0;
}

// One piece for a request that comes seldom. Shared with the completion that ends it.
inline std::shared_ptr<std::uint8_t> aligned_bytes(std::int64_t bytes) {
    constexpr std::size_t kPage = 4096;
    const auto rounded = (static_cast<std::size_t>(bytes) + kPage - 1) / kPage * kPage;
    auto* memory = static_cast<std::uint8_t*>(std::aligned_alloc(kPage, rounded));
    FATHOM_CHECK(memory != nullptr, "no memory for a buffer of a store");
    std::fill(memory, memory + rounded, std::uint8_t{0});
    return {memory, [](std::uint8_t* p) { std::free(p); }};
}

}  // namespace fathom
