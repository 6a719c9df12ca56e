#include "policy/prefill_step.h"

#include <algorithm>

#include "policy/share.h"

namespace fathom {

namespace {

constexpr double kBudgetLeast = 0.2;  // of τ

}  // namespace

double step_budget_us(std::span<double> work_us, double tau_us, double fixed_us) {
    double all_us = 0;
    for (double& work : work_us) {
        work = std::clamp(work, 0.0, tau_us);
        all_us += work;
    }
    std::sort(work_us.begin(), work_us.end());
    double best_us = tau_us;
    double best = fixed_us + tau_us > 0 ? all_us / (fixed_us + tau_us) : 0;
    double below_us = 0;  // Σ of the ranks before i
    const std::size_t ranks = work_us.size();
    for (std::size_t i = ranks; i-- > 0;) {
        const double budget = work_us[i];
        all_us -= budget;
        below_us = std::max(all_us, 0.0);
        if (budget < kBudgetLeast * tau_us || budget <= 0) break;
        const double done = below_us + budget * static_cast<double>(ranks - i);
        const double rate = done / (fixed_us + budget);
        if (rate >= best) {
            best = rate;
            best_us = budget;
        }
    }
    return best_us;
}

bool PrefillStepPlanner::take(const PrefillCosts& costs, std::size_t rank,
                              std::span<const PrefillJob> jobs, std::size_t job, double budget_us,
                              bool must_finish) {
    const PrefillJob& wanted = jobs[job];
    const PrefillCost& cost = costs[wanted.length_class];
    double& used_us = step_.rank_us[rank];
    const bool is_empty = used_us == 0 && !must_finish;
    const std::int64_t tokens =
        fit_slice(cost, budget_us - used_us, wanted.rest, tokens_left_, is_empty);
    if (tokens == 0 || (must_finish && tokens < wanted.rest.tokens)) return false;
    step_.slices.push_back({.rank = rank, .job = job, .tokens = tokens});
    tokens_left_ -= tokens;
    used_us += cost.slice_us({.context = wanted.rest.context,
                              .tokens = tokens,
                              .first = wanted.rest.first,
                              .last = tokens == wanted.rest.tokens});
    return true;
}

void PrefillStepPlanner::pack(const PrefillCosts& costs, std::size_t rank,
                              std::span<const PrefillJob> jobs) {
    tokens_left_ = kStepRowsMax;
    if (jobs.empty()) return;
    const double budget_us = step_.budget_us;
    const std::size_t first_slice = step_.slices.size();
    order_.clear();
    if (!take(costs, rank, jobs, 0, budget_us, true)) {
        for (std::size_t i = 1; i < jobs.size(); ++i)
            order_.push_back(i);
        const auto needed_us = [&](std::size_t i) {
            const PrefillRest& rest = jobs[i].rest;
            return costs[jobs[i].length_class].request_us(rest.context, rest.tokens, rest.first);
        };
        std::stable_sort(order_.begin(), order_.end(),
                         [&](std::size_t a, std::size_t b) { return needed_us(a) < needed_us(b); });
        for (const std::size_t i : order_)
            if (!take(costs, rank, jobs, i, budget_us * (1 - kOldestShare), true)) break;
        take(costs, rank, jobs, 0, budget_us, false);
    }
    const auto is_taken = [&](std::size_t job) {
        return std::any_of(step_.slices.begin() + static_cast<std::ptrdiff_t>(first_slice),
                           step_.slices.end(),
                           [&](const PlannedSlice& slice) { return slice.job == job; });
    };
    for (std::size_t i = 1; i < jobs.size(); ++i) {
        if (step_.rank_us[rank] >= budget_us || tokens_left_ == 0) break;
        if (!is_taken(i)) take(costs, rank, jobs, i, budget_us, false);
    }
}

const PrefillStep& PrefillStepPlanner::plan(const PrefillCosts& costs, double tau_us,
                                            std::span<const std::vector<PrefillJob>> ranks,
                                            bool is_adaptive) {
    step_.slices.clear();
    step_.rank_us.assign(ranks.size(), 0.0);
    step_.budget_us = tau_us;
    if (is_adaptive) {
        work_us_.clear();
        for (const auto& jobs : ranks) {
            double work = 0;
            for (const PrefillJob& job : jobs) {
                if (work >= tau_us) break;
                work += costs[job.length_class].request_us(job.rest.context, job.rest.tokens,
                                                           job.rest.first);
            }
            work_us_.push_back(work);
        }
        step_.budget_us = step_budget_us(work_us_, tau_us, costs[0].fixed_us());
    }
    for (std::size_t r = 0; r < ranks.size(); ++r)
        pack(costs, r, ranks[r]);
    return step_;
}

}  // namespace fathom
