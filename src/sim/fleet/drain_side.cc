#include "sim/fleet/drain_side.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fathom {
namespace {

constexpr std::int64_t kBlock = 128;
constexpr double kGraceTickS = 0.5, kMoveTickS = 0.02;

std::int64_t us_of(double seconds) {
    return std::llround(seconds * 1e6);
}

}  // namespace

DrainSide::DrainSide(const FleetConfig& config, EventQueue& events, PrefillSide& prefill,
                     DecodeSide& decode, Host& host)
    : config_(config), events_(events), prefill_(prefill), decode_(decode), host_(host) {}

bool DrainSide::begin(std::size_t unit) {
    DrainRules rules;
    rules.grace_us = us_of(config_.drain.grace_s);
    rules.adopt_us = us_of(config_.drain.adopt_s);
    const bool has_room = is_engine(unit) ? prefill_.has_room_elsewhere(unit)
                                          : decode_.has_room_elsewhere(group_of(unit));
    auto drain = EngineDrain::begin(events_.now_ns() / 1000, static_cast<std::uint32_t>(unit),
                                    is_engine(unit) ? FleetRole::prefill : FleetRole::decode, rules,
                                    has_room, config_.drain.is_forced);
    if (!drain.ok()) {
        ++figures_.refused;
        return false;
    }
    has_drained_ = true;
    ++figures_.begun;
    drains_.insert_or_assign(unit, Drain{.rules = std::move(*drain), .copied = {}, .moving = {}});
    is_engine(unit) ? prefill_.drain(unit) : decode_.drain(group_of(unit));
    return true;
}

bool DrainSide::tick(std::size_t unit) {
    const auto at = drains_.find(unit);
    if (at == drains_.end()) return true;
    Drain& drain = at->second;
    sequences_.clear();
    std::int64_t arriving = 0;
    double step_us = 0;
    if (is_engine(unit)) {
        prefill_.list(unit, &sequences_);
        arriving = prefill_.ranks_holding(unit);
    } else {
        decode_.list(group_of(unit), &sequences_);
        arriving = decode_.arriving(group_of(unit));
        step_us = decode_.step_us(group_of(unit));
    }
    std::erase_if(sequences_, [&](const DrainSequence& sequence) {
        return drain.moving.contains(static_cast<std::uint32_t>(sequence.id));
    });
    const std::vector<DrainWork> work =
        drain.rules.tick(events_.now_ns() / 1000, sequences_, arriving, std::llround(step_us));
    for (const DrainWork& one : work)
        carry_out(unit, drain, one);
    if (drain.rules.phase() != DrainPhase::gone) return false;
    if (is_engine(unit) && arriving > 0) host_.drop_finished(unit);
    close(drain);
    drains_.erase(at);
    return true;
}

void DrainSide::carry_out(std::size_t unit, Drain& drain, const DrainWork& work) {
    const auto slot = static_cast<std::uint32_t>(work.id);
    switch (work.kind) {
        case DrainWork::Kind::copy_ahead: {
            if (!config_.pool.is_enabled) return;
            const auto from = std::find_if(sequences_.begin(), sequences_.end(),
                                           [&](const DrainSequence& s) { return s.id == work.id; });
            const std::int64_t tokens = from->kv_tokens / kBlock * kBlock;
            drain.copied[slot] = {tokens, host_.copy_ahead(slot, tokens)};
            ++figures_.copied_ahead;
            return;
        }
        case DrainWork::Kind::move:
            if (drain.frozen_ns < 0) drain.frozen_ns = events_.now_ns();
            decode_.leave(group_of(unit), slot);
            return;
        case DrainWork::Kind::resume:
            // One that has not stopped yet is lost when the group does.
            if (drain.moving.erase(slot) > 0) host_.resume_moving(slot);
            return;
        case DrainWork::Kind::hand_back:
            host_.handed_back(work.id, prefill_.hand_back(unit, work.id));
            ++figures_.handed_back;
            return;
        case DrainWork::Kind::exit:
            return;
    }
}

void DrainSide::close(Drain& drain) {
    figures_.adopted += drain.rules.adopted_count();
    figures_.resumed += drain.rules.resumed_count();
    figures_.long_pauses += drain.rules.long_pauses();
    if (drain.frozen_ns >= 0) {
        const bool is_done = drain.rules.resumed_count() == 0 && drain.adopted_ns >= 0;
        const SimTime end_ns = is_done ? drain.adopted_ns : events_.now_ns();
        figures_.moves_ms.add(static_cast<double>(end_ns - drain.frozen_ns) / 1e6);
    }
    hash_.add(drain.rules.log().hash());
}

double DrainSide::wait_s(std::size_t unit) const {
    const Drain& drain = drains_.at(unit);
    const auto to = [&](std::int64_t end_us) {
        return std::max(
            1e-6, static_cast<double>(end_us) / 1e6 - static_cast<double>(events_.now_ns()) / 1e9);
    };
    if (drain.rules.phase() == DrainPhase::moving)
        return std::min(kMoveTickS, to(drain.rules.deadline_us()));
    return std::min(kGraceTickS, to(drain.rules.deadline_us() - us_of(config_.drain.adopt_s)));
}

void DrainSide::broke(std::size_t unit) {
    const auto at = drains_.find(unit);
    if (at == drains_.end()) return;
    for (const std::uint32_t slot : std::exchange(at->second.moving, {}))
        host_.resume_moving(slot);
    close(at->second);
    drains_.erase(at);
}

DrainSide::Drain* DrainSide::of_group(std::size_t group) {
    const auto at = drains_.find(group + static_cast<std::size_t>(config_.prefill.engines));
    return at == drains_.end() ? nullptr : &at->second;
}

bool DrainSide::stopped(std::size_t group, std::uint32_t slot) {
    Drain* drain = of_group(group);
    if (drain == nullptr || !drain->rules.stopped(events_.now_ns() / 1000, slot)) return false;
    drain->moving.insert(slot);
    return true;
}

bool DrainSide::adopted(std::size_t group, std::uint32_t slot) {
    Drain* drain = of_group(group);
    if (drain == nullptr || !drain->rules.adopted(events_.now_ns() / 1000, slot)) return false;
    drain->moving.erase(slot);
    drain->adopted_ns = events_.now_ns();
    return true;
}

bool DrainSide::refused(std::size_t group, std::uint32_t slot) {
    Drain* drain = of_group(group);
    return drain != nullptr && drain->rules.refused(slot);
}

void DrainSide::stayed(std::size_t group, std::uint32_t slot) {
    if (Drain* drain = of_group(group)) (void)drain->rules.ended(slot);
}

std::int64_t DrainSide::copied_tokens(std::size_t group, std::uint32_t slot) const {
    const auto at = drains_.find(group + static_cast<std::size_t>(config_.prefill.engines));
    if (at == drains_.end()) return 0;
    const auto copied = at->second.copied.find(slot);
    const bool is_there =
        copied != at->second.copied.end() && copied->second.there_ns <= events_.now_ns();
    return is_there ? copied->second.tokens : 0;
}

std::uint64_t DrainSide::decision_hash() {
    Digest all = hash_;
    for (auto& [unit, drain] : drains_)
        all.add(drain.rules.log().hash());
    return all.value();
}

}  // namespace fathom
