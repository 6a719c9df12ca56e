// How long a decode step of one rank takes by its rows, for the verification budget
// (verify_budget.h; dspark.md 3.5). Measured at start-up, corrected while it serves:
//
//   T(rows, requests) = curve[g] + slope · g + sampler(requests)       g: rows that the device runs
//
// A captured size is run whole, so up to the largest one the curve is a staircase; beyond it, it is
// linear between measured points. The curve is measured with contexts that cost nothing, hence the
// slope: for every size (with at least 10 steps) the median of (measured − curve) / g of the last
// 5,000 steps, of these the median, at least 0. Sampling, verification and drafting depend on
// requests: the median of the last 9 steps with as many, else of the last 9 of all, else nothing
// (either with at least 5).
//
// Times are milliseconds, as device timers give them: with another unit, rounding could decide a
// tie otherwise than the deployed engine does.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"

namespace fathom {

struct CurvePoint {
    std::int64_t rows = 0;
    double ms = 0;
};

// How points are read.
struct CurveRules {
    bool envelope = true;     // a larger step is never cheaper (running maximum)
    bool extrapolate = true;  // beyond the last point with the last slope; else no step is larger
    std::int64_t captured_max = 0;  // largest size that is run whole; 0: the last point

    // As the deployed engine reads its own curve.
    static CurveRules deployed() { return {.envelope = false, .extrapolate = false}; }
};

inline constexpr std::int64_t kVerifyRowsMax = 1 << 20;

class VerifyCurve {
  public:
    VerifyCurve() = default;  // not known: nobody plans with it
    // invalid_argument when rows do not rise strictly within [1, kVerifyRowsMax], or a time is not
    // finite and above 0. No points: not known.
    static Result<VerifyCurve> make(std::span<const CurvePoint> points, CurveRules rules = {});

    bool known() const { return !points_.empty(); }
    std::span<const CurvePoint> points() const { return points_; }
    const CurveRules& rules() const { return rules_; }
    struct Step {
        std::int64_t run = 0;  // rows that the device runs, >= those asked for
        double ms = 0;
    };
    // Nothing when no step is that large. rows >= 0; a known curve.
    std::optional<Step> step(std::int64_t rows) const;
    // The place of a captured size in points(), or nothing.
    std::optional<std::size_t> place(std::int64_t run) const;

  private:
    std::vector<CurvePoint> points_;
    CurveRules rules_;
};

// The curve with its corrections. Memory is taken for the first step with a number of requests or
// of a size, and never again. One owner.
class VerifyCost {
  public:
    explicit VerifyCost(VerifyCurve curve = {});

    // A measured step; it is left out where the size was not captured, a number is not finite or
    // negative, or requests are not within [0, 65,536].
    void observe(std::int64_t requests, std::int64_t run, double forward_ms, double sampler_ms);

    const VerifyCurve& curve() const { return curve_; }
    bool known() const { return curve_.known(); }
    double slope_ms() const { return slope_ms_; }  // a row
    double sampler_ms(std::int64_t requests) const;
    // Of a step of the curve, with its slope; the sampler's time is added by the caller.
    double forward_ms(const VerifyCurve::Step& step) const {
        return step.ms + slope_ms_ * static_cast<double>(step.run);
    }

    std::vector<std::uint8_t> save() const;
    static Result<VerifyCost> load(std::span<const std::uint8_t> bytes);

  private:
    static constexpr std::size_t kWindow = 5000, kSizeSamplesMin = 10;
    static constexpr std::int64_t kRequestsMax = 65'536;
    struct Recent {  // the last nine
        static constexpr std::size_t kSize = 9, kMin = 5;
        std::array<double, kSize> values{};
        std::uint32_t count = 0, next = 0;
        void add(double value);
        std::optional<double> median() const;
    };
    struct Deviation {
        std::uint32_t place = 0;
        double ms_per_row = 0;
    };
    void add_deviation(Deviation deviation);
    void update_slope();

    VerifyCurve curve_;
    std::vector<Deviation> window_;  // a ring once full
    std::size_t oldest_ = 0;
    std::vector<std::vector<double>> sorted_;  // of each captured size, rising
    std::vector<double> medians_;              // scratch
    double slope_ms_ = 0;
    std::vector<Recent> by_requests_;
    Recent all_;
};

}  // namespace fathom
