// Load on a store: calls of one block each, so many at a time, the end of each starting the next.
// What measurements of stores share.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "base/queue.h"
#include "base/result.h"
#include "pool/block_store.h"

namespace fathom {

// The same block for the same number, and one of its own for each.
BlockName numbered_block(std::int64_t number);

// One thread calls it. At most kDepthMax calls at a time.
class BlockDriver {
  public:
    static constexpr int kDepthMax = 32;

    // The store outlives it; `slot_bytes` is what a page has room for, a multiple of 4096.
    BlockDriver(BlockStore& store, std::int64_t slot_bytes);

    // Seconds for `n` calls, `depth` of them at a time. An error when the store does not answer, or
    // when a block is no hit, or is not stored. Gets choose among the names at random, by `seed`;
    // puts take names[first] and on.
    Result<double> gets(const std::vector<BlockName>& names, std::int64_t n, int depth,
                        std::uint64_t seed);
    Result<double> puts(const std::vector<BlockName>& names, std::int64_t first, std::int64_t n,
                        int depth);

  private:
    struct Free {
        void operator()(std::uint8_t* memory) const { std::free(memory); }
    };
    using Start = std::function<void(std::int64_t i, std::size_t page)>;

    Result<double> run(std::int64_t n, int depth, Start start);
    void end_one(std::size_t page);  // on the store's thread

    BlockStore& store_;
    std::vector<std::unique_ptr<std::uint8_t, Free>> pages_;
    Start start_;
    std::int64_t calls_ = 0;
    std::atomic<std::int64_t> started_{0}, ended_calls_{0}, bad_{0};
    BoundedQueue<bool> ended_;
};

}  // namespace fathom
