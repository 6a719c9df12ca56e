// The experts of one role of a simulated fleet: popularities that drift, one recorded step now and
// then, the live balancer at every period (policy/expert_balancer.h), and a switch of placements
// that takes the time it takes (switch_run.h).
//
//   every sample_s   popularity ─▶ a step's tokens ─▶ window of each layer
//                                       └─▶ moe_lb = Σ layers max ÷ Σ layers mean, as placed now
//   every period_s   window ─▶ predictor ─▶ plan_layer ─gate─▶ changed layers ─▶ SwitchRun
//
// All groups of the role have one placement and one popularity: what one of them records stands for
// all, and its failure drops the switch for all. A step's experts are not slowed by moves.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/expert_balancer.h"
#include "sim/experts/expert_figures.h"
#include "sim/experts/popularity.h"
#include "sim/experts/switch_run.h"

namespace fathom {

// What the role's groups have done since the beginning of the run, all together.
struct ExpertTraffic {
    double rank_steps = 0;   // steps, each counted for each of its ranks
    double rank_tokens = 0;  // of these, before routing
    double step_us = 0;      // mean of the newest steps, or what an empty one takes
};

// What the gate needs to know of the role.
struct ExpertRoleFacts {
    std::int64_t ranks = 1;       // of a group
    std::int64_t cards = 1;       // of all groups
    double moe_us_per_token = 0;  // of all layers, of a rank's token at mean load
};

class ExpertRole {
  public:
    // The configuration has passed its check with so many ranks. `index` tells roles apart.
    ExpertRole(const ExpertConfig& config, const ExpertRoleConfig& role,
               const ExpertRoleFacts& facts, std::uint64_t seed, std::uint64_t index);

    // Records a step, if there were any since the last call, and plans when it is time;
    // is_whole: a group is there to be changed. The caller then calls turn() while is_switching().
    void sample(SimTime now_ns, const ExpertTraffic& traffic, bool is_whole);
    bool is_switching() const { return switch_.busy(); }
    SimTime turn_ns() const { return switch_.turn_ns(step_us_); }
    void turn(SimTime now_ns);
    // The group that is being changed has broken down.
    void lose(SimTime now_ns);

    // Of the newest recorded step; 1 before there was one.
    double moe_balance() const { return balance_; }
    // Of those since the last call; the newest where there was none.
    double take_interval_balance();
    void count_from_here() { figures_.realised = {}; }
    ExpertFigures figures();
    const ExpertShape& shape() const { return shape_; }
    std::int64_t expert_bytes() const { return config_.expert_bytes; }

  private:
    struct Layer {
        ExpertPopularity popularity;
        SimRandom steps;
        ExpertWindow window;
        ExpertPredictor predictor;
        std::vector<std::int32_t> copies;  // in force
        bool is_observed = false;
    };
    void record(double now_s, double tokens_per_rank);
    void plan(SimTime now_ns);
    LayerPlan plan_layer_at(SimTime now_ns, std::size_t index, const BalanceRules& rules);
    BalanceRules rules(SimTime now_ns) const;
    void recount();

    ExpertConfig config_;
    ExpertRoleConfig role_;
    ExpertRoleFacts facts_;
    ExpertShape shape_;
    SwitchRun switch_;
    std::vector<Layer> layers_;
    std::vector<std::int32_t> tokens_;
    ExpertSplit split_;
    SimTime due_ns_, planned_ns_ = 0;
    double drifted_s_ = 0, step_us_ = 1;
    ExpertTraffic before_, at_plan_;
    double balance_ = 1;
    Balance interval_;
    ExpertFigures figures_;
    DecisionLog log_;
};

}  // namespace fathom
