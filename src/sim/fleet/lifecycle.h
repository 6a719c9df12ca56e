// When the engines and groups of a fleet come and go (serving.md 1.6, 2.4, 4.2): failures, a
// planned drain, and autoscaling by the live planner (policy/fleet_planner.h). A *unit* is a
// prefill engine or a decode group; engines come first in the numbering.
//
//   off ──start──▶ starting ──start_s──▶ ready ──drain──▶ draining ──▶ off
//                                          └──breaks──▶ broken ──repair_s──▶ ready
//
// How a unit drains is told in drain_side.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "policy/decision_log.h"
#include "policy/fleet_planner.h"
#include "sim/event_queue.h"
#include "sim/fleet/fleet_config.h"
#include "sim/fleet/fleet_event.h"
#include "sim/fleet/fleet_result.h"
#include "sim/sim_random.h"

namespace fathom {

// What the planner is told, as sums since the beginning of the run or as states of now.
struct ScalingSignals {
    double admitted_us = 0;       // Σ predicted prefill of admitted requests, card-time
    double owed_us = 0;           // of admitted ones, what is not done now
    std::int64_t prefill_ns = 0;  // Σ card-time in steps
    std::int64_t decoding = 0;    // requests that decode or wait for it
    std::int64_t hit_tokens = 0, input_tokens = 0;
};

class Lifecycle {
  public:
    class Host {
      public:
        virtual ~Host() = default;
        virtual void unit_off(std::size_t unit) = 0;       // from the start
        virtual void unit_starting(std::size_t unit) = 0;  // its cards are there and do nothing
        virtual void unit_ready(std::size_t unit) = 0;
        virtual bool unit_drains(std::size_t unit) = 0;  // false: it may not (drain_side.h)
        // How long until somebody must look again; below 0: it has drained.
        virtual double drain_wait_s(std::size_t unit) = 0;
        virtual void unit_stops(std::size_t unit) = 0;
        virtual void unit_breaks(std::size_t unit) = 0;
        virtual ScalingSignals scaling_signals() const = 0;
    };
    Lifecycle(const FleetConfig& config, EventQueue& events, Host& host);

    // Before the first event: units that do not run from the start, plans of everything else.
    Status begin();
    // detail: kPlanned of the one breakdown that the configuration plans.
    void on_break(std::size_t unit, std::uint32_t detail);
    void on_repair(std::size_t unit, std::uint32_t turn);
    void on_started(std::size_t unit, std::uint32_t turn);
    void on_drain_begin();
    void on_drain_check(std::size_t unit, std::uint32_t turn);
    void on_plan();

    const ScalingFigures& figures() const { return figures_; }
    std::uint64_t decision_hash() const { return log_.hash(); }
    std::int64_t ready(FleetRole role) const;

  private:
    enum class State : std::uint8_t { off, starting, ready, draining, broken };
    static constexpr std::uint32_t kPlanned = 1;
    struct Unit {
        State state = State::ready;
        std::uint32_t turn = 0;  // grows with each change: late events are told by it
        SimTime since_ns = 0;
        SimRandom failures;
    };

    bool is_engine(std::size_t unit) const {
        return unit < static_cast<std::size_t>(config_.prefill.engines);
    }
    std::size_t begin_of(FleetRole role) const;
    std::size_t end_of(FleetRole role) const;
    std::int64_t cards_of(std::size_t unit) const;
    std::int64_t count(FleetRole role, State state) const;
    void push_after(double seconds, FleetEvent kind, std::size_t unit, std::uint32_t turn = 0);
    void turn_to(std::size_t unit, State state);
    void plan_failure(std::size_t unit);
    void start(std::size_t unit);
    bool drain(std::size_t unit);
    void plan_breaks();
    Status make_planner();
    FleetState planner_state(const ScalingSignals& now);
    void carry_out(FleetRole role, const RoleDecision& decision);

    FleetConfig config_;
    EventQueue& events_;
    Host& host_;
    std::vector<Unit> units_;
    std::optional<FleetPlanner> planner_;
    ScalingSignals before_;
    SimTime planned_ns_ = 0;
    std::array<SimTime, kFleetRoles> changed_ns_ = {-1, -1, -1};
    std::array<std::array<QuotaUse, 1>, kFleetRoles> quotas_{};
    std::array<int, kFleetRoles> direction_{};
    ScalingFigures figures_;
    DecisionLog log_;
};

}  // namespace fathom
