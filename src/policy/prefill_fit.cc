// Prefill costs from measured steps.
#include <algorithm>
#include <cmath>

#include "policy/nnls.h"
#include "policy/prefill_cost.h"

namespace fathom {

namespace {

constexpr std::size_t kUnknowns = 6;
static_assert(kPrefillSamplesMin == 2 * kUnknowns);

Result<std::vector<PrefillSample>> steady_samples(std::span<const PrefillSample> samples) {
    std::vector<PrefillSample> steady;
    for (const PrefillSample& sample : samples) {
        if (!(sample.time_us > 0) || !std::isfinite(sample.time_us) || sample.slices.empty())
            return invalid_argument(
                "prefill sample: time {} us of {} slices, expected a positive "
                "time of at least one",
                sample.time_us, sample.slices.size());
        for (const PrefillSlice& slice : sample.slices)
            if (slice.tokens < 1 || slice.context < 0)
                return invalid_argument(
                    "prefill sample: {} tokens after {}, expected at least 1, 0", slice.tokens,
                    slice.context);
        if (sample.spread <= kSpreadMax) steady.push_back(sample);
    }
    if (steady.size() < kPrefillSamplesMin)
        return invalid_argument("prefill samples: {} steady ones, expected at least {}",
                                steady.size(), kPrefillSamplesMin);
    return steady;
}

// k0_us: of another fit, or negative to be found.
PrefillCost solve(std::span<const PrefillSample> samples, double k0_us) {
    const bool has_k0 = k0_us >= 0;
    std::vector<double> rows, targets, weights;
    for (const PrefillSample& sample : samples) {
        std::array<double, kUnknowns> x = {has_k0 ? 0.0 : 1.0};
        for (const PrefillSlice& slice : sample.slices) {
            const auto q = static_cast<double>(slice.tokens);
            const auto c = static_cast<double>(slice.context);
            x[1] += q;
            x[2] += q * (c + (q + 1) / 2);
            x[3] += slice.first ? c : 0;
            x[4] += slice.last ? 1 : 0;
            x[5] += 1;
        }
        rows.insert(rows.end(), x.begin(), x.end());
        targets.push_back(sample.time_us - (has_k0 ? k0_us : 0));
        weights.push_back(1 / (sample.time_us * sample.time_us));
    }
    const std::vector<double> k = solve_nnls(rows, targets, weights, kUnknowns);
    PrefillCost cost;
    cost.k0_us = has_k0 ? k0_us : k[0];
    cost.k1_us = k[1], cost.k2_us = k[2], cost.k3_us = k[3], cost.k4_us = k[4], cost.k5_us = k[5];
    return cost;
}

std::size_t class_of(const PrefillSample& sample) {
    std::int64_t longest = 0;
    for (const PrefillSlice& slice : sample.slices)
        longest = std::max(longest, slice.context + slice.tokens);
    return prefill_class(longest);
}

// Non-negative coefficients and tables cannot fall with tokens or context.
PrefillCalibration judge(const PrefillCosts& costs, PrefillFitMethod method,
                         std::span<const PrefillSample> steady, std::size_t all) {
    PrefillCalibration result;
    result.costs = costs;
    result.method = method;
    CostGates& gates = result.gates;
    gates.used = steady.size();
    gates.dropped = all - steady.size();
    std::vector<double> errors;
    for (const PrefillSample& sample : steady) {
        const PrefillCost& cost = costs[class_of(sample)];
        double predicted = cost.fixed_us();
        for (const PrefillSlice& slice : sample.slices)
            predicted += cost.slice_us(slice);
        errors.push_back(std::abs(predicted / sample.time_us - 1));
        gates.mean_error += errors.back() / static_cast<double>(steady.size());
    }
    std::sort(errors.begin(), errors.end());
    gates.p99_error = errors[(errors.size() - 1) * 99 / 100];
    result.worst_error = errors.back();
    return result;
}

PrefillCosts same_for_all(const PrefillCost& cost) {
    PrefillCosts costs;
    costs.fill(cost);
    return costs;
}

// Equal slices share what is left of a step after its fixed part, k3 and k4; others say nothing.
Result<PrefillCost> tabulate(std::span<const PrefillSample> steady, const PrefillCost& pooled) {
    std::vector<PrefillTable::Point> points;
    for (const PrefillSample& sample : steady) {
        const PrefillSlice& slice = sample.slices.front();
        double rest_us = sample.time_us - pooled.fixed_us();
        bool are_equal = true;
        for (const PrefillSlice& other : sample.slices) {
            are_equal &= other.context == slice.context && other.tokens == slice.tokens;
            rest_us -= other.first ? pooled.k3_us * static_cast<double>(other.context) : 0;
            rest_us -= other.last ? pooled.k4_us : 0;
        }
        if (!are_equal) continue;
        const double each_us = rest_us / static_cast<double>(sample.slices.size());
        points.push_back({slice.context, slice.tokens, std::max(each_us, 0.0)});
    }
    FATHOM_ASSIGN(PrefillTable table, PrefillTable::fit(points));
    PrefillCost cost = pooled;
    cost.k1_us = cost.k2_us = cost.k5_us = 0;
    cost.table = std::make_shared<const PrefillTable>(std::move(table));
    return cost;
}

}  // namespace

Result<PrefillFit> fit_prefill_cost(std::span<const PrefillSample> samples) {
    FATHOM_ASSIGN(const std::vector<PrefillSample> steady, steady_samples(samples));
    const PrefillCost cost = solve(steady, -1);
    const PrefillCalibration judged =
        judge(same_for_all(cost), PrefillFitMethod::pooled, steady, samples.size());
    return PrefillFit{.cost = cost, .gates = judged.gates};
}

std::string_view prefill_fit_method_name(PrefillFitMethod method) {
    switch (method) {
        case PrefillFitMethod::pooled:
            return "pooled";
        case PrefillFitMethod::by_class:
            return "by_class";
        case PrefillFitMethod::table:
            return "table";
    }
    return "unknown";
}

Result<PrefillCalibration> calibrate_prefill(std::span<const PrefillSample> samples) {
    FATHOM_ASSIGN(const std::vector<PrefillSample> steady, steady_samples(samples));
    const PrefillCost pooled = solve(steady, -1);
    PrefillCalibration result;
    const auto try_costs = [&](const PrefillCosts& costs, PrefillFitMethod method) {
        result = judge(costs, method, steady, samples.size());
        return result.gates.passed();
    };
    if (try_costs(same_for_all(pooled), PrefillFitMethod::pooled)) return result;

    PrefillCosts by_class = same_for_all(pooled);
    for (std::size_t k = 0; k < kPrefillClasses; ++k) {
        std::vector<PrefillSample> mine;
        for (const PrefillSample& sample : steady)
            if (class_of(sample) == k) mine.push_back(sample);
        if (mine.size() >= kPrefillSamplesMin) by_class[k] = solve(mine, pooled.k0_us);
    }
    if (try_costs(by_class, PrefillFitMethod::by_class)) return result;

    FATHOM_ASSIGN(const PrefillCost table, tabulate(steady, pooled));
    try_costs(same_for_all(table), PrefillFitMethod::table);
    return result;
}

}  // namespace fathom
