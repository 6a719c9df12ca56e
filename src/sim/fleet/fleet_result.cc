#include "sim/fleet/fleet_result.h"

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

constexpr double kClassesPerDoubling = 64;

double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

}  // namespace

void LogHistogram::add(double value) {
    const double clamped = std::max(1.0, value);
    const auto at = static_cast<std::size_t>(std::log2(clamped) * kClassesPerDoubling);
    if (at >= classes_.size()) classes_.resize(at + 1);
    ++classes_[at];
    ++count_;
    sum_ += value;
}

double LogHistogram::percentile(double share) const {
    if (count_ == 0) return 0;
    const auto rank = static_cast<std::int64_t>(
        std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(count_)));
    std::int64_t below = 0;
    for (std::size_t i = 0; i < classes_.size(); ++i) {
        below += classes_[i];
        if (below >= std::max<std::int64_t>(rank, 1))
            return std::exp2((static_cast<double>(i) + 0.5) / kClassesPerDoubling);
    }
    return 0;
}

void LogHistogram::merge(const LogHistogram& other) {
    classes_.resize(std::max(classes_.size(), other.classes_.size()));
    for (std::size_t i = 0; i < other.classes_.size(); ++i)
        classes_[i] += other.classes_[i];
    count_ += other.count_;
    sum_ += other.sum_;
}

std::string_view card_time_name(CardTime kind) {
    constexpr std::string_view kNames[kCardTimes] = {
        "work",    "DP imbalance",   "MoE imbalance", "step fixed cost", "noise and stalls",
        "KV wait", "decode is full", "redone work",   "failures",        "drain and start",
        "idle",    "rejected drafts"};
    return kNames[static_cast<std::size_t>(kind)];
}

void CardLedger::add(const CardLedger& other) {
    for (std::size_t i = 0; i < kCardTimes; ++i)
        ns[i] += other.ns[i];
    total_ns += other.total_ns;
}

std::int64_t CardLedger::sum_ns() const {
    std::int64_t sum = 0;
    for (const std::int64_t part : ns)
        sum += part;
    return sum;
}

double CardLedger::share(CardTime kind) const {
    return ratio(static_cast<double>(ns[static_cast<std::size_t>(kind)]),
                 static_cast<double>(total_ns));
}

double FleetResult::efficiency() const {
    const auto work = static_cast<std::size_t>(CardTime::work);
    return ratio(static_cast<double>(prefill.ns[work] + decode.ns[work]),
                 static_cast<double>(prefill.total_ns + decode.total_ns));
}

double FleetResult::hit_share() const {
    return ratio(static_cast<double>(counted.hit_tokens),
                 static_cast<double>(counted.input_tokens));
}

double FleetResult::card_hours() const {
    return static_cast<double>(prefill.total_ns + decode.total_ns) / 3600e9;
}

double FleetResult::cost_per_million() const {
    const auto tokens = static_cast<double>(served.input_tokens + served.output_tokens);
    return ratio(card_hours() * config.money.card_hour, tokens / 1e6);
}

double FleetResult::revenue_per_card_hour() const {
    const double revenue =
        (static_cast<double>(served.hit_tokens) * config.money.hit_price +
         static_cast<double>(served.input_tokens - served.hit_tokens) * config.money.miss_price +
         static_cast<double>(served.output_tokens) * config.money.output_price) /
        1e6;
    return ratio(revenue, card_hours());
}

}  // namespace fathom
