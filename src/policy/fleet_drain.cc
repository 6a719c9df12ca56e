#include "policy/fleet_drain.h"

#include <algorithm>

#include "base/check.h"
#include "policy/state_bytes.h"

namespace fathom {

Result<EngineDrain> EngineDrain::begin(std::int64_t now_us, std::uint32_t engine, FleetRole role,
                                       const DrainRules& rules, bool has_room, bool is_forced) {
    if (rules.grace_us < 0 || rules.adopt_us < 0 || rules.pause_us < 0 || rules.pause_steps < 0)
        return invalid_argument("a time of the drain is negative");
    if (!has_room && !is_forced)
        return error(StatusCode::unavailable, "engine {}: no other one has room for its work",
                     engine);
    EngineDrain drain(now_us, engine, role, rules);
    drain.note(now_us, is_forced ? DrainReason::forced : DrainReason::begun);
    return drain;
}

// fields: moving, adopted, resumed, handed back, pauses that were too long.
void EngineDrain::note(std::int64_t now_us, DrainReason reason, std::uint64_t input) {
    log_.note(DecisionKind::fleet_drain, reason, engine_, now_us, input,
              {static_cast<std::int64_t>(moving_.size()), adopted_, resumed_, handed_back_,
               long_pauses_});
}

void EngineDrain::leave(std::int64_t now_us, DrainReason reason, std::vector<DrainWork>& work) {
    phase_ = DrainPhase::gone;
    work.push_back({.kind = DrainWork::Kind::exit, .id = 0});
    note(now_us, reason);
}

std::vector<DrainWork> EngineDrain::tick(std::int64_t now_us,
                                         std::span<const DrainSequence> sequences,
                                         std::int64_t arriving, std::int64_t step_us) {
    std::vector<DrainWork> work;
    if (phase_ == DrainPhase::gone) return work;
    pause_max_us_ =
        std::max(rules_.pause_us, rules_.pause_steps * std::max<std::int64_t>(step_us, 0));
    if (role_ == FleetRole::decode) {
        tick_decode(now_us, sequences, arriving, work);
    } else {
        tick_prefill(now_us, sequences, arriving, work);
    }
    return work;
}

void EngineDrain::tick_prefill(std::int64_t now_us, std::span<const DrainSequence> sequences,
                               std::int64_t arriving, std::vector<DrainWork>& work) {
    const bool is_over = now_us >= begun_us_ + rules_.grace_us;
    bool left = false;
    for (const DrainSequence& sequence : sequences) {
        if (sequence.is_started && !is_over) {
            left = true;
            continue;
        }
        if (!refused_.insert(sequence.id).second) continue;  // on its way back
        ++handed_back_;
        work.push_back({.kind = DrainWork::Kind::hand_back, .id = sequence.id});
    }
    if (is_over || (!left && arriving == 0))
        leave(now_us, is_over && (left || arriving > 0) ? DrainReason::deadline : DrainReason::done,
              work);
}

// Longest first, since they are the hardest to place.
void EngineDrain::move_all(std::span<const DrainSequence> sequences, std::vector<DrainWork>& work) {
    std::vector<DrainSequence> order(sequences.begin(), sequences.end());
    std::sort(order.begin(), order.end(), [](const DrainSequence& a, const DrainSequence& b) {
        return a.kv_tokens > b.kv_tokens || (a.kv_tokens == b.kv_tokens && a.id < b.id);
    });
    for (const DrainSequence& sequence : order)
        if (!refused_.contains(sequence.id) && moving_.emplace(sequence.id, -1).second)
            work.push_back({.kind = DrainWork::Kind::move, .id = sequence.id});
}

void EngineDrain::tick_decode(std::int64_t now_us, std::span<const DrainSequence> sequences,
                              std::int64_t arriving, std::vector<DrainWork>& work) {
    if (phase_ == DrainPhase::grace) {
        if (sequences.empty() && arriving == 0) return leave(now_us, DrainReason::done, work);
        if (now_us < begun_us_ + rules_.grace_us) {
            for (const DrainSequence& sequence : sequences)
                if (sequence.kv_tokens >= rules_.copy_ahead_tokens &&
                    copied_.insert(sequence.id).second)
                    work.push_back({.kind = DrainWork::Kind::copy_ahead, .id = sequence.id});
            return;
        }
        phase_ = DrainPhase::moving;
        Digest digest;
        for (const DrainSequence& sequence : sequences)
            digest.add(sequence.id).add(sequence.kv_tokens);
        move_all(sequences, work);
        note(now_us, DrainReason::frozen, digest.value());
    } else {
        move_all(sequences, work);  // hand-offs that were promised before the notice
    }
    const bool is_over = now_us >= deadline_us();
    if (is_over)
        for (const auto& [id, since] : moving_)
            refused_.insert(id);
    for (const std::uint64_t id : refused_) {
        if (moving_.erase(id) == 0) continue;
        ++resumed_;
        work.push_back({.kind = DrainWork::Kind::resume, .id = id});
    }
    if (is_over || (moving_.empty() && arriving == 0))
        leave(now_us, is_over ? DrainReason::deadline : DrainReason::done, work);
}

bool EngineDrain::stopped(std::int64_t now_us, std::uint64_t id) {
    const auto at = moving_.find(id);
    if (at == moving_.end()) return false;
    at->second = std::max<std::int64_t>(now_us, 0);
    return true;
}

bool EngineDrain::adopted(std::int64_t now_us, std::uint64_t id) {
    const auto at = moving_.find(id);
    if (at == moving_.end() || refused_.contains(id)) return false;
    if (at->second >= 0 && now_us - at->second > pause_max_us_) ++long_pauses_;
    moving_.erase(at);
    refused_.insert(id);  // it has its end
    ++adopted_;
    return true;
}

bool EngineDrain::refused(std::uint64_t id) {
    return moving_.contains(id) && refused_.insert(id).second;
}

bool EngineDrain::ended(std::uint64_t id) {
    const auto at = moving_.find(id);
    if (at == moving_.end() || at->second >= 0) return false;
    moving_.erase(at);
    refused_.insert(id);  // it has its end
    return true;
}

std::vector<std::uint8_t> EngineDrain::save() const {
    StateWriter out("DRAI", 1);
    out.add(std::uint64_t{engine_}).add(static_cast<std::int64_t>(role_)).add(begun_us_);
    out.add(static_cast<std::int64_t>(phase_)).add(pause_max_us_);
    out.add(adopted_).add(resumed_).add(handed_back_).add(long_pauses_);
    for (const std::set<std::uint64_t>* ids : {&copied_, &refused_}) {
        out.add(static_cast<std::uint64_t>(ids->size()));
        for (const std::uint64_t id : *ids)
            out.add(id);
    }
    out.add(static_cast<std::uint64_t>(moving_.size()));
    for (const auto& [id, since] : moving_)
        out.add(id).add(since);
    return out.take();
}

Status EngineDrain::load(std::span<const std::uint8_t> bytes) {
    constexpr std::int64_t kMax = std::int64_t{1} << 62;
    constexpr std::size_t kSequencesMax = 1 << 20;
    StateReader in(bytes, "DRAI", 1);
    const auto engine = static_cast<std::uint32_t>(in.in_range(0, 0xffff'ffff));
    const auto role = static_cast<FleetRole>(in.in_range(0, kFleetRoles - 1));
    EngineDrain next(0, engine, role, rules_);
    next.begun_us_ = in.in_range(-kMax, kMax);
    next.phase_ = static_cast<DrainPhase>(in.in_range(0, 2));
    for (std::int64_t* number : {&next.pause_max_us_, &next.adopted_, &next.resumed_,
                                 &next.handed_back_, &next.long_pauses_})
        *number = in.in_range(0, kMax);
    for (std::set<std::uint64_t>* ids : {&next.copied_, &next.refused_})
        for (std::size_t left = in.count(kSequencesMax); left > 0 && in.ok(); --left)
            ids->insert(in.u64());
    for (std::size_t left = in.count(kSequencesMax); left > 0 && in.ok(); --left) {
        const std::uint64_t id = in.u64();
        next.moving_[id] = in.in_range(-1, kMax);
    }
    FATHOM_RETURN_IF_ERROR(in.finish());
    next.log_ = std::move(log_);
    *this = std::move(next);
    return {};
}

}  // namespace fathom
