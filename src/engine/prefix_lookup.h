// Where a run may begin, given what the cache holds. Changes nothing there but that windows near
// the end of what can be found are recalled from the tier behind it (window_tier.h).
//
// A hit of H tokens (full blocks) saves rows in one of two ways (model.md 8.3):
//   snapshot  the windows at H are there: continue at row H. The bits of the run are those of the
//             run that left the pages. Only where at least `tail` prompt rows follow, since the
//             decoder's tail must be encoded.
//   replay    rows [H − window, H) are run again for their windows: begin at H − window, and the
//             replay becomes part of the run's history (Anchors::replays).
// The way with the fewest rows is taken, among equals a snapshot, then the shorter history. A hit
// of one block is left: it saves next to nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/block_key.h"
#include "engine/prefix_cache.h"

namespace fathom {

struct PrefixStart {
    std::int64_t tokens = 0;  // the hit: pages of [0, tokens) are there
    std::int64_t first_row = 0;
    bool snapshot = false;  // of the windows at `tokens`; else a hit begins with a replay there
    std::vector<std::int64_t> replays;        // of the whole run
    std::vector<PrefixCache::Block*> blocks;  // tokens / 128; used by nobody yet
};

struct PrefixRules {
    std::int64_t prompt = 0;  // its length
    std::int64_t window = 0;
    std::int64_t tail = 0;  // rows that must follow a snapshot
    bool may_replay = false;
};

// The start that saves most. `plain` is the chain of a run without replays; `tokens` begin with the
// prompt. At most kHistoriesMax histories of equal tokens are followed.
inline constexpr std::size_t kHistoriesMax = 4;
PrefixStart find_prefix(PrefixCache& cache, BlockChain& plain, const KeyedTokens& tokens,
                        const PrefixRules& rules);

// The latest start of a run whose history is given (chain.replays()) that repeats it bit for bit:
// rows from decoder_floor on always run. It begins behind a snapshot, with one of its replays, or
// at row 0.
PrefixStart find_start(PrefixCache& cache, BlockChain& chain, const KeyedTokens& tokens,
                       std::int64_t window, std::int64_t decoder_floor);

}  // namespace fathom
