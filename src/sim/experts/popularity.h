// Which experts the tokens of one layer choose, over time (serving.md 4.2):
//
//   popularity of e = exp(σ·base_e + drift_e) · (Σ topics share_t · liking_te, with topics)
//
// base is fixed; drift_e and the logarithms of shares are Ornstein-Uhlenbeck processes with a
// deviation and a time in which they forget, exact at the times they are asked for. A step's tokens
// of e have mean ∝ popularity and variance κ · mean: tokens of a sequence choose alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/expert_placement.h"
#include "sim/experts/expert_config.h"
#include "sim/sim_random.h"

namespace fathom {

class ExpertPopularity {
  public:
    // `entity` tells layers and roles apart. Shares of topics are the role's: layers with the same
    // `topic_entity` see the same topics come and go.
    ExpertPopularity(const ExpertConfig& config, double drift_sigma, std::uint64_t seed,
                     std::uint64_t entity, std::uint64_t topic_entity);

    // Times do not go back.
    void advance(double now_s);
    std::span<const double> weights() const { return weights_; }

  private:
    void mix();

    double drift_sigma_, drift_time_s_, topic_drift_, topic_time_s_;
    double now_s_ = 0;
    SimRandom drift_random_, topic_random_;
    std::vector<double> base_, drift_;      // of each expert; drift is logarithmic
    std::vector<double> likings_, shares_;  // [topic][expert]; shares are logarithmic
    std::vector<double> weights_;
};

// Tokens of each expert in a step of `tokens` routed copies, all ranks together, normal about
// their means.
void draw_expert_step(std::span<const double> weights, double tokens, double dispersion,
                      SimRandom& random, std::vector<std::int32_t>& out);

// What a step's tokens make of a placement, when each copy of an expert takes its part at random.
class ExpertSplit {
  public:
    Balance operator()(const ExpertShape& shape, std::span<const std::int32_t> placement,
                       std::span<const std::int32_t> copies, std::span<const std::int32_t> tokens,
                       SimRandom& random);

  private:
    std::vector<double> ranks_, left_;
    std::vector<std::int32_t> to_go_;
};

}  // namespace fathom
