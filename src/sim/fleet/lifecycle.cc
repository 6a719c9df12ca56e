#include "sim/fleet/lifecycle.h"

#include <algorithm>
#include <cmath>

#include "sim/fleet/decode_side.h"

namespace fathom {
namespace {

constexpr double kNeverS = 4e9;  // beyond any run, and what nanoseconds can hold

constexpr double kPlanS = 1;
// In which a queue shall be gone: what waits is demand as well, else a role that once fell behind
// would be kept just large enough for what comes, and stay behind. The planner's time of growing.
constexpr double kCatchUpS = 10;

}  // namespace

Lifecycle::Lifecycle(const FleetConfig& config, EventQueue& events, Host& host)
    : config_(config),
      events_(events),
      host_(host),
      units_(static_cast<std::size_t>(config.prefill.engines + config.decode.groups)) {
    for (std::size_t unit = 0; unit < units_.size(); ++unit)
        units_[unit].failures = SimRandom(config.seed, unit, SimPurpose::failure);
}

Status Lifecycle::begin() {
    const ScalingConfig& scaling = config_.scaling;
    if (scaling.is_enabled) {
        FATHOM_RETURN_IF_ERROR(make_planner());
        for (const FleetRole role : {FleetRole::prefill, FleetRole::decode}) {
            const std::int64_t first =
                role == FleetRole::prefill ? scaling.prefill_begin : scaling.decode_begin;
            if (first <= 0) continue;
            for (std::size_t unit = begin_of(role) + static_cast<std::size_t>(first);
                 unit < end_of(role); ++unit) {
                turn_to(unit, State::off);
                host_.unit_off(unit);
            }
        }
        push_after(kPlanS, FleetEvent::plan, 0);
    }
    if (config_.drain.at_s > 0) push_after(config_.drain.at_s, FleetEvent::drain_begin, 0);
    for (std::size_t unit = 0; unit < units_.size(); ++unit)
        plan_failure(unit);
    plan_breaks();
    return {};
}

// The first ones: those that a fleet has from its start.
void Lifecycle::plan_breaks() {
    if (config_.failures.at_s <= 0) return;
    const auto some = [&](FleetRole role, std::int64_t wanted) {
        const std::size_t end =
            std::min(end_of(role),
                     begin_of(role) + static_cast<std::size_t>(std::max<std::int64_t>(0, wanted)));
        for (std::size_t unit = begin_of(role); unit < end; ++unit)
            push_after(config_.failures.at_s, FleetEvent::break_down, unit, kPlanned);
    };
    some(FleetRole::prefill, config_.failures.engines);
    some(FleetRole::decode, config_.failures.groups);
}

std::size_t Lifecycle::begin_of(FleetRole role) const {
    return role == FleetRole::prefill ? 0 : static_cast<std::size_t>(config_.prefill.engines);
}
std::size_t Lifecycle::end_of(FleetRole role) const {
    return role == FleetRole::prefill ? begin_of(FleetRole::decode) : units_.size();
}
std::int64_t Lifecycle::cards_of(std::size_t unit) const {
    return is_engine(unit) ? config_.prefill.ranks : config_.decode.ranks;
}

std::int64_t Lifecycle::count(FleetRole role, State state) const {
    std::int64_t found = 0;
    for (std::size_t unit = begin_of(role); unit < end_of(role); ++unit)
        found += units_[unit].state == state ? 1 : 0;
    return found;
}

std::int64_t Lifecycle::ready(FleetRole role) const {
    return count(role, State::ready);
}

void Lifecycle::push_after(double seconds, FleetEvent kind, std::size_t unit, std::uint32_t turn) {
    if (seconds > kNeverS) return;
    events_.push(events_.now_ns() + static_cast<SimTime>(seconds * 1e9),
                 static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(unit), turn);
}

void Lifecycle::turn_to(std::size_t unit, State state) {
    units_[unit].state = state;
    units_[unit].since_ns = events_.now_ns();
    ++units_[unit].turn;
}

void Lifecycle::plan_failure(std::size_t unit) {
    if (config_.failures.card_mtbf_h <= 0) return;
    const double mean_s = config_.failures.card_mtbf_h * 3600 / static_cast<double>(cards_of(unit));
    push_after(units_[unit].failures.exponential(mean_s), FleetEvent::break_down, unit);
}

// The next failure is planned whatever the unit does now; one that is off has nothing to break.
void Lifecycle::on_break(std::size_t unit, std::uint32_t detail) {
    if (detail != kPlanned) plan_failure(unit);
    const State state = units_[unit].state;
    if (state != State::ready && state != State::draining) return;
    host_.unit_breaks(unit);
    turn_to(unit, State::broken);
    changed_ns_[is_engine(unit) ? 0 : 1] = events_.now_ns();
    push_after(config_.failures.repair_s, FleetEvent::repair, unit, units_[unit].turn);
}

void Lifecycle::on_repair(std::size_t unit, std::uint32_t turn) {
    if (units_[unit].turn != turn) return;
    turn_to(unit, State::ready);
    changed_ns_[is_engine(unit) ? 0 : 1] = events_.now_ns();
    host_.unit_ready(unit);
}

void Lifecycle::start(std::size_t unit) {
    turn_to(unit, State::starting);
    host_.unit_starting(unit);
    push_after(config_.scaling.start_s, FleetEvent::started, unit, units_[unit].turn);
}

void Lifecycle::on_started(std::size_t unit, std::uint32_t turn) {
    if (units_[unit].turn != turn) return;
    turn_to(unit, State::ready);
    changed_ns_[is_engine(unit) ? 0 : 1] = events_.now_ns();
    host_.unit_ready(unit);
}

bool Lifecycle::drain(std::size_t unit) {
    if (!host_.unit_drains(unit)) return false;
    turn_to(unit, State::draining);
    ++figures_.drains;
    on_drain_check(unit, units_[unit].turn);
    return true;
}

void Lifecycle::on_drain_begin() {
    const auto take = [&](FleetRole role, std::int64_t wanted) {
        // Where nobody is left to take over it is refused, and one that is forced not tried.
        wanted = std::min(wanted, ready(role) - (config_.drain.is_forced ? 1 : 0));
        for (std::size_t unit = end_of(role); wanted > 0 && unit-- > begin_of(role);) {
            if (units_[unit].state != State::ready) continue;
            if (!drain(unit)) return;
            --wanted;
        }
    };
    take(FleetRole::prefill, config_.drain.engines);
    take(FleetRole::decode, config_.drain.groups);
}

void Lifecycle::on_drain_check(std::size_t unit, std::uint32_t turn) {
    if (units_[unit].turn != turn) return;
    const double wait_s = host_.drain_wait_s(unit);
    if (wait_s >= 0) {
        push_after(wait_s, FleetEvent::drain_check, unit, turn);
        return;
    }
    turn_to(unit, State::off);
    host_.unit_stops(unit);
}

Status Lifecycle::make_planner() {
    const ScalingConfig& scaling = config_.scaling;
    FleetRules rules;
    RoleRules& prefill = rules.roles[static_cast<std::size_t>(FleetRole::prefill)];
    prefill.capacity = scaling.use * 1e6 * static_cast<double>(config_.prefill.ranks);
    prefill.engines_min = scaling.prefill_min;
    prefill.engines_max = config_.prefill.engines;
    RoleRules& decode = rules.roles[static_cast<std::size_t>(FleetRole::decode)];
    const double sequences = DecodeSide::sequences_within(config_.decode, config_.slo.tpot_ms);
    decode.capacity =
        std::max(1.0, scaling.use * sequences * static_cast<double>(config_.decode.ranks));
    decode.load_share = scaling.load_share >= 0
                            ? scaling.load_share
                            : DecodeSide::load_share(config_.decode, scaling.use * sequences);
    rules.window_us = std::llround(scaling.window_s * 1e6);
    rules.shrink_margin = scaling.margin;
    decode.engines_min = scaling.decode_min;
    decode.engines_max = config_.decode.groups;
    rules.roles[static_cast<std::size_t>(FleetRole::encoder)].engines_max = 0;
    FATHOM_ASSIGN(FleetPlanner planner, FleetPlanner::make(rules));
    planner_ = std::move(planner);
    return {};
}

FleetState Lifecycle::planner_state(const ScalingSignals& now) {
    FleetState state;
    const double seconds =
        std::max(1e-3, static_cast<double>(events_.now_ns() - planned_ns_) / 1e9);
    for (const FleetRole role : {FleetRole::prefill, FleetRole::decode}) {
        const auto at = static_cast<std::size_t>(role);
        RoleState& what = state.roles[at];
        what.ready = count(role, State::ready);
        what.starting = count(role, State::starting);
        what.draining = count(role, State::draining);
        what.changed_us = changed_ns_[at] < 0 ? -1 : changed_ns_[at] / 1000;
        what.quotas = quotas_[at];
    }
    RoleState& prefill = state.roles[0];
    prefill.demand = (now.admitted_us - before_.admitted_us) / seconds + now.owed_us / kCatchUpS;
    quotas_[0][0] = {(now.prefill_ns - before_.prefill_ns) / 1000,
                     std::llround(seconds * 1e6 * static_cast<double>(prefill.ready) *
                                  static_cast<double>(config_.prefill.ranks))};
    RoleState& decode = state.roles[1];
    decode.demand = static_cast<double>(now.decoding);
    quotas_[1][0] = {now.decoding,
                     decode.ready * config_.decode.ranks * config_.decode.sequences_max};
    state.hit_tokens = now.hit_tokens - before_.hit_tokens;
    state.prompt_tokens = now.input_tokens - before_.input_tokens;
    return state;
}

void Lifecycle::on_plan() {
    const ScalingSignals now = host_.scaling_signals();
    const FleetState state = planner_state(now);
    const FleetPlan plan = planner_->plan(events_.now_ns() / 1000, state);
    before_ = now;
    planned_ns_ = events_.now_ns();
    for (const FleetRole role : {FleetRole::prefill, FleetRole::decode}) {
        log_.record(plan.record(events_.now_ns() / 1000, role));
        carry_out(role, plan.roles[static_cast<std::size_t>(role)]);
    }
    push_after(kPlanS, FleetEvent::plan, 0);
}

void Lifecycle::carry_out(FleetRole role, const RoleDecision& decision) {
    const auto at = static_cast<std::size_t>(role);
    const int direction = decision.start > 0 ? 1 : decision.drain + decision.cancel > 0 ? -1 : 0;
    if (direction != 0) {
        if (direction_[at] != 0 && direction != direction_[at]) ++figures_.turns[at];
        direction_[at] = direction;
    }
    std::int64_t left = decision.start;
    for (std::size_t unit = begin_of(role); left > 0 && unit < end_of(role); ++unit) {
        if (units_[unit].state != State::off) continue;
        start(unit);
        ++figures_.started;
        --left;
    }
    left = decision.cancel;
    for (std::size_t unit = end_of(role); left > 0 && unit-- > begin_of(role);) {
        if (units_[unit].state != State::starting) continue;
        turn_to(unit, State::off);
        host_.unit_off(unit);
        --left;
    }
    left = decision.drain;
    for (std::size_t unit = end_of(role); left > 0 && unit-- > begin_of(role);) {
        if (units_[unit].state != State::ready) continue;
        if (!drain(unit)) return;
        --left;
    }
}

}  // namespace fathom
