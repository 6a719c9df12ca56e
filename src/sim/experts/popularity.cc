#include "sim/experts/popularity.h"

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

void forget(std::vector<double>& values, double sigma, double time_s, double passed_s,
            SimRandom& random) {
    const double kept = std::exp(-passed_s / time_s);
    const double fresh = sigma * std::sqrt(1 - kept * kept);
    for (double& value : values)
        value = kept * value + fresh * random.normal();
}

}  // namespace

ExpertPopularity::ExpertPopularity(const ExpertConfig& config, double drift_sigma,
                                   std::uint64_t seed, std::uint64_t entity,
                                   std::uint64_t topic_entity)
    : drift_sigma_(drift_sigma),
      drift_time_s_(config.drift_time_s),
      topic_drift_(config.topic_drift),
      topic_time_s_(config.topic_time_s),
      drift_random_(seed, entity, SimPurpose::popularity),
      topic_random_(seed, topic_entity, SimPurpose::topic),
      weights_(static_cast<std::size_t>(config.experts)) {
    for (std::size_t e = 0; e < weights_.size(); ++e)
        base_.push_back(drift_random_.log_normal(1, config.popularity_sigma));
    for (std::size_t i = 0; i < weights_.size() * static_cast<std::size_t>(config.topics); ++i)
        likings_.push_back(drift_random_.log_normal(1, config.topic_sigma));
    if (drift_sigma_ > 0)
        for (std::size_t e = 0; e < weights_.size(); ++e)
            drift_.push_back(drift_sigma_ * drift_random_.normal());
    for (std::int64_t t = 0; t < config.topics; ++t)
        shares_.push_back(topic_drift_ * topic_random_.normal());
    mix();
}

void ExpertPopularity::advance(double now_s) {
    const double passed_s = now_s - now_s_;
    if (!(passed_s > 0) || (drift_.empty() && shares_.empty())) return;
    now_s_ = now_s;
    forget(drift_, drift_sigma_, drift_time_s_, passed_s, drift_random_);
    forget(shares_, topic_drift_, topic_time_s_, passed_s, topic_random_);
    mix();
}

void ExpertPopularity::mix() {
    weights_ = base_;
    if (!shares_.empty()) {
        std::vector<double> liked(weights_.size());
        for (std::size_t t = 0; t < shares_.size(); ++t) {
            const double share = std::exp(shares_[t]);
            for (std::size_t e = 0; e < liked.size(); ++e)
                liked[e] += share * likings_[t * liked.size() + e];
        }
        for (std::size_t e = 0; e < liked.size(); ++e)
            weights_[e] *= liked[e];
    }
    for (std::size_t e = 0; e < drift_.size(); ++e)
        weights_[e] *= std::exp(drift_[e]);
}

void draw_expert_step(std::span<const double> weights, double tokens, double dispersion,
                      SimRandom& random, std::vector<std::int32_t>& out) {
    double sum = 0;
    for (const double weight : weights)
        sum += weight;
    out.clear();
    for (const double weight : weights) {
        const double mean = tokens * weight / sum;
        const double drawn = mean + std::sqrt(dispersion * mean) * random.normal();
        out.push_back(static_cast<std::int32_t>(std::lround(std::max(0.0, drawn))));
    }
}

Balance ExpertSplit::operator()(const ExpertShape& shape, std::span<const std::int32_t> placement,
                                std::span<const std::int32_t> copies,
                                std::span<const std::int32_t> tokens, SimRandom& random) {
    left_.assign(tokens.begin(), tokens.end());
    to_go_.assign(copies.begin(), copies.end());
    ranks_.assign(static_cast<std::size_t>(shape.ranks), 0);
    // One of `count` copies takes its part of what is left, a binomial number.
    const auto take = [&](double all, std::int32_t count) {
        if (count <= 1) return all;
        const double share = 1.0 / count;
        const double drawn = all * share + std::sqrt(all * share * (1 - share)) * random.normal();
        return std::clamp(std::round(drawn), 0.0, all);
    };
    for (std::size_t slot = 0; slot < placement.size(); ++slot) {
        if (placement[slot] < 0) continue;
        const auto e = static_cast<std::size_t>(placement[slot]);
        const double part = take(left_[e], to_go_[e]--);
        left_[e] -= part;
        ranks_[slot / static_cast<std::size_t>(shape.slots)] += part;
    }
    double sum = 0;
    for (const double load : ranks_)
        sum += load;
    return {.max_sum = *std::max_element(ranks_.begin(), ranks_.end()),
            .mean_sum = sum / static_cast<double>(shape.ranks)};
}

}  // namespace fathom
