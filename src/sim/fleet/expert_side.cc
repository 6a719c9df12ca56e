#include "sim/fleet/expert_side.h"

#include <algorithm>
#include <utility>

namespace fathom {
namespace {

ExpertRoleFacts prefill_facts(const FleetConfig& config) {
    const PrefillCost& cost = config.prefill.policy.costs[0];
    return {.ranks = config.prefill.ranks,
            .cards = config.prefill_cards(),
            .moe_us_per_token = cost.moe_share * cost.k1_us};
}

ExpertRoleFacts decode_facts(const FleetConfig& config) {
    return {.ranks = config.decode.ranks,
            .cards = config.decode_cards(),
            .moe_us_per_token =
                config.decode.policy.cost.moe_us * static_cast<double>(config.decode.ranks)};
}

}  // namespace

ExpertSide::ExpertSide(const FleetConfig& config, EventQueue& events, PrefillSide& prefill,
                       DecodeSide& decode)
    : config_(config),
      events_(events),
      prefill_(prefill),
      decode_(decode),
      roles_{ExpertRole(config.experts, config.experts.prefill, prefill_facts(config), config.seed,
                        kPrefill),
             ExpertRole(config.experts, config.experts.decode, decode_facts(config), config.seed,
                        kDecode)} {
    for (const std::size_t role : {kPrefill, kDecode})
        push(static_cast<SimTime>(config_.experts.sample_s * 1e9), FleetEvent::expert_sample, role);
}

void ExpertSide::push(SimTime after_ns, FleetEvent kind, std::size_t role) {
    events_.push(events_.now_ns() + after_ns, static_cast<std::uint32_t>(kind),
                 static_cast<std::uint32_t>(role));
}

void ExpertSide::on_event(const SimEvent& event) {
    switch (static_cast<FleetEvent>(event.kind)) {
        case FleetEvent::expert_sample:
            on_sample(event.subject);
            return;
        case FleetEvent::expert_turn:
            on_turn(event.subject);
            return;
        default:
            return;
    }
}

ExpertTraffic ExpertSide::prefill_traffic() {
    const double rank_steps =
        static_cast<double>(prefill_.steps()) * static_cast<double>(config_.prefill.ranks);
    Counters& last = counters_[kPrefill];
    const double steps = rank_steps - std::exchange(last.rank_steps, rank_steps);
    const std::int64_t ns = prefill_.step_ns() - std::exchange(last.step_ns, prefill_.step_ns());
    return {.rank_steps = rank_steps,
            .rank_tokens = static_cast<double>(prefill_.computed_tokens()),
            .step_us = steps > 0 ? static_cast<double>(ns) / 1000 / steps
                                 : config_.prefill.policy.costs[0].fixed_us()};
}

ExpertTraffic ExpertSide::decode_traffic() {
    Counters& last = counters_[kDecode];
    const double steps =
        decode_.rank_steps() - std::exchange(last.rank_steps, decode_.rank_steps());
    const double sequences =
        decode_.sequence_steps() - std::exchange(last.sequence_steps, decode_.sequence_steps());
    const std::int64_t ns = decode_.step_ns() - std::exchange(last.step_ns, decode_.step_ns());
    const DecodeCost& cost = config_.decode.policy.cost;
    double step_us = cost.c0_us + cost.a0_us;
    if (steps > 0) {
        const double each = sequences / steps;
        decode_rows_ += sequences * DecodeSide::speculation_at(config_.decode, each).rows;
        step_us = static_cast<double>(ns) / 1000 / steps;
    }
    if (const VerifySide* drafts = decode_.drafts())
        decode_rows_ = static_cast<double>(drafts->all().rows);
    return {.rank_steps = decode_.rank_steps(), .rank_tokens = decode_rows_, .step_us = step_us};
}

bool ExpertSide::find_carrier(std::size_t role) {
    const bool is_prefill = role == kPrefill;
    const auto units =
        static_cast<std::size_t>(is_prefill ? config_.prefill.engines : config_.decode.groups);
    for (std::size_t unit = 0; unit < units; ++unit) {
        if (!(is_prefill ? prefill_.is_up(unit) : decode_.is_up(unit))) continue;
        carriers_[role] = {unit, is_prefill ? prefill_.epoch(unit) : decode_.epoch(unit)};
        return true;
    }
    return false;
}

bool ExpertSide::is_carried(std::size_t role) const {
    const Carrier& carrier = carriers_[role];
    return role == kPrefill
               ? prefill_.is_up(carrier.unit) && prefill_.epoch(carrier.unit) == carrier.epoch
               : decode_.is_up(carrier.unit) && decode_.epoch(carrier.unit) == carrier.epoch;
}

void ExpertSide::on_sample(std::size_t index) {
    ExpertRole& role = roles_[index];
    const ExpertTraffic traffic = index == kPrefill ? prefill_traffic() : decode_traffic();
    const bool was_switching = role.is_switching();
    role.sample(events_.now_ns(), traffic, was_switching || find_carrier(index));
    if (!was_switching && role.is_switching()) push(role.turn_ns(), FleetEvent::expert_turn, index);
    const double balance = std::max(1.0, role.moe_balance());
    index == kPrefill ? prefill_.set_moe_balance(balance) : decode_.set_moe_balance(balance);
    push(static_cast<SimTime>(config_.experts.sample_s * 1e9), FleetEvent::expert_sample, index);
}

void ExpertSide::on_turn(std::size_t index) {
    ExpertRole& role = roles_[index];
    if (!is_carried(index)) role.lose(events_.now_ns());
    role.turn(events_.now_ns());
    if (role.is_switching()) push(role.turn_ns(), FleetEvent::expert_turn, index);
}

void ExpertSide::count_from_here() {
    for (ExpertRole& role : roles_)
        role.count_from_here();
}

void ExpertSide::add_to(FleetSample& sample) {
    for (std::size_t role = 0; role < roles_.size(); ++role)
        sample.moe_balance[role] = roles_[role].take_interval_balance();
}

std::uint64_t ExpertSide::finish(FleetResult& result) {
    Digest digest;
    for (std::size_t role = 0; role < roles_.size(); ++role) {
        result.experts[role] = roles_[role].figures();
        digest.add(result.experts[role].decisions);
    }
    return digest.value();
}

}  // namespace fathom
