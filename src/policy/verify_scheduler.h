// What a rank does about drafts in the next step: verify some of them by the budget, all of them on
// the plain path, or none (dspark.md 3.6). The path of variable lengths costs a little by itself,
// which few rows do not earn back; and where drafts are hopeless, drafting is what does not pay.
//
//   expected rate of            scheduled ──┐                a mode changes when another has been
//   (from old survivals)        plain       ├──▶ best ──▶    the best one for `patience` decisions
//                               no drafts ──┘                in a row
//
// Without drafts nothing is learned about them, so every probe_every-th decision is a probe: one
// full block. What it showed is judged when its survivals are old enough (probe_age decisions
// later), and one such judgement is enough to go back.
//
// Ranks in lock step can decide as one: the same three ways, priced for all of them together, and
// with budgets that wait for nobody (BudgetSolver::choose_group).
//
// Everything follows from survivals that are old (verify_budget.h) and from counts, so ranks that
// see equal inputs decide equally. The deployed engine always schedules: patience 0, no floor.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/decision_log.h"
#include "policy/verify_budget.h"

namespace fathom {

enum class VerifyMode : std::uint8_t { scheduled, plain, no_drafts };

// Values are part of the format of logs: append only.
enum class VerifyReason : std::uint16_t {
    no_requests = 0,
    no_curve = 1,   // nothing is known about times: all drafts
    scheduled = 2,  // budget drafts, by allocation
    plain = 3,      // all drafts, fixed lengths: the variable path does not pay
    no_drafts = 4,  // drafting does not pay
    probe = 5,      // all drafts, to see whether drafting pays again
};

struct VerifyRules {
    double path_ms = 0;            // what variable lengths add to a step
    double draft_ms = 0;           // what drafting adds; only without drafts it is saved
    double gain_min = 0.005;       // by which scheduling must beat the plain path, 0.01: 1 %
    int patience = 8;              // decisions; 0: always schedule
    float survival_floor = 1e-6f;  // drafts below it are no candidates
    int probe_every = 64;          // decisions without drafts, >= probe_age
    int probe_age = 2;             // decisions until a probe's survivals are in the batch
};

struct VerifyDecision {
    VerifyReason reason = VerifyReason::no_requests;
    BudgetChoice choice;  // expected; drafts: how many to allocate
    bool variable() const { return reason == VerifyReason::scheduled; }
    std::int64_t rows = 0;

    // fields: drafts, rows, expected tokens and microseconds (rounded).
    DecisionRecord record(std::int64_t now_us, std::uint32_t rank, const VerifyBatch& stale) const;
};

class VerifyScheduler {
  public:
    // Begins on the plain path, or with patience 0 scheduled.
    explicit VerifyScheduler(VerifyRules rules = {})
        : rules_(rules), mode_(rules.patience > 0 ? VerifyMode::plain : VerifyMode::scheduled) {}

    VerifyDecision decide(const VerifyBatch& stale, const VerifyCost& cost);
    // For ranks in lock step, whose step takes what choose_group() says. Writes what each does;
    // tokens and time are those of all. A rank without requests has nothing to decide.
    void decide_group(std::span<const VerifyBatch> stale, const VerifyCost& cost, double ms_per_row,
                      std::span<VerifyDecision> decisions);
    VerifyMode mode() const { return mode_; }
    BudgetSolver& solver() { return solver_; }  // for the allocation of the step

    std::vector<std::uint8_t> save() const;  // without the rules
    Status load(std::span<const std::uint8_t> bytes);

  private:
    using Plans = std::array<BudgetChoice, 3>;  // by mode
    struct Settled {
        std::size_t plan = 0;
        VerifyReason reason = VerifyReason::scheduled;
    };
    Plans price(const VerifyBatch& stale, const VerifyCost& cost);
    Plans price_group(std::span<const VerifyBatch> stale, const VerifyCost& cost,
                      double ms_per_row);
    VerifyMode prefer(const Plans& plans) const;
    void follow(VerifyMode preferred);
    Settled settle(const Plans& plans);

    VerifyRules rules_;
    BudgetSolver solver_;
    VerifyMode mode_;
    VerifyMode candidate_ = VerifyMode::scheduled;
    std::int64_t agreed_ = 0;              // decisions in a row that preferred candidate_
    std::int64_t since_probe_ = 0;         // decisions, without drafts
    std::vector<VerifyBatch> candidates_;  // of decide_group
    std::vector<std::int64_t> budgets_;
};

}  // namespace fathom
