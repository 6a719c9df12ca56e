#include "policy/expert_load.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "policy/state_bytes.h"

namespace fathom {

ExpertWindow::ExpertWindow(std::int64_t experts, std::int64_t steps_max)
    : experts_(experts), steps_max_(steps_max) {
    FATHOM_CHECK(experts >= 1 && experts <= kExpertsMax);
    FATHOM_CHECK(steps_max >= 1 && steps_max <= kWindowStepsMax);
    tokens_.resize(static_cast<std::size_t>(experts * steps_max));
}

void ExpertWindow::add(std::span<const std::int32_t> tokens) {
    FATHOM_CHECK(static_cast<std::int64_t>(tokens.size()) == experts_);
    FATHOM_CHECK(std::all_of(tokens.begin(), tokens.end(), [](auto t) { return t >= 0; }));
    std::copy(tokens.begin(), tokens.end(), tokens_.begin() + next_ * experts_);
    next_ = (next_ + 1) % steps_max_;
    steps_ = std::min(steps_ + 1, steps_max_);
}

std::span<const std::int32_t> ExpertWindow::step(std::int64_t i) const {
    FATHOM_DCHECK(i >= 0 && i < steps_);
    const std::int64_t at = (next_ + steps_max_ - steps_ + i) % steps_max_;
    return std::span(tokens_).subspan(static_cast<std::size_t>(at * experts_),
                                      static_cast<std::size_t>(experts_));
}

std::vector<double> ExpertWindow::mean() const {
    std::vector<double> sums(static_cast<std::size_t>(experts_));
    for (std::int64_t i = 0; i < steps_; ++i) {
        const std::span<const std::int32_t> tokens = step(i);
        for (std::size_t e = 0; e < sums.size(); ++e)
            sums[e] += static_cast<double>(tokens[e]);
    }
    for (double& sum : sums)
        sum /= static_cast<double>(std::max<std::int64_t>(steps_, 1));
    return sums;
}

std::vector<std::uint8_t> ExpertWindow::save() const {
    StateWriter out("XWIN", 1);
    out.add(experts_).add(steps_max_).add(steps_);
    for (std::int64_t i = 0; i < steps_; ++i)
        for (const std::int32_t tokens : step(i))
            out.add(tokens);
    return out.take();
}

Result<ExpertWindow> ExpertWindow::load(std::span<const std::uint8_t> bytes) {
    StateReader in(bytes, "XWIN", 1);
    const std::int64_t experts = in.in_range(1, kExpertsMax);
    const std::int64_t steps_max = in.in_range(1, kWindowStepsMax);
    const std::int64_t steps = in.in_range(0, steps_max);
    if (!in.ok()) return in.finish();
    ExpertWindow window(experts, steps_max);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(experts));
    for (std::int64_t i = 0; i < steps && in.ok(); ++i) {
        for (std::int32_t& count : tokens)
            count =
                static_cast<std::int32_t>(in.in_range(0, std::numeric_limits<std::int32_t>::max()));
        if (in.ok()) window.add(tokens);
    }
    FATHOM_RETURN_IF_ERROR(in.finish());
    return window;
}

ExpertPredictor::ExpertPredictor(std::int64_t experts, Rules rules) : rules_(rules) {
    FATHOM_CHECK(experts >= 1 && experts <= kExpertsMax);
    fast_.assign(static_cast<std::size_t>(experts), 0);
    slow_ = fast_;
}

void ExpertPredictor::observe(std::span<const double> loads) {
    FATHOM_CHECK(loads.size() == fast_.size());
    FATHOM_CHECK(std::all_of(loads.begin(), loads.end(),
                             [](double load) { return std::isfinite(load) && load >= 0; }));
    if (std::all_of(loads.begin(), loads.end(), [](double load) { return load == 0; })) return;
    if (!seen_) {
        std::copy(loads.begin(), loads.end(), fast_.begin());
        slow_ = fast_;
        seen_ = true;
        return;
    }
    double fast_error = 0, slow_error = 0;
    for (std::size_t e = 0; e < loads.size(); ++e) {
        fast_error += std::abs(fast_[e] - loads[e]);
        slow_error += std::abs(slow_[e] - loads[e]);
        fast_[e] += rules_.fast * (loads[e] - fast_[e]);
        slow_[e] += rules_.slow * (loads[e] - slow_[e]);
    }
    const double errors = fast_error + slow_error;
    fast_weight_ = errors > 0 ? slow_error / errors : 0.5;
}

std::vector<double> ExpertPredictor::predict() const {
    std::vector<double> loads(fast_.size(), 1);
    if (!seen_) return loads;
    for (std::size_t e = 0; e < loads.size(); ++e)
        loads[e] = fast_weight_ * fast_[e] + (1 - fast_weight_) * slow_[e];
    const double mean =
        std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(loads.size());
    for (double& load : loads)
        load = std::max(load, rules_.floor * mean);
    return loads;
}

std::vector<std::uint8_t> ExpertPredictor::save() const {
    StateWriter out("XPRE", 1);
    out.add(seen_).add(fast_weight_).add(static_cast<std::uint64_t>(fast_.size()));
    for (std::size_t e = 0; e < fast_.size(); ++e)
        out.add(fast_[e]).add(slow_[e]);
    return out.take();
}

Status ExpertPredictor::load(std::span<const std::uint8_t> bytes) {
    StateReader in(bytes, "XPRE", 1);
    const bool seen = in.flag();
    const double fast_weight = in.f64();
    const std::size_t experts = in.count(static_cast<std::size_t>(kExpertsMax));
    if (in.ok() && experts != fast_.size())
        in.fail(invalid_argument("state of {} experts, expected {}", experts, fast_.size()));
    if (in.ok() && !(fast_weight >= 0 && fast_weight <= 1))
        in.fail(invalid_argument("weight {}, expected 0 to 1", fast_weight));
    std::vector<double> fast(fast_.size()), slow(fast_.size());
    for (std::size_t e = 0; e < fast.size() && in.ok(); ++e) {
        fast[e] = in.f64();
        slow[e] = in.f64();
        if (fast[e] < 0 || slow[e] < 0) in.fail(invalid_argument("a load below 0 of expert {}", e));
    }
    FATHOM_RETURN_IF_ERROR(in.finish());
    seen_ = seen;
    fast_weight_ = fast_weight;
    fast_ = std::move(fast);
    slow_ = std::move(slow);
    return {};
}

}  // namespace fathom
