// One group's change of placements in virtual time: the live leader and ranks
// (policy/expert_switch.h), fetches that take as long as the paced link needs, messages that take
// a turn, and lock-step steps that go on meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/expert_switch.h"
#include "sim/event_queue.h"
#include "sim/experts/expert_figures.h"

namespace fathom {

class SwitchRun {
  public:
    SwitchRun(const ExpertShape& shape, const SwitchRules& rules, std::int64_t layers);

    bool busy() const { return leader_.busy(); }
    const LayerPlacement& map(std::int64_t layer) const { return leader_.map(layer); }
    // Not while busy; the group is whole. next[i] is of layer layers[i].
    void begin(SimTime now_ns, std::span<const std::int64_t> layers,
               std::vector<LayerPlacement> next);
    // To be called every turn_ns(step_us) while busy. Steps take step_us.
    void turn(SimTime now_ns, double step_us);
    SimTime turn_ns(double step_us) const;
    // The group breaks down: what is not committed is dropped. It comes back with the maps in
    // force.
    void lose(SimTime now_ns);

    const SwitchFigures& figures() const { return figures_; }
    std::uint64_t decision_hash() { return leader_.log().hash(); }

  private:
    struct Transfer {
        SwitchFetch fetch;
        SimTime end_ns = 0;
    };
    void deliver(SimTime now_ns);
    void settle(SimTime now_ns);
    std::uint64_t weights_of(std::int64_t layer, std::int32_t expert) const;

    ExpertShape shape_;
    SwitchRules rules_;
    std::int64_t layers_;
    SimTime fetch_ns_ = 0;
    SwitchLeader leader_;
    std::vector<SwitchRank> ranks_;
    std::vector<std::vector<Transfer>> transfers_;  // of each rank, in the order of their ends
    SimTime began_ns_ = 0, turned_ns_ = 0;
    double steps_ = 0;
    std::size_t planned_ = 0, flipped_ = 0;  // layers of the plan
    SwitchFigures figures_;
};

}  // namespace fathom
