// Coefficients of a cost model from measured steps (serving.md 2.1.3): non-negative least squares
// with weights 1/t², so that the relative error counts, and the gates that a fit must pass before
// anyone plans with it. And the slow correction of a model that is in use.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policy/cost_model.h"

namespace fathom {

struct CostSample {
    CostVector features{};
    double time_us = 0;  // > 0, a median
    double spread = 0;   // (90th − 10th percentile) / median of its repeats
};
inline constexpr double kSpreadMax = 0.10;  // samples beyond it are left out

struct CostGates {
    double mean_error = 0;  // mean absolute relative error, limit 5 %
    double p99_error = 0;   // 99th percentile of it, limit 12 %
    bool monotone = true;   // time never falls with rows or context over the whole range
    std::size_t used = 0, dropped = 0;  // samples
    bool passed() const;
    std::string to_text() const;
};
inline constexpr std::size_t kSamplesMin = 2 * kCostFeatures;
inline constexpr double kMeanErrorMax = 0.05, kP99ErrorMax = 0.12;

struct CostFit {
    CostModel model;
    CostGates gates;
};
// With fewer steady samples than kSamplesMin the unsteady ones are used too; they then fail the
// gate by their errors.
CostFit fit_cost_model(std::span<const CostSample> samples, const ModelShape& shape);

// From a few samples (at least one) that cannot tell the features apart: one time for the step, one
// for reading experts, and one speed for all arithmetic, by useful_flops. With a single sample
// everything is arithmetic.
CostModel fit_rough_model(std::span<const CostSample> samples, const ModelShape& shape);

// Follows the machine: after each step the ratio of observed to predicted time (predicted with
// scale 1) moves the logarithm of the scale by 2 %, one ratio counting as at most e^±0.3, and the
// scale stays within [0.7, 1.5]. What is not the model's fault (a step after a pause, a stall)
// is not to be told.
class CostCorrection {
  public:
    CostCorrection() = default;
    explicit CostCorrection(double log_scale) : log_scale_(log_scale) {}  // as it was left
    void observe(double predicted_us, double observed_us);
    double scale() const;
    double log_scale() const { return log_scale_; }
    // |log| beyond 0.2: the model does not fit this machine (any more); calibrate again.
    bool drifted() const;

  private:
    double log_scale_ = 0;
};

}  // namespace fathom
