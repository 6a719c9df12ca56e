#include "sim/replay/gap_survival.h"

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

constexpr double kPerDoubling = 4;

// Class 0 is up to a second; class i ends at 2^(i / 4) s.
std::size_t class_of(double seconds) {
    return seconds <= 1 ? 0
                        : static_cast<std::size_t>(std::ceil(kPerDoubling * std::log2(seconds)));
}

}  // namespace

void GapSurvival::count(std::int64_t gap_us, bool is_hidden) {
    const double seconds = static_cast<double>(gap_us) / 1e6;
    const std::size_t index = class_of(seconds);
    if (index >= classes_.size()) classes_.resize(index + 1);
    (is_hidden ? classes_[index].hidden : classes_[index].ended) += 1;
    if (is_hidden) return;
    ++ended_count_;
    longest_s_ = std::max(longest_s_, seconds);
}

void GapSurvival::end_scope() {
    for (const std::int64_t last_us : last_us_)
        if (last_us >= 0) count(now_us_ - last_us, true);
    last_us_.clear();
    now_us_ = 0;
}

void GapSurvival::end() {
    end_scope();
}

void GapSurvival::add(const TraceRequest& request) {
    if (request.new_scope) end_scope();
    now_us_ = std::max(now_us_, request.time_us);
    for (const TraceBlock block : request.blocks) {
        if (block >= last_us_.size()) last_us_.resize(std::size_t{block} + 1, -1);
        std::int64_t& last_us = last_us_[block];
        if (last_us >= 0) count(now_us_ - last_us, false);
        last_us = now_us_;
    }
}

double GapSurvival::survival(double seconds) const {
    double at_risk = 0;
    for (const Class& part : classes_)
        at_risk += part.ended + part.hidden;
    double share = 1;
    const std::size_t end = std::min(classes_.size(), class_of(seconds) + 1);
    for (std::size_t i = 0; i < end; ++i) {
        const Class& part = classes_[i];
        const double exposed = at_risk - part.hidden / 2;
        if (exposed > 0) share *= 1 - std::min(1.0, part.ended / exposed);
        at_risk -= part.ended + part.hidden;
    }
    return share;
}

double GapSurvival::exponent(double from_s, double to_s) const {
    const double from = survival(from_s), to = survival(to_s);
    if (!(from > 0) || !(to > 0) || !(to_s > from_s) || !(from_s > 0)) return 0;
    return std::log(from / to) / std::log(to_s / from_s);
}

}  // namespace fathom
