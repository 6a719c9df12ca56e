#include "policy/cost_fit.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "policy/nnls.h"

namespace fathom {

namespace {

constexpr double kFollow = 0.02, kRatioLogMax = 0.3, kScaleMin = 0.7, kScaleMax = 1.5;
constexpr double kDriftLog = 0.2;

double relative_error(const CostModel& model, const CostSample& sample) {
    return std::abs(model.cost_us(sample.features) - sample.time_us) / sample.time_us;
}

double slice_cost(const CostModel& model, const ModelShape& shape, std::int64_t context,
                  std::int64_t rows) {
    StepFeatures step(shape);
    step.add({.context = context, .rows = rows});
    return model.cost_us(step);
}

bool is_monotone(const CostModel& model, const ModelShape& shape) {
    constexpr std::int64_t kContextMax = std::int64_t{1} << 20;
    for (std::int64_t rows = 1; rows <= kStepRowsMax; rows *= 2) {
        double before = 0;
        for (std::int64_t context = 0; context <= kContextMax; context = 2 * context + 1024) {
            const double cost = slice_cost(model, shape, context, rows);
            if (cost < before ||
                slice_cost(model, shape, context, rows / 2 + 1) > cost * (1 + 1e-9))
                return false;
            before = cost;
        }
    }
    return true;
}

}  // namespace

bool CostGates::passed() const {
    return used >= kSamplesMin && mean_error <= kMeanErrorMax && p99_error <= kP99ErrorMax &&
           monotone;
}

std::string CostGates::to_text() const {
    return fmt::format(
        "mean error {:.1f} % (limit {:.0f}), 99th percentile {:.1f} % (limit {:.0f}), {}; {} "
        "samples, {} left out as unsteady: {}",
        100 * mean_error, 100 * kMeanErrorMax, 100 * p99_error, 100 * kP99ErrorMax,
        monotone ? "monotone" : "not monotone", used, dropped, passed() ? "passed" : "not passed");
}

CostFit fit_cost_model(std::span<const CostSample> samples, const ModelShape& shape) {
    std::vector<CostSample> steady;
    for (const CostSample& sample : samples)
        if (sample.spread <= kSpreadMax) steady.push_back(sample);
    if (steady.size() < kSamplesMin) steady.assign(samples.begin(), samples.end());

    std::vector<double> rows, targets, weights;
    for (const CostSample& sample : steady) {
        rows.insert(rows.end(), sample.features.begin(), sample.features.end());
        targets.push_back(sample.time_us);
        weights.push_back(1 / (sample.time_us * sample.time_us));
    }
    const std::vector<double> solution = solve_nnls(rows, targets, weights, kCostFeatures);
    CostFit fit;
    std::copy(solution.begin(), solution.end(), fit.model.k_us.begin());

    CostGates& gates = fit.gates;
    gates.used = steady.size();
    gates.dropped = samples.size() - steady.size();
    gates.monotone = is_monotone(fit.model, shape);
    std::vector<double> errors;
    for (const CostSample& sample : steady)
        errors.push_back(relative_error(fit.model, sample));
    std::sort(errors.begin(), errors.end());
    for (const double error : errors)
        gates.mean_error += error / static_cast<double>(errors.size());
    if (!errors.empty()) gates.p99_error = errors[(errors.size() - 1) * 99 / 100];
    return fit;
}

CostModel fit_rough_model(std::span<const CostSample> samples, const ModelShape& shape) {
    const UnitFlops unit = unit_flops(shape);
    CostVector flops{};
    const auto at = [](auto& vector, CostFeature feature) -> auto& {
        return vector[static_cast<std::size_t>(feature)];
    };
    at(flops, CostFeature::rows) = unit.row;
    at(flops, CostFeature::decoder_rows) = unit.decoder_row;
    at(flops, CostFeature::attention_pairs) = unit.attention_pair;
    at(flops, CostFeature::index_pairs) = unit.index_pair;
    at(flops, CostFeature::last) = unit.logits_row;

    std::vector<double> rows, targets, weights;
    for (const CostSample& sample : samples) {
        double sum = 0;
        for (std::size_t i = 0; i < kCostFeatures; ++i)
            sum += flops[i] * sample.features[i];
        rows.insert(rows.end(), {sum, at(sample.features, CostFeature::reads), 1.0});
        targets.push_back(sample.time_us);
        weights.push_back(1 / (sample.time_us * sample.time_us));
    }
    std::vector<double> solution{samples.front().time_us / rows.front(), 0, 0};
    if (samples.size() > 1) solution = solve_nnls(rows, targets, weights, 3);
    CostModel model;
    for (std::size_t i = 0; i < kCostFeatures; ++i)
        model.k_us[i] = solution[0] * flops[i];
    at(model.k_us, CostFeature::reads) = solution[1];
    at(model.k_us, CostFeature::step) = solution[2];
    return model;
}

void CostCorrection::observe(double predicted_us, double observed_us) {
    if (!(predicted_us > 0) || !(observed_us > 0)) return;
    const double x = std::clamp(std::log(observed_us / predicted_us), -kRatioLogMax, kRatioLogMax);
    log_scale_ = (1 - kFollow) * log_scale_ + kFollow * x;
}

double CostCorrection::scale() const {
    return std::clamp(std::exp(log_scale_), kScaleMin, kScaleMax);
}

bool CostCorrection::drifted() const {
    return std::abs(log_scale_) > kDriftLog;
}

}  // namespace fathom
