// A larger and slower home of full pages behind the prefix cache, as an engine sees it: the KV pool
// (src/pool) is one. The engine asks and never waits: what a tier does not have, or not in time, is
// computed, and what it cannot take is dropped.
//
// All calls come from the engine's thread and return at once. Callbacks may run on any thread, and
// not inside the call. The tier outlives every engine that uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/block_key.h"
#include "base/traffic_class.h"

namespace fathom {

// What came of asking for a chain: its leading blocks that are likely there, and why there are no
// more. Only `absent` says something of the blocks behind them; after the others nobody knows.
enum class TierLoss : std::uint8_t {
    absent,    // the tier has no more
    timeout,   // it did not answer by the deadline
    io_error,  // it tried and failed
    breaker,   // it was not asked
};
inline constexpr std::size_t kTierLosses = 4;
struct TierFound {
    std::size_t blocks = 0;
    TierLoss loss = TierLoss::absent;  // means nothing when the whole chain is there
};

// What came of a load. due_unix_ms: when a block that came should be stored again (below).
struct TierLoaded {
    std::size_t leading = 0;                // blocks that came, without a hole
    std::vector<std::int64_t> due_unix_ms;  // at least `leading`
};

class BlockTier {
  public:
    virtual ~BlockTier() = default;

    // How many leading blocks of a chain are likely there. `done` runs once, at the deadline at the
    // latest.
    virtual void find(std::vector<BlockKey> chain, std::int64_t deadline_us,
                      std::function<void(TierFound found)> done) = 0;

    // Reads blocks into pages (one block's stored bytes each). `done` runs once, at the deadline at
    // the latest: the leading pages are then whole and the engine's. The others are the tier's
    // until `released` runs, once, at or after `done`. Returns what ends the load soon.
    struct LoadCalls {
        std::function<void(TierLoaded loaded)> done;
        std::function<void()> released;
    };
    virtual std::function<void()> load(std::vector<BlockName> names,
                                       std::vector<std::uint8_t*> pages, std::int64_t deadline_us,
                                       LoadCalls calls) = 0;

    // Stores a copy of the page some time later. Returns when the block should be stored again to
    // stay (by the wall clock); 0 when it was dropped, since too much is waiting to be stored.
    virtual std::int64_t persist(const BlockName& name, const std::uint8_t* page,
                                 TrafficClass traffic_class) = 0;
    // A block that persist() took and that was not stored after all, each once; nothing when there
    // is none. Whoever uses it next should give it again.
    virtual std::optional<BlockKey> next_refused() = 0;
};

// How long a request may wait for its blocks. Never longer than a quarter of what computing them
// would take, where that is known.
struct TierBudget {
    std::int64_t find_us = 1'000;
    std::int64_t load_us = 20'000;
    std::int64_t load_us_per_1k_tokens = 20'000;
};

}  // namespace fathom
