#include "engine/prefix_lookup.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace fathom {

namespace {

constexpr std::int64_t kNone = -1;
// Windows of so many last blocks are looked for behind the cache.
constexpr std::int64_t kRecalledBlocks = 4;

// A block that was found, and the way back to the first.
struct Visit {
    PrefixCache::Block* block = nullptr;
    BlockKey key;
    std::int64_t previous = kNone;
    std::int64_t histories = 0;  // replays up to here
    bool replayed = false;       // in front of this block
};

struct Candidate {
    std::int64_t rows = std::numeric_limits<std::int64_t>::max();
    bool replay = false;
    std::int64_t histories = 0;
    std::int64_t visit = kNone;

    bool better_than(const Candidate& other) const {
        if (rows != other.rows) return rows < other.rows;
        if (replay != other.replay) return !replay;
        return histories < other.histories;
    }
};

class Search {
  public:
    Search(PrefixCache& cache, BlockChain& plain, const KeyedTokens& tokens,
           const PrefixRules& rules)
        : cache_(cache), plain_(plain), tokens_(tokens), rules_(rules) {}

    PrefixStart run() {
        const std::int64_t blocks = std::min(nameable_blocks(tokens_), rules_.prompt / kPageTokens);
        std::vector<std::int64_t> front = {kNone}, next;
        for (std::int64_t index = 1; index <= blocks && !front.empty(); ++index) {
            next.clear();
            for (const std::int64_t from : front) {
                follow(from, index, false, next);
                if (from != kNone && at(from).block->replayed_behind())
                    follow(from, index, true, next);
            }
            front.swap(next);
        }
        return result();
    }

  private:
    const Visit& at(std::int64_t visit) const { return visits_[static_cast<std::size_t>(visit)]; }

    void follow(std::int64_t from, std::int64_t index, bool replayed,
                std::vector<std::int64_t>& next) {
        if (next.size() == kHistoriesMax) return;
        const std::int64_t before = from == kNone ? 0 : at(from).histories;
        const BlockKey key = before == 0 && !replayed
                                 ? plain_.key(tokens_, index)
                                 : next_key(from == kNone ? plain_.key(tokens_, 0) : at(from).key,
                                            tokens_, index, replayed);
        PrefixCache::Block* block = cache_.find(key);
        if (block == nullptr) return;
        const auto number = static_cast<std::int64_t>(visits_.size());
        visits_.push_back({block, key, from, before + (replayed ? 1 : 0), replayed});
        next.push_back(number);
        consider(number, index * kPageTokens);
    }

    void consider(std::int64_t visit, std::int64_t hit) {
        if (hit <= kPageTokens) return;
        const std::int64_t left = rules_.prompt - hit;
        const std::int64_t histories = at(visit).histories;
        const auto offer = [&](const Candidate& candidate) {
            if (candidate.better_than(best_)) best_ = candidate;
        };
        const std::int64_t least = std::max<std::int64_t>(rules_.tail, 1);
        const bool recalls = left < least + kRecalledBlocks * kPageTokens;
        if (left >= least && (recalls ? cache_.recall_snapshot(*at(visit).block, hit)
                                      : at(visit).block->snapshot().has_value()))
            offer({.rows = left, .replay = false, .histories = histories, .visit = visit});
        if (rules_.may_replay && hit > rules_.window)
            offer({.rows = left + rules_.window,
                   .replay = true,
                   .histories = histories + 1,
                   .visit = visit});
    }

    PrefixStart result() const {
        PrefixStart start;
        if (best_.visit == kNone) return start;
        std::vector<const Visit*> path;
        for (std::int64_t visit = best_.visit; visit != kNone; visit = at(visit).previous)
            path.push_back(&at(visit));
        std::reverse(path.begin(), path.end());
        for (const Visit* visit : path) {
            if (visit->replayed) start.replays.push_back(start.tokens);
            start.blocks.push_back(visit->block);
            start.tokens += kPageTokens;
        }
        start.snapshot = !best_.replay;
        start.first_row = start.snapshot ? start.tokens : start.tokens - rules_.window;
        if (best_.replay) start.replays.push_back(start.tokens);
        return start;
    }

    PrefixCache& cache_;
    BlockChain& plain_;
    const KeyedTokens& tokens_;
    const PrefixRules& rules_;
    std::vector<Visit> visits_;
    Candidate best_;
};

}  // namespace

PrefixStart find_prefix(PrefixCache& cache, BlockChain& plain, const KeyedTokens& tokens,
                        const PrefixRules& rules) {
    return Search(cache, plain, tokens, rules).run();
}

PrefixStart find_start(PrefixCache& cache, BlockChain& chain, const KeyedTokens& tokens,
                       std::int64_t window, std::int64_t decoder_floor) {
    const std::vector<std::int64_t>& replays = chain.replays();
    const std::int64_t last = std::max(decoder_floor, replays.empty() ? 0 : replays.back());
    const std::int64_t blocks = std::min(nameable_blocks(tokens), last / kPageTokens);
    PrefixStart best{.replays = replays, .blocks = {}};
    std::vector<PrefixCache::Block*> found;
    for (std::int64_t index = 1; index <= blocks; ++index) {
        PrefixCache::Block* block = cache.find(chain.key(tokens, index));
        if (block == nullptr) break;
        found.push_back(block);
        const std::int64_t hit = index * kPageTokens;
        if (hit <= kPageTokens) continue;
        const bool replay = chain.replayed_before(index + 1);
        const bool recalls = hit <= decoder_floor && last - hit < kRecalledBlocks * kPageTokens;
        const bool snapshot =
            recalls ? cache.recall_snapshot(*block, hit) : block->snapshot().has_value();
        if (replay || (hit <= decoder_floor && snapshot)) {
            best.tokens = hit;
            best.snapshot = !replay;
            best.first_row = replay ? hit - window : hit;
        }
    }
    found.resize(static_cast<std::size_t>(best.tokens / kPageTokens));
    best.blocks = std::move(found);
    return best;
}

}  // namespace fathom
