#include "policy/verify_cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "policy/state_bytes.h"

namespace fathom {
namespace {

double median_of_sorted(std::span<const double> sorted) {
    const std::size_t n = sorted.size();
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

bool is_time(double value) {
    return std::isfinite(value) && value >= 0;
}

}  // namespace

Result<VerifyCurve> VerifyCurve::make(std::span<const CurvePoint> points, CurveRules rules) {
    VerifyCurve curve;
    std::int64_t before = 0;
    for (const CurvePoint& point : points) {
        if (point.rows <= before || point.rows > kVerifyRowsMax)
            return invalid_argument("curve: {} rows after {}, expected a rising number up to {}",
                                    point.rows, before, kVerifyRowsMax);
        if (!std::isfinite(point.ms) || point.ms <= 0)
            return invalid_argument("curve: {} ms for {} rows, expected a number above 0", point.ms,
                                    point.rows);
        before = point.rows;
        curve.points_.push_back(point);
        if (rules.envelope && curve.points_.size() > 1)
            curve.points_.back().ms =
                std::max(point.ms, curve.points_[curve.points_.size() - 2].ms);
    }
    if (rules.captured_max <= 0) rules.captured_max = before;
    curve.rules_ = rules;
    return curve;
}

std::optional<VerifyCurve::Step> VerifyCurve::step(std::int64_t rows) const {
    FATHOM_DCHECK(known() && rows >= 0);
    const auto above =
        std::lower_bound(points_.begin(), points_.end(), rows,
                         [](const CurvePoint& point, std::int64_t r) { return point.rows < r; });
    if (above != points_.end() && (above->rows <= rules_.captured_max || above == points_.begin()))
        return Step{above->rows, above->ms};
    if (above == points_.end() && (!rules_.extrapolate || rows > kVerifyRowsMax)) return {};
    if (points_.size() == 1) return Step{rows, points_.front().ms};
    const auto high = above == points_.end() ? above - 1 : above;
    const auto low = high - 1;
    const double slope = (high->ms - low->ms) / static_cast<double>(high->rows - low->rows);
    return Step{rows, low->ms + slope * static_cast<double>(rows - low->rows)};
}

std::optional<std::size_t> VerifyCurve::place(std::int64_t run) const {
    const auto at =
        std::lower_bound(points_.begin(), points_.end(), run,
                         [](const CurvePoint& point, std::int64_t r) { return point.rows < r; });
    if (at == points_.end() || at->rows != run || run > rules_.captured_max) return {};
    return static_cast<std::size_t>(at - points_.begin());
}

void VerifyCost::Recent::add(double value) {
    values[next] = value;
    next = (next + 1) % kSize;
    count = std::min<std::uint32_t>(count + 1, kSize);
}

std::optional<double> VerifyCost::Recent::median() const {
    if (count < kMin) return {};
    std::array<double, kSize> sorted = values;
    std::sort(sorted.begin(), sorted.begin() + count);
    return median_of_sorted(std::span(sorted).first(count));
}

VerifyCost::VerifyCost(VerifyCurve curve)
    : curve_(std::move(curve)), sorted_(curve_.points().size()) {
    medians_.reserve(sorted_.size());
}

void VerifyCost::observe(std::int64_t requests, std::int64_t run, double forward_ms,
                         double sampler_ms) {
    if (requests < 0 || requests > kRequestsMax || !is_time(forward_ms) || !is_time(sampler_ms))
        return;
    const std::optional<std::size_t> place = curve_.place(run);
    if (!place) return;
    add_deviation({static_cast<std::uint32_t>(*place),
                   (forward_ms - curve_.points()[*place].ms) / static_cast<double>(run)});
    update_slope();
    const auto r = static_cast<std::size_t>(requests);
    if (by_requests_.size() <= r) by_requests_.resize(r + 1);
    by_requests_[r].add(sampler_ms);
    all_.add(sampler_ms);
}

void VerifyCost::add_deviation(Deviation deviation) {
    const auto insert = [this](const Deviation& d) {
        std::vector<double>& values = sorted_[d.place];
        values.insert(std::upper_bound(values.begin(), values.end(), d.ms_per_row), d.ms_per_row);
    };
    if (window_.size() < kWindow) {
        window_.push_back(deviation);
    } else {
        const Deviation& gone = window_[oldest_];
        std::vector<double>& values = sorted_[gone.place];
        values.erase(std::lower_bound(values.begin(), values.end(), gone.ms_per_row));
        window_[oldest_] = deviation;
        oldest_ = (oldest_ + 1) % kWindow;
    }
    insert(deviation);
}

void VerifyCost::update_slope() {
    medians_.clear();
    for (const std::vector<double>& values : sorted_)
        if (values.size() >= kSizeSamplesMin) medians_.push_back(median_of_sorted(values));
    std::sort(medians_.begin(), medians_.end());
    slope_ms_ = medians_.empty() ? 0 : std::max(0.0, median_of_sorted(medians_));
}

double VerifyCost::sampler_ms(std::int64_t requests) const {
    std::optional<double> median;
    if (requests >= 0 && requests < static_cast<std::int64_t>(by_requests_.size()))
        median = by_requests_[static_cast<std::size_t>(requests)].median();
    if (!median) median = all_.median();
    return median.value_or(0);
}

std::vector<std::uint8_t> VerifyCost::save() const {
    StateWriter out("VCST", 1);
    out.add(curve_.rules().envelope).add(curve_.rules().extrapolate);
    out.add(curve_.rules().captured_max);
    out.add(static_cast<std::uint64_t>(curve_.points().size()));
    for (const CurvePoint& point : curve_.points())
        out.add(point.rows).add(point.ms);
    out.add(static_cast<std::uint64_t>(window_.size()));
    for (std::size_t i = 0; i < window_.size(); ++i) {
        const Deviation& deviation = window_[(oldest_ + i) % window_.size()];
        out.add(std::uint64_t{deviation.place}).add(deviation.ms_per_row);
    }
    const auto add_recent = [&out](const Recent& recent) {
        out.add(std::uint64_t{recent.count});
        for (std::uint32_t i = 0; i < recent.count; ++i)
            out.add(
                recent.values[(recent.next + Recent::kSize - recent.count + i) % Recent::kSize]);
    };
    add_recent(all_);
    out.add(static_cast<std::uint64_t>(by_requests_.size()));
    for (const Recent& recent : by_requests_)
        add_recent(recent);
    return out.take();
}

Result<VerifyCost> VerifyCost::load(std::span<const std::uint8_t> bytes) {
    StateReader in(bytes, "VCST", 1);
    CurveRules rules;
    rules.envelope = in.flag();
    rules.extrapolate = in.flag();
    rules.captured_max = in.in_range(0, kVerifyRowsMax);
    std::vector<CurvePoint> points(in.count(static_cast<std::size_t>(kVerifyRowsMax)));
    for (CurvePoint& point : points) {
        point.rows = in.i64();
        point.ms = in.f64();
    }
    if (!in.ok()) return in.finish();
    FATHOM_ASSIGN(VerifyCurve curve, VerifyCurve::make(points, rules));
    VerifyCost cost(std::move(curve));
    const std::size_t steps = in.count(kWindow);
    if (steps > 0 && points.empty()) return invalid_argument("steps of a curve without points");
    for (std::size_t i = 0; i < steps; ++i) {
        const std::int64_t place = in.in_range(0, static_cast<std::int64_t>(points.size()) - 1);
        const double ms_per_row = in.f64();
        if (!in.ok()) return in.finish();
        cost.add_deviation({static_cast<std::uint32_t>(place), ms_per_row});
    }
    cost.update_slope();
    const auto read_recent = [&in](Recent& recent) {
        const std::size_t count = in.count(Recent::kSize);
        for (std::size_t i = 0; i < count; ++i)
            recent.add(in.f64());
    };
    read_recent(cost.all_);
    cost.by_requests_.resize(in.count(static_cast<std::size_t>(kRequestsMax) + 1));
    for (Recent& recent : cost.by_requests_)
        read_recent(recent);
    FATHOM_RETURN_IF_ERROR(in.finish());
    return cost;
}

}  // namespace fathom
