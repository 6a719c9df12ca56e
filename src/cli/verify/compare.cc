#include "cli/verify/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace fathom::verify {

namespace {

constexpr double kFp32Difference = 2e-3;  // largest single difference of a logit
constexpr double kFp32RowRms = 1e-4;      // of the deviation
constexpr double kFp32Gap = 4e-3;         // argmax must agree where the golden gap is larger
constexpr double kRealGap = 1.0;

struct RealBounds {
    double median, row_max, row_quantile, argmax_share;
};

RealBounds real_bounds(Sharpness sharpness) {
    if (sharpness == Sharpness::settled) return {0.10, 0.5, 1.0, 0.97};
    return {0.3, 0.8, 0.99, 0.70};
}

std::size_t argmax(std::span<const float> row) {
    return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

double quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    const auto at = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
    return values[std::min(values.size(), std::max<std::size_t>(at, 1)) - 1];
}

}  // namespace

Check LogitsComparison::compare(const std::string& what, const std::string& kind,
                                std::span<const float> ours, std::span<const float> golden,
                                std::int64_t vocab, std::span<const float> gaps, double deviation) {
    FATHOM_CHECK(ours.size() == golden.size() && deviation > 0);
    const auto width = static_cast<std::size_t>(vocab);
    const std::size_t rows = ours.size() / width;
    Pool& pool = pools_[kind];
    const double decisive_gap = sharpness_ == Sharpness::fp32 ? kFp32Gap : kRealGap;
    double worst_row = 0, worst_difference = 0;
    std::size_t equal = 0, decisive_wrong = 0;
    for (std::size_t r = 0; r < rows; ++r) {
        const auto a = ours.subspan(r * width, width);
        const auto b = golden.subspan(r * width, width);
        double sum = 0;
        for (std::size_t i = 0; i < width; ++i) {
            const double d = static_cast<double>(a[i]) - b[i];
            sum += d * d;
            worst_difference = std::isnan(d) ? std::numeric_limits<double>::infinity()
                                             : std::max(worst_difference, std::fabs(d));
        }
        const double error = std::sqrt(sum / static_cast<double>(width)) / deviation;
        worst_row = std::isnan(error) ? std::numeric_limits<double>::infinity()
                                      : std::max(worst_row, error);
        const bool same = argmax(a) == argmax(b);
        equal += same ? 1 : 0;
        pool.row_errors.push_back(error);
        pool.argmax_equal += same ? 1 : 0;
        if (r < gaps.size() && gaps[r] > decisive_gap) {
            ++pool.decisive;
            pool.decisive_equal += same ? 1 : 0;
            decisive_wrong += same ? 0 : 1;
        }
    }
    Check check{
        .what = what, .worst = worst_row, .note = fmt::format("argmax {} of {}", equal, rows)};
    if (sharpness_ == Sharpness::fp32) {
        check.tolerance = kFp32RowRms;
        check.pass =
            worst_row <= kFp32RowRms && worst_difference <= kFp32Difference && decisive_wrong == 0;
        check.note += fmt::format(", largest difference {:.2e} (<= {:.0e})", worst_difference,
                                  kFp32Difference);
    } else if (sharpness_ == Sharpness::settled) {
        check.tolerance = real_bounds(sharpness_).row_max;
        check.pass = worst_row <= check.tolerance && decisive_wrong == 0;
    } else {
        // A single row may be anywhere; the pooled lines judge. Along a greedy run, decisive tokens
        // are still demanded.
        check.tolerance = std::numeric_limits<double>::infinity();
        check.pass = std::isfinite(worst_row) && (kind != "greedy" || decisive_wrong == 0);
    }
    return check;
}

std::vector<Check> LogitsComparison::pooled() const {
    std::vector<Check> checks;
    if (sharpness_ == Sharpness::fp32) return checks;
    const RealBounds bounds = real_bounds(sharpness_);
    for (const auto& [kind, pool] : pools_) {
        const auto rows = static_cast<double>(pool.row_errors.size());
        // Few rows say nothing about a median or a share; they are judged one by one above.
        if (rows < 20) continue;
        const double bound = tight_median_ > 0 ? tight_median_ : bounds.median;
        const double median = quantile(pool.row_errors, 0.5);
        checks.push_back({.what = kind + ": median row",
                          .worst = median,
                          .tolerance = bound,
                          .pass = median <= bound,
                          .note = fmt::format("{:.0f} rows", rows)});
        const double high = quantile(pool.row_errors, bounds.row_quantile);
        checks.push_back(
            {.what = fmt::format("{}: {:.0f} % of rows", kind, 100 * bounds.row_quantile),
             .worst = high,
             .tolerance = bounds.row_max,
             .pass = high <= bounds.row_max,
             .note = {}});
        const double changed = 1.0 - static_cast<double>(pool.argmax_equal) / rows;
        checks.push_back({.what = kind + ": argmax changed",
                          .worst = changed,
                          .tolerance = 1.0 - bounds.argmax_share,
                          .pass = changed <= 1.0 - bounds.argmax_share,
                          .note = {}});
    }
    return checks;
}

double standard_deviation(std::span<const float> values) {
    double sum = 0, squares = 0;
    for (const float v : values)
        sum += v;
    const double mean = sum / static_cast<double>(values.size());
    for (const float v : values)
        squares += (v - mean) * (v - mean);
    return std::sqrt(squares / static_cast<double>(values.size()));
}

double relative_rms(std::span<const float> ours, std::span<const float> golden) {
    FATHOM_CHECK(ours.size() == golden.size());
    double difference = 0, scale = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
        if (!std::isfinite(golden[i]) || !std::isfinite(ours[i])) {
            if (ours[i] != golden[i]) return std::numeric_limits<double>::infinity();
            continue;
        }
        const double d = static_cast<double>(ours[i]) - golden[i];
        difference += d * d;
        scale += static_cast<double>(golden[i]) * golden[i];
    }
    if (difference == 0) return 0;
    return scale == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference / scale);
}

}  // namespace fathom::verify
