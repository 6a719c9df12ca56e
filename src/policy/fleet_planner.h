// How many engines of each role there should be (serving.md 2.4). The planner is told every second
// or so what a role does and has, and answers with what to start, cancel or drain. It owns
// smoothing and caution; it does not know what an engine is.
//
//   demand ──┬─ EWMA 30 s ─┐
//            ├─ last 10 s ─┴─ max ──┬─▶ target to grow to   (a forecast may raise it)
//            └──────────────────────┴─ max of 5 minutes + 5 % ─▶ target to shrink to
//
// Growth is quick (a quarter of what there is, every 10 s, also while others still start),
// shrinking slow (5 % every 60 s) and forbidden whenever it could be regretted: see FleetReason.
// Engines that are still starting are no capacity, are not started twice, are cancelled first, and
// hold nobody up. Prefill and decode are never without each other. Constant demand changes nothing;
// no traffic is a demand of 0.
//
// In a full cluster a role grows by engines of another one that has too many: those are drained and
// become the other role, under the same guards as any shrinking. Until then they count as draining
// there and as starting (and `converting`) here.
//
// The 5 % above the maximum of 5 minutes (shrink_margin) are this planner's own: without them a
// load that reaches the edge of an engine less than once in 5 minutes starts one each time, and
// drains it 5 minutes later. With them the edge of shrinking lies below that of growing, which
// costs at most 5 % and an engine. 0: the maximum itself.
//
// A planner that has just begun knows no maximum of 5 minutes: it does not shrink before it does.
//
// What runs at a time depends on who serves it: fewer engines have longer steps, so each request
// runs longer. The planner shrinks only to what carries the demand as it will be then (load_share);
// else the last engine that was started lowers the demand that it was started for.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/result.h"
#include "policy/decision_log.h"

namespace fathom {

enum class FleetRole : std::size_t { prefill, decode, encoder };
inline constexpr std::size_t kFleetRoles = 3;

// Values are part of the format of logs: append only.
enum class FleetReason : std::uint16_t {
    steady = 0,
    grow = 1,
    grow_cooldown = 2,
    starting = 3,  // what is missing has been started
    cancel = 4,    // engines that were starting are not needed any more
    shrink = 5,
    shrink_cooldown = 6,
    // Shrinking is forbidden:
    quota = 7,        // more than 0.8 of some quota is used
    quota_after = 8,  // it would be, with fewer engines
    draining = 9,     // one of the role is on its way out
    unsettled = 10,   // one was lost, or became ready, within 60 s
    hit_rate = 11,    // the pool's fell by more than 2 points in 5 minutes: misses are coming
    coupled = 12,     // prefill or decode would be without the other
    full = 13,        // no cards are left to grow
    convert = 14,     // grows by engines of another role
    given = 15,       // engines are drained to become another role
    unwatched = 16,   // forbids: the window is not full since the planner began
};

struct RoleRules {
    // Work that one engine does at the utilisation wanted (0.8), in the unit of demand: prefill:
    // cost of missed tokens; decode: running requests at the latency target; encoder: patches. > 0.
    double capacity = 1;
    std::int64_t engines_min = 0, engines_max = 1'000'000;
    std::int64_t cards = 1;  // of an engine
    // The part of an engine's time at `capacity` that grows with its load, in [0, 1). Where demand
    // is what runs at a time (decode), fewer engines make steps longer, and more runs then. 0:
    // demand does not depend on how many engines serve it.
    double load_share = 0;
};

struct FleetRules {
    std::array<RoleRules, kFleetRoles> roles;
    std::int64_t grow_cooldown_us = 10'000'000, shrink_cooldown_us = 60'000'000;
    std::int64_t settle_us = 60'000'000;
    double quota_max = 0.8, hit_fall_max = 0.02;
    std::int64_t window_us = 300'000'000;  // whose maximum shrinking follows, 10 s to an hour
    double shrink_margin = 0.05;           // shrinking leaves so much above it
    std::int64_t cards_max = 0;            // of the cluster; 0: no limit, and no conversions
    // converts[from][to]: cards of the one can serve as the other.
    std::array<std::array<bool, kFleetRoles>, kFleetRoles> converts{};
};

struct QuotaUse {                      // compute, slots, KV, tenants: each that there is
    std::int64_t used = 0, limit = 0;  // limit 0: there is no such quota
};

struct RoleState {
    double demand = 0;    // now, >= 0; not a number counts as 0
    double forecast = 0;  // what the target must carry at least
    std::int64_t ready = 0, starting = 0, draining = 0;
    std::int64_t converting = 0;   // of the starting: on cards that another role is draining
    std::int64_t changed_us = -1;  // when one was last lost or became ready; -1: never
    std::span<const QuotaUse> quotas = {};
};

struct FleetState {
    std::array<RoleState, kFleetRoles> roles;
    std::int64_t hit_tokens = 0, prompt_tokens = 0;  // of the pool, since the last plan
};

struct RoleDecision {
    FleetReason reason = FleetReason::steady;
    std::int64_t target = 0;
    std::int64_t start = 0, cancel = 0, drain = 0;
};

// Of the drained engines of `from`, `drain` become `start` engines of `to` (beside its own start).
struct FleetConversion {
    FleetRole from = FleetRole::prefill, to = FleetRole::prefill;
    std::int64_t drain = 0, start = 0;  // 0: none
};

struct FleetPlan {
    std::array<RoleDecision, kFleetRoles> roles;
    FleetConversion conversion;  // at most one a plan
    std::uint64_t input_digest = 0;
    // fields: target, start, cancel, drain, engines of the role that a conversion gives or takes.
    DecisionRecord record(std::int64_t now_us, FleetRole role) const;
};

class FleetPlanner {
  public:
    // invalid_argument names the rule and the limit.
    static Result<FleetPlanner> make(const FleetRules& rules);

    // now_us never falls; two plans within a second count as one sample.
    FleetPlan plan(std::int64_t now_us, const FleetState& state);

    std::vector<std::uint8_t> save() const;  // without the rules
    Status load(std::span<const std::uint8_t> bytes);

  private:
    struct Sample {
        std::int64_t at_us = 0;
        double raw = 0, smooth = 0;
    };
    struct Role {
        double ewma = 0;
        std::int64_t begun_us = kNever;  // the first plan
        std::deque<Sample> samples;      // of the window, at most one a second
        std::int64_t grown_us = kNever, shrunk_us = kNever;
    };
    struct HitSample {
        std::int64_t at_us = 0;
        double rate = 0;
    };
    static constexpr std::int64_t kNever = -(std::int64_t{1} << 60);

    explicit FleetPlanner(const FleetRules& rules) : rules_(rules) {}
    std::int64_t shrink_target(const RoleRules& rules, std::int64_t ready, double highest) const;
    double observe(Role& role, std::int64_t now_us, double demand);
    void observe_hits(std::int64_t now_us, const FleetState& state);
    RoleDecision decide(std::size_t index, std::int64_t now_us, const RoleState& state);
    void shrink(std::size_t index, std::int64_t now_us, const RoleState& state,
                RoleDecision& decision);
    FleetReason forbids(const Role& role, std::int64_t now_us, const RoleState& state) const;
    void couple(const FleetState& state, FleetPlan& plan) const;
    void fit(const FleetState& state, FleetPlan& plan) const;
    bool convert(const FleetState& state, std::size_t to, std::int64_t missing, std::int64_t free,
                 FleetPlan& plan) const;

    FleetRules rules_;
    std::array<Role, kFleetRoles> roles_;
    std::deque<HitSample> hits_;
    bool hit_fell_ = false;
};

}  // namespace fathom
