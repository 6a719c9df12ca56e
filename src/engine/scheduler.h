// Which rows the next step runs, and who holds pages for them. Requests are kept in order of
// arrival, running or not; a preempted one keeps its place. A plan is made like this:
//
//   1. Every decoding sequence, oldest first, gets one row (as far as step_tokens_max goes). If it
//      needs a page and none is free, the youngest running sequence behind it is preempted; without
//      one it waits this step.
//   2. Prompts (and teacher-forced outputs) share what is left of the step's time by the cost model
//      (policy/share.h; at least kPromptShare of the budget, so that decoding never starves them),
//      and of its rows. Chunks end at block boundaries, where a share is less than a block at
//      multiples of kChunkPart. The prompt that needs least gets as much in any case; the oldest
//      that cannot end saves its shares until they suffice. Oldest first they then take pages, a
//      new request also one of the sequences_max places. A chunk shrinks to the pages it can get.
//      Who gets none is passed by those behind it, but at most kPassesMax times: then nobody behind
//      it takes pages until it has run.
//   3. If nothing was planned although requests are there, they stand in each other's way: the
//      youngest running sequence is preempted, and when none is left the youngest waiting choice
//      gives up the prompt that was computed for it (fork.h), until the oldest request can run.
//      While a request's blocks are being loaded (block_loader.h) the step is rather left out.
//
// A plan may be made while the step before it computes: it then holds what will be right when that
// step has retired and ended nobody (sequence.h). Sequences in flight are never preempted; where
// the rules above ask for that, the plan is marked incomplete and has to be made again.
//
// A preempted sequence returns only when the pages it had (and one more) are free, or nothing else
// runs: otherwise it would be preempted again at once. So the oldest request always gets on, and
// everything behind it becomes the oldest in time. Pages come from the PrefixCache: those of blocks
// that nobody uses are as good as free.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/prefix_cache.h"
#include "engine/sequence.h"
#include "engine/types.h"
#include "policy/cost_model.h"

namespace fathom {

inline constexpr std::int64_t kPassesMax = 32;
inline constexpr double kPromptShare = 0.25;
inline constexpr std::int64_t kChunkPart = 32;  // divides a block

struct StepWork {
    Sequence* sequence = nullptr;
    std::int64_t count = 0;  // rows from sequence->rows_done()
};

struct StepPlan {
    std::vector<StepWork> work;
    // A sequence in flight stood in the way: plan again when its step has retired.
    bool incomplete = false;
    double cost_us = 0;          // predicted with scale 1; 0 without a cost model
    Sequence* passed = nullptr;  // got no page while younger ones did
};

class Scheduler {
  public:
    Scheduler(const EngineConfig& config, const ModelShape& shape, PrefixCache& cache);

    void add(std::unique_ptr<Sequence> sequence);                // its id is not in use
    Sequence* find(std::uint64_t id) const;                      // nullptr when unknown
    std::unique_ptr<Sequence> remove(const Sequence& sequence);  // its pages are given back

    // Valid until the next call that changes the scheduler. Planning again in the same state gives
    // the same plan.
    const StepPlan& plan();
    const StepPlan& last_plan() const { return plan_; }
    // The plan is about to run: counts who was passed.
    void commit();

    void set_cost_scale(double scale) { cost_.scale = scale; }

    // Every request in order of arrival. The map must not be changed meanwhile.
    const std::map<std::uint64_t, std::unique_ptr<Sequence>>& sequences() const {
        return sequences_;
    }
    bool empty() const { return sequences_.empty(); }
    std::int64_t running() const { return running_; }
    std::int64_t waiting() const { return static_cast<std::int64_t>(sequences_.size()) - running_; }
    std::uint64_t preemptions() const { return preemptions_; }

  private:
    void begin_plan();
    void plan_decoding();
    void plan_prompts();
    struct Chunk {
        Sequence* sequence = nullptr;
        std::int64_t rows = 0;  // what its share of the step allows
        std::int64_t smallest = 0;
    };
    // Who came first and got no page, and whether others did.
    struct PageQueue {
        Sequence* blocked = nullptr;
        bool passed = false;
    };
    std::vector<double> prompt_needs(std::span<Sequence* const> prompts, const CostModel& per_slice,
                                     std::int64_t rows_max) const;
    std::vector<Chunk> share_step();
    std::vector<Sequence*> prompts_that_may_run();
    void plan_chunk(Sequence& sequence, std::int64_t rows, PageQueue& queue);
    std::int64_t plan_prompt_rows(Sequence& sequence, std::int64_t rows, bool may_take_pages);
    void unblock();
    bool take_back_a_fork();

    bool any_in_flight() const;
    bool may_start(const Sequence& sequence) const;  // looked up
    bool take_page(Sequence& sequence);
    void preempt(Sequence& sequence);
    Sequence* youngest_running_behind(const Sequence& sequence) const;

    const EngineConfig config_;
    const ModelShape shape_;
    CostModel cost_;  // in rows when none is known
    double budget_us_ = 0;
    std::int64_t align_ = 1;
    PrefixCache& cache_;
    std::map<std::uint64_t, std::unique_ptr<Sequence>> sequences_;  // by order of arrival
    std::map<std::uint64_t, Sequence*> by_id_;
    std::int64_t running_ = 0;
    std::uint64_t preemptions_ = 0;
    // Time that the oldest prompt was to have and that was too little for a chunk, since it ran.
    double owed_us_ = 0;

    StepPlan plan_;
    double plan_owed_us_ = 0;  // when the plan is committed
    StepFeatures step_;        // of what is planned so far
    std::int64_t rows_left_ = 0;
};

}  // namespace fathom
