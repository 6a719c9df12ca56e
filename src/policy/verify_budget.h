// How many drafts to verify, and whose (dspark.md 3). A step verifies, beside one row of every
// request, some of the drafts of some requests; each costs a row and brings a token with a
// probability that the drafter's confidence head foretells:
//
//   survival a[r][k]   draft k of request r is accepted, and all before it: falls along a row
//   tokens   τ = R + Σ a over the verified         rate Θ = τ / T(rows), T any table of times
//
// For a fixed number of drafts the largest survivals are the best choice, and since they fall along
// a row they are always whole beginnings. So the optimum over all (γ+1)^R choices is one walk over
// the sorted survivals. Tables are staircases, where a walk that stops at the first fall is
// trapped; this one goes to the end.
//
//   block t−2   survivals ──choose──▶ K, how many          (a delay keeps the choice lossless:
//   block t−1   survivals ──allocate(K)──▶ lengths          no draft decides on its own test)
//
// A budget that is followed by an allocation from the same old block is `stale lengths`: simpler,
// and nearly all of the gain is gone. All numbers that decide are those of the deployed engine
// (32-bit sums, 64-bit times), so a tie falls as it does there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/verify_cost.h"

namespace fathom {

inline constexpr std::int64_t kDraftsMax = 64;

// The requests of one rank. Survivals that are no number count as 0, those above 1 as 1, and one
// above its predecessor as that.
struct VerifyBatch {
    std::int64_t requests = 0;
    std::int64_t drafts = 0;                  // columns, <= kDraftsMax
    std::span<const float> survivals;         // requests × drafts, row by row
    std::span<const std::int32_t> caps = {};  // of each request, or none: all its drafts
    std::int64_t other_rows = 0;  // of the same step, which bring no token (prompt chunks)
    float survival_floor = 0;     // less is not worth choosing a budget for

    std::int64_t rows_min() const { return other_rows + requests; }
    std::int64_t cap(std::int64_t request) const;
};

struct BudgetChoice {
    std::int64_t drafts = 0;  // K
    double tokens = 0;        // expected
    double ms = 0;            // of the step; 0 without a curve
    double rate() const { return ms > 0 ? tokens / ms : 0; }
};

// K raised to what the device runs anyway: the rows between those and the size that is
// captured cost nothing. Follows from K and the shape of the batch alone, so it tells nothing about
// a block.
std::int64_t fill_run(const VerifyBatch& batch, const VerifyCost& cost, std::int64_t drafts);

// Solves for one rank, or for ranks in lock step. Keeps its memory: nothing is allocated once it
// has seen the largest batch. One owner.
class BudgetSolver {
  public:
    // The best budget from survivals that are old enough. extra_ms is added to the time of every
    // step. Where not even the first rows fit the curve: no drafts. Without a curve: all of them,
    // which is right when rows are free. O(R γ log(R γ)).
    BudgetChoice choose(const VerifyBatch& stale, const VerifyCost& cost, double extra_ms = 0);
    // The same, stopped where the rate first does not rise. Lossless even with survivals of the
    // block that is verified (its own tokens cannot move the end), but only good for smooth tables.
    BudgetChoice choose_stopping(const VerifyBatch& current, const VerifyCost& cost);

    // Gives K drafts to the largest survivals, ties by (request, draft). lengths[r] is 1 + the
    // verified drafts of r. Gives fewer than K only where the caps allow no more.
    void allocate(const VerifyBatch& current, std::int64_t budget, std::span<std::int32_t> lengths);

    // Ranks in lock step: a step takes T(rows of the fullest rank) + ms_per_row · (rows of all),
    // the second for what all share (experts). Writes a budget for each rank and returns the sum
    // with the common time; exact. The curve must have the envelope. extra_ms is added to the time
    // of every step. O(Σ R γ log + sizes · ranks · log).
    BudgetChoice choose_group(std::span<const VerifyBatch> ranks, const VerifyCost& cost,
                              double ms_per_row, std::span<std::int64_t> budgets,
                              double extra_ms = 0);

  private:
    void sort_survivals(const VerifyBatch& batch, float floor);
    BudgetChoice walk(const VerifyBatch& batch, const VerifyCost& cost, double extra_ms, bool stop);
    struct Level;  // of choose_group
    void improve(std::span<const VerifyBatch> ranks, const Level& level, BudgetChoice& best,
                 std::span<std::int64_t> budgets);

    std::vector<std::uint32_t> sorted_;  // bits of survivals, falling
    std::vector<std::uint64_t> keys_;
    // choose_group: of all ranks one after another.
    std::vector<double> ranked_, sums_;  // survivals, falling in each rank; their prefix sums
    std::vector<std::size_t> begins_;
    std::vector<std::int64_t> trial_;
};

}  // namespace fathom
