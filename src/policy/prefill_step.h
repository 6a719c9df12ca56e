// What an engine's ranks run in their next prefill step (serving.md 2.1.4). All ranks wait for the
// slowest, so a step is cut where it pays for all of them: with w_r the work that rank r has, at
// most τ, the budget is
//
//   B* = argmax over B in {w_r} ∪ {τ}, B >= 0.2 τ, of  Σ_r min(w_r, B) / (fixed + B)
//
//   rank 0  ████████████▏···   a rank with a long prompt does not keep the others
//   rank 1  ███████████ ▏      waiting for its whole τ when they have little to do:
//   rank 2  ██████████  ▏      its next slice is cut at B*
//                       B*  τ
//
// Within a rank those prompts that can finish go first, shortest first, but a quarter of the
// budget is the oldest prompt's, so that it gets on whatever else comes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/prefill_cost.h"

namespace fathom {

// B*; the smallest one where several are as good, and tau_us when nobody has work. `work_us` is
// sorted and cut at tau_us on return.
double step_budget_us(std::span<double> work_us, double tau_us, double fixed_us);

// A granted request on its rank.
struct PrefillJob {
    std::uint64_t id = 0;
    std::size_t length_class = 0;
    PrefillRest rest;
};
struct PlannedSlice {
    std::size_t rank = 0;
    std::size_t job = 0;  // index in its rank's jobs
    std::int64_t tokens = 0;
};
struct PrefillStep {
    double budget_us = 0;
    std::vector<PlannedSlice> slices;
    std::vector<double> rank_us;  // predicted, one a rank
};

// Keeps its memory between steps. Owned by the engine's thread.
class PrefillStepPlanner {
  public:
    // One list of jobs a rank, oldest first. is_adaptive off: the budget is always tau_us. The
    // result is valid until the next call.
    const PrefillStep& plan(const PrefillCosts& costs, double tau_us,
                            std::span<const std::vector<PrefillJob>> ranks,
                            bool is_adaptive = true);

  private:
    void pack(const PrefillCosts& costs, std::size_t rank, std::span<const PrefillJob> jobs);
    bool take(const PrefillCosts& costs, std::size_t rank, std::span<const PrefillJob> jobs,
              std::size_t job, double budget_us, bool must_finish);

    PrefillStep step_;
    std::vector<double> work_us_;
    std::vector<std::size_t> order_;
    std::int64_t tokens_left_ = 0;
};

}  // namespace fathom
