// Fetches a request's beginning from the tier (block_tier.h) into the prefix cache before the
// request starts, while others compute:
//
//   arrival ─ find ─> how many blocks of its chain the tier has ─ pages ─ load ─> blocks in the
//   cache, held until the request has started. Then the request is like any other.
//
// Which blocks: those of a run without replays as far as they go; behind their end, those that a
// run with a replay there left, and so on (Anchors::replays). A request that names its replays gets
// that run's blocks. Runs that may begin only behind a window snapshot are not waited for: a tier
// keeps no windows.
//
// Pages that are held for requests that have not started are bounded by half of the arena, unless
// one alone holds them, and given back when a step could not be planned for want of pages. A page
// that a load gave up stays taken until the tier releases it.
//
// One thread, the engine's. Callbacks of the tier go through a queue, and end the engine's wait.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/queue.h"
#include "engine/block_tier.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"

namespace fathom {

class BlockLoader {
  public:
    // `jobs_max` sequences at a time; cost per prompt row in microseconds, 0 when unknown. The
    // registry, which outlives the loader, may be null.
    BlockLoader(BlockTier& tier, PrefixCache& cache, const Clock& clock, const TierBudget& budget,
                double row_cost_us, std::int64_t jobs_max, MetricsRegistry* metrics);
    ~BlockLoader();  // waits until the tier has called back and released every page
    BlockLoader(const BlockLoader&) = delete;
    BlockLoader& operator=(const BlockLoader&) = delete;

    void set_waker(std::function<void()> wake);  // any thread will call it; before begin()

    // A sequence that has arrived. Sets its `loading` when it has something to wait for.
    void begin(Sequence& sequence);
    // It ended: what was held for it is given back, now or when the tier lets go.
    void forget(const Sequence& sequence);

    // Takes in what came; true when a sequence has stopped loading.
    bool poll();
    // poll() after waiting at most timeout_us for something to come.
    bool wait(std::int64_t timeout_us);
    bool loading() const { return loading_ > 0; }
    // Blocks of sequences that have started need no holding.
    void release_started();
    // All that is held for those that have not.
    bool give_back();

  private:
    struct Message {
        std::uint64_t job = 0;
        enum class Kind { found, loaded, released } kind = Kind::found;
        TierFound found;
        TierLoaded loaded;
    };
    struct Inbox;
    struct Counters;
    struct Slot {  // a block of the beginning
        BlockKey key;
        bool replayed = false;
        PrefixCache::Block* block = nullptr;  // held
        std::int64_t load_index = -1;         // among the pages that are loaded
    };
    struct Job {
        Sequence* sequence = nullptr;      // null once forgotten
        std::vector<Slot> found;           // blocks that are there, from the first on
        std::vector<BlockKey> asked;       // behind them, as asked for
        bool asked_replayed = false;       // the first of `asked` follows a replay
        bool probing = false;              // `asked` is one key to try a history
        bool one_history = false;          // the request names its replays
        std::int64_t limit = 0;            // blocks
        TierLoss loss = TierLoss::absent;  // why the last answer had no more
        int histories = 0;
        std::int64_t deadline_us = 0;  // of finding, then of loading
        std::vector<PageId> pages;     // being loaded
        std::function<void()> cancel;  // the load
        int calls_due = 0;             // callbacks of the tier that have not run
        bool done = false;             // nothing more will be found or loaded
    };

    void ask(std::uint64_t id, Job& job);
    void on_found(std::uint64_t id, Job& job, const TierFound& answer);
    void try_history(std::uint64_t id, Job& job);
    void start_load(std::uint64_t id, Job& job);
    void on_loaded(Job& job, const TierLoaded& loaded);
    void count_load(const Job& job, std::size_t leading);
    void finish(Job& job);
    void leave_blocks(Job& job, std::size_t keep = 0);
    void drop_if_over(std::uint64_t id);
    bool handle(Message message);
    std::int64_t load_budget_us(std::int64_t blocks) const;

    BlockTier& tier_;
    PrefixCache& cache_;
    const Clock& clock_;
    const TierBudget budget_;
    const double row_cost_us_;
    const std::int64_t jobs_max_;
    std::shared_ptr<Inbox> inbox_;
    const std::unique_ptr<Counters> counters_;
    std::map<std::uint64_t, Job> jobs_;                // by number, oldest first
    std::map<std::uint64_t, std::uint64_t> by_order_;  // of sequences that are not forgotten
    std::uint64_t next_job_ = 0;
    std::int64_t loading_ = 0;  // sequences that wait
    std::int64_t held_pages_ = 0;
};

}  // namespace fathom
