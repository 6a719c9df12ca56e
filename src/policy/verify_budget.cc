#include "policy/verify_budget.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <optional>

#include "base/check.h"

namespace fathom {
namespace {

void check_batch(const VerifyBatch& batch) {
    FATHOM_CHECK(batch.requests >= 0 && batch.requests <= kVerifyRowsMax);
    FATHOM_CHECK(batch.drafts >= 0 && batch.drafts <= kDraftsMax && batch.other_rows >= 0);
    FATHOM_CHECK(static_cast<std::int64_t>(batch.survivals.size()) ==
                 batch.requests * batch.drafts);
    FATHOM_CHECK(batch.caps.empty() ||
                 static_cast<std::int64_t>(batch.caps.size()) == batch.requests);
}

// use(flat index, survival) for everything that the caps allow.
template <typename Use>
void for_each_survival(const VerifyBatch& batch, const Use& use) {
    for (std::int64_t r = 0; r < batch.requests; ++r) {
        float before = 1;
        const std::int64_t first = r * batch.drafts;
        for (std::int64_t k = 0; k < batch.cap(r); ++k) {
            const float given = batch.survivals[static_cast<std::size_t>(first + k)];
            before = given > 0 ? std::min(given, before) : 0.0f;  // not a number: 0
            use(first + k, before);
        }
    }
}

}  // namespace

std::int64_t VerifyBatch::cap(std::int64_t request) const {
    if (caps.empty()) return drafts;
    return std::clamp<std::int64_t>(caps[static_cast<std::size_t>(request)], 0, drafts);
}

std::int64_t fill_run(const VerifyBatch& batch, const VerifyCost& cost, std::int64_t drafts) {
    if (!cost.known()) return drafts;
    const std::optional<VerifyCurve::Step> step = cost.curve().step(batch.rows_min() + drafts);
    if (!step) return drafts;
    std::int64_t most = 0;
    for (std::int64_t r = 0; r < batch.requests; ++r)
        most += batch.cap(r);
    return std::max(drafts, std::min(step->run - batch.rows_min(), most));
}

void BudgetSolver::sort_survivals(const VerifyBatch& batch, float floor) {
    sorted_.clear();
    // The bits of floats that are not negative are in the order of the floats.
    for_each_survival(batch, [this, floor](std::int64_t, float survival) {
        if (survival >= floor) sorted_.push_back(std::bit_cast<std::uint32_t>(survival));
    });
    std::sort(sorted_.begin(), sorted_.end(), std::greater<>());
}

BudgetChoice BudgetSolver::walk(const VerifyBatch& batch, const VerifyCost& cost, double extra_ms,
                                bool stop) {
    check_batch(batch);
    sort_survivals(batch, cost.known() ? batch.survival_floor : 0);
    const auto all = static_cast<std::int64_t>(sorted_.size());
    auto tokens = static_cast<float>(batch.requests);
    if (!cost.known()) {
        for (const std::uint32_t bits : sorted_)
            tokens += std::bit_cast<float>(bits);
        return {.drafts = all, .tokens = tokens, .ms = 0};
    }
    BudgetChoice best{.drafts = 0, .tokens = tokens, .ms = 0};
    double best_rate = 0, ms = 0;
    const double sampler_ms = cost.sampler_ms(batch.requests);
    for (std::int64_t m = 0, run = -1;; ++m) {
        const std::int64_t rows = batch.rows_min() + m;
        if (rows > run) {
            const std::optional<VerifyCurve::Step> step = cost.curve().step(rows);
            if (!step) break;
            run = step->run;
            ms = cost.forward_ms(*step) + sampler_ms + extra_ms;
        }
        if (const double rate = static_cast<double>(tokens) / ms; rate > best_rate) {
            best_rate = rate;
            best = {.drafts = m, .tokens = tokens, .ms = ms};
        } else if (stop && m > 0) {
            break;
        }
        if (m == all) break;
        tokens += std::bit_cast<float>(sorted_[static_cast<std::size_t>(m)]);
    }
    return best;
}

BudgetChoice BudgetSolver::choose(const VerifyBatch& stale, const VerifyCost& cost,
                                  double extra_ms) {
    return walk(stale, cost, extra_ms, false);
}

BudgetChoice BudgetSolver::choose_stopping(const VerifyBatch& current, const VerifyCost& cost) {
    return walk(current, cost, 0, true);
}

void BudgetSolver::allocate(const VerifyBatch& current, std::int64_t budget,
                            std::span<std::int32_t> lengths) {
    check_batch(current);
    FATHOM_CHECK(static_cast<std::int64_t>(lengths.size()) == current.requests);
    std::fill(lengths.begin(), lengths.end(), 1);
    keys_.clear();
    for_each_survival(current, [this](std::int64_t flat, float survival) {
        const std::uint64_t rank = ~std::bit_cast<std::uint32_t>(survival);
        keys_.push_back((rank << 32) | static_cast<std::uint64_t>(flat));
    });
    const auto given = std::clamp<std::int64_t>(budget, 0, static_cast<std::int64_t>(keys_.size()));
    const auto end = keys_.begin() + given;
    if (end != keys_.end()) std::nth_element(keys_.begin(), end, keys_.end());
    for (auto key = keys_.begin(); key != end; ++key)
        ++lengths[(*key & 0xffff'ffff) / static_cast<std::uint64_t>(current.drafts)];
}

// A size of the fullest rank.
struct BudgetSolver::Level {
    std::int64_t rows = 0;
    double ms = 0, ms_per_row = 0;
};

// Raises `best` to what this size can do, and writes its budgets where it can do more, by
// Dinkelbach's method: with rate λ to beat, exactly the survivals above λ · ms_per_row pay for
// their row. Every round that beats it raises λ; the last one does not.
void BudgetSolver::improve(std::span<const VerifyBatch> ranks, const Level& level,
                           BudgetChoice& best, std::span<std::int64_t> budgets) {
    for (;;) {
        const double threshold = best.rate() * level.ms_per_row;
        BudgetChoice trial;
        std::int64_t rows = 0;
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            const auto first = ranked_.begin() + static_cast<std::ptrdiff_t>(begins_[r]);
            const auto last = ranked_.begin() + static_cast<std::ptrdiff_t>(begins_[r + 1]);
            const auto pays = std::partition_point(
                first, last, [threshold](double survival) { return survival > threshold; });
            const std::int64_t taken =
                std::min<std::int64_t>(pays - first, level.rows - ranks[r].rows_min());
            trial_[r] = taken;
            trial.drafts += taken;
            rows += ranks[r].rows_min() + taken;
            trial.tokens += static_cast<double>(ranks[r].requests);
            if (taken > 0) trial.tokens += sums_[begins_[r] + static_cast<std::size_t>(taken) - 1];
        }
        trial.ms = level.ms + level.ms_per_row * static_cast<double>(rows);
        if (!(trial.rate() > best.rate())) return;
        best = trial;
        std::copy(trial_.begin(), trial_.end(), budgets.begin());
    }
}

BudgetChoice BudgetSolver::choose_group(std::span<const VerifyBatch> ranks, const VerifyCost& cost,
                                        double ms_per_row, std::span<std::int64_t> budgets,
                                        double extra_ms) {
    FATHOM_CHECK(ranks.size() == budgets.size() && ms_per_row >= 0);
    FATHOM_CHECK(!cost.known() || cost.curve().rules().envelope);
    ranked_.clear();
    begins_.assign(1, 0);
    std::int64_t rows_min = 0, rows_max = 0;
    double sampler_ms = 0, tokens = 0;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        check_batch(ranks[r]);
        sort_survivals(ranks[r], cost.known() ? ranks[r].survival_floor : 0);
        for (const std::uint32_t bits : sorted_)
            ranked_.push_back(static_cast<double>(std::bit_cast<float>(bits)));
        begins_.push_back(ranked_.size());
        rows_min = std::max(rows_min, ranks[r].rows_min());
        const auto drafts = static_cast<std::int64_t>(sorted_.size());
        rows_max = std::max(rows_max, ranks[r].rows_min() + drafts);
        sampler_ms = std::max(sampler_ms, cost.sampler_ms(ranks[r].requests));
        budgets[r] = cost.known() ? 0 : drafts;
        tokens += static_cast<double>(ranks[r].requests);
    }
    sums_.assign(ranked_.size(), 0);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        double sum = 0;
        for (std::size_t i = begins_[r]; i < begins_[r + 1]; ++i)
            sums_[i] = sum += ranked_[i];
        if (!cost.known()) tokens += sum;
    }
    BudgetChoice choice{.drafts = 0, .tokens = tokens, .ms = 0};
    if (!cost.known()) {
        choice.drafts = static_cast<std::int64_t>(ranked_.size());
        return choice;
    }
    trial_.resize(ranks.size());
    for (std::int64_t rows = rows_min;;) {
        const std::optional<VerifyCurve::Step> step = cost.curve().step(rows);
        if (!step) break;
        const double ms = cost.forward_ms(*step) + sampler_ms + extra_ms;
        improve(ranks, {step->run, ms, ms_per_row}, choice, budgets);
        if (step->run >= rows_max) break;
        rows = step->run + 1;
    }
    return choice;
}

}  // namespace fathom
