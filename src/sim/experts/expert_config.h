// How the experts of a simulated fleet are chosen and placed (serving.md 2.3, 4.2). By default a
// role's moe_lb is a constant of its costs; with `is_process` it is what the live balancer makes of
// popularities that drift. Values that serving.md gives are its own; the rest is assumed.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace fathom {

struct ExpertRoleConfig {
    std::int64_t spare_slots = 1;  // of a rank and layer, beyond its share of the experts
    double period_s = 60;          // between two plans
    double drift_sigma = 0;        // of a logarithm of popularity around what it is in the long run
    double dispersion = 1;         // κ: variance of an expert's tokens in a step over their mean
};

struct ExpertConfig {
    bool is_process = false;
    bool is_balanced = true;  // false: experts in order, for good
    // False: a plan passes when it is surely better, whatever it moves.
    bool is_move_priced = true;
    // In which a plan must earn what it moves; 0: until the next plan, as the specification has it.
    double horizon_s = 0;
    std::int64_t experts = 384, experts_per_token = 6, layers = 40;
    double popularity_sigma = 0.7;
    double drift_time_s = 600;  // in which drift forgets
    // Topics of the traffic: each likes experts of its own, and its share of the tokens varies.
    std::int64_t topics = 0;
    double topic_sigma = 0.7;   // of a topic's likings, logarithmic
    double topic_drift = 0.3;   // of the logarithm of its share
    double topic_time_s = 120;  // in which that forgets
    ExpertRoleConfig prefill = {.spare_slots = 4, .period_s = 600, .drift_sigma = 0.27};
    ExpertRoleConfig decode = {
        .spare_slots = 1, .period_s = 60, .drift_sigma = 0.05, .dispersion = 1.5};
    double first_s = 10;              // the first plan
    std::int64_t window_steps = 100;  // that a plan looks at
    double sample_s = 0.5;            // one recorded step, of which moe_lb is taken
    // Moving experts.
    std::int64_t expert_bytes = 18'800'000;
    double link_gb_s = 20;
    double link_part = 0.1;
    double interference = 0.1;  // of the time of moves that steps lose, as the gate sees it

    // Names key, value and limit.
    Status check(std::int64_t prefill_ranks, std::int64_t decode_ranks) const;
};

}  // namespace fathom
