// How many tokens each expert of a layer gets: recorded step by step, and foretold for the next
// period (serving.md 2.3). A step lasts as long as its most loaded rank, so what a placement costs
// is a sum of maxima over steps, which sums of loads cannot tell; hence the window keeps the steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace fathom {

inline constexpr std::int64_t kExpertsMax = 4096;
inline constexpr std::int64_t kWindowStepsMax = 1024;

// The last steps of one layer. One owner.
class ExpertWindow {
  public:
    // experts within [1, kExpertsMax], steps_max within [1, kWindowStepsMax].
    explicit ExpertWindow(std::int64_t experts, std::int64_t steps_max = 100);

    // tokens[e] >= 0 of one step, all ranks together.
    void add(std::span<const std::int32_t> tokens);
    std::int64_t experts() const { return experts_; }
    std::int64_t steps() const { return steps_; }
    std::span<const std::int32_t> step(std::int64_t i) const;  // 0 is the oldest
    std::vector<double> mean() const;                          // tokens of each expert a step
    void clear() { steps_ = next_ = 0; }

    std::vector<std::uint8_t> save() const;
    static Result<ExpertWindow> load(std::span<const std::uint8_t> bytes);

  private:
    std::int64_t experts_, steps_max_;
    std::int64_t steps_ = 0, next_ = 0;
    std::vector<std::int32_t> tokens_;
};

// What the experts of one layer will get, from periods that have passed: a fast and a slow moving
// average, mixed by how well each foretold the last period (1 / mean absolute error). No expert
// counts as less than 5 % of the mean: one that was not seen is not one that will not be.
class ExpertPredictor {
  public:
    struct Rules {
        double fast = 0.6, slow = 0.15;  // weight of the newest period
        double floor = 0.05;
    };
    explicit ExpertPredictor(std::int64_t experts) : ExpertPredictor(experts, Rules{}) {}
    ExpertPredictor(std::int64_t experts, Rules rules);

    // Tokens of each expert in a period, >= 0 and finite, in any unit that stays the same. A period
    // without any is not counted: it says nothing about which expert is popular.
    void observe(std::span<const double> loads);
    // All equal before anything was observed. Adds up to what the last periods did, or more by the
    // floor.
    std::vector<double> predict() const;
    double fast_weight() const { return fast_weight_; }

    std::vector<std::uint8_t> save() const;  // without the rules
    Status load(std::span<const std::uint8_t> bytes);

  private:
    Rules rules_;
    bool seen_ = false;
    double fast_weight_ = 0.5;
    std::vector<double> fast_, slow_;
};

}  // namespace fathom
