// The realised moe_lb of one layer class (serving.md 2.3.1, 4.2): Σ over steps of the most loaded
// rank ÷ Σ of the mean, when experts lie as the live placement puts them (policy/expert_balancer.h)
// by a window that was recorded some time ago.
//
//   popularity  log-normal with σ; between the window and the steps that count each moves by a
//               log-normal factor with σ_d (drift)
//   a step      expert e gets tokens of mean p_e and variance κ · p_e: tokens of a sequence choose
//               alike
//   copies      each takes its part of them at random
#pragma once

#include <cstdint>

#include "base/result.h"
#include "policy/expert_placement.h"

namespace fathom {

struct ExpertStudy {
    ExpertShape shape;
    std::int64_t tokens_per_rank = 240;  // of a step
    std::int64_t experts_per_token = 6;
    double popularity_sigma = 0.7;
    double drift_sigma = 0;
    double dispersion = 1;  // κ
    std::int64_t recorded = 100, counted = 128, layers = 4;
    bool is_balanced = true;  // false: experts in order, no window
    std::uint64_t seed = 1;
};
struct ExpertStudyResult {
    double realised = 1;
    double expected = 1;  // of the loads that the placement was made for
};
// invalid_argument for a shape that does not pass its check.
Result<ExpertStudyResult> run_expert_study(const ExpertStudy& study);

}  // namespace fathom
