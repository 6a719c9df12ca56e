#include "policy/fleet_planner.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "policy/state_bytes.h"

namespace fathom {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000;
constexpr std::int64_t kEwmaUs = 30 * kSecondUs, kRecentUs = 10 * kSecondUs;
constexpr std::int64_t kHitWindowUs = 300 * kSecondUs;
constexpr std::int64_t kEnginesMax = 1'000'000;
constexpr std::int64_t kWindowMaxUs = 3600 * kSecondUs;
constexpr std::size_t kSamplesMax = 3700;

double clean(double value) {
    return value > 0 && std::isfinite(value) ? value : 0;
}

std::int64_t engines_for(double demand, const RoleRules& rules) {
    // A demand that is exactly that of n engines must not need n + 1 by rounding.
    const double engines = std::ceil(clean(demand) / rules.capacity * (1 - 1e-6));
    const double most = static_cast<double>(rules.engines_max);
    return std::max(rules.engines_min, static_cast<std::int64_t>(std::min(engines, most)));
}

double use_of(std::span<const QuotaUse> quotas) {
    double most = 0;
    for (const QuotaUse& quota : quotas)
        if (quota.limit > 0)
            most =
                std::max(most, static_cast<double>(quota.used) / static_cast<double>(quota.limit));
    return most;
}

}  // namespace

DecisionRecord FleetPlan::record(std::int64_t now_us, FleetRole role) const {
    const RoleDecision& decision = roles[static_cast<std::size_t>(role)];
    return {.kind = DecisionKind::fleet_plan,
            .reason = static_cast<std::uint16_t>(decision.reason),
            .actor = static_cast<std::uint32_t>(role),
            .now_us = now_us,
            .input_digest = input_digest,
            .fields = {decision.target, decision.start, decision.cancel, decision.drain,
                       role == conversion.to ? conversion.start
                                             : (role == conversion.from ? conversion.drain : 0)}};
}

Result<FleetPlanner> FleetPlanner::make(const FleetRules& rules) {
    for (const RoleRules& role : rules.roles) {
        if (!(role.capacity > 0) || !std::isfinite(role.capacity))
            return invalid_argument("capacity: {}, expected a number above 0", role.capacity);
        if (role.engines_min < 0 || role.engines_max < role.engines_min ||
            role.engines_max > kEnginesMax)
            return invalid_argument("engines: {} to {}, expected a range within 0 to {}",
                                    role.engines_min, role.engines_max, kEnginesMax);
        if (role.cards < 1 || role.cards > kEnginesMax)
            return invalid_argument("cards: {}, expected 1 to {}", role.cards, kEnginesMax);
        if (!(role.load_share >= 0 && role.load_share < 1))
            return invalid_argument("load_share: {}, expected at least 0, below 1",
                                    role.load_share);
    }
    if (rules.grow_cooldown_us < 0 || rules.shrink_cooldown_us < 0 || rules.settle_us < 0)
        return invalid_argument("a cooldown is negative");
    if (!(rules.quota_max > 0 && rules.quota_max <= 1))
        return invalid_argument("quota_max: {}, expected above 0, at most 1", rules.quota_max);
    if (rules.window_us < kRecentUs || rules.window_us > kWindowMaxUs)
        return invalid_argument("window_us: {}, expected {} to {}", rules.window_us, kRecentUs,
                                kWindowMaxUs);
    if (!(rules.shrink_margin >= 0 && rules.shrink_margin <= 1))
        return invalid_argument("shrink_margin: {}, expected 0 to 1", rules.shrink_margin);
    return FleetPlanner(rules);
}

// What growth follows.
double FleetPlanner::observe(Role& role, std::int64_t now_us, double demand) {
    if (role.samples.empty()) {
        role.ewma = demand;
        role.begun_us = now_us;
    } else {
        // The weight of a gap dt is dt / (30 s + dt): the exponential's to first order, without it.
        const auto gap =
            static_cast<double>(std::max<std::int64_t>(now_us - role.samples.back().at_us, 0));
        role.ewma += gap / (static_cast<double>(kEwmaUs) + gap) * (demand - role.ewma);
    }
    double sum = demand, count = 1;
    for (auto sample = role.samples.rbegin();
         sample != role.samples.rend() && sample->at_us > now_us - kRecentUs; ++sample) {
        sum += sample->raw;
        ++count;
    }
    const double smooth = std::max(role.ewma, sum / count);
    if (!role.samples.empty() && now_us - role.samples.back().at_us < kSecondUs) {
        role.samples.back().smooth = std::max(role.samples.back().smooth, smooth);
        return smooth;
    }
    role.samples.push_back({now_us, demand, smooth});
    while (role.samples.front().at_us < now_us - rules_.window_us)
        role.samples.pop_front();
    return smooth;
}

void FleetPlanner::observe_hits(std::int64_t now_us, const FleetState& state) {
    if (state.prompt_tokens > 0 && (hits_.empty() || now_us - hits_.back().at_us >= kSecondUs))
        hits_.push_back({now_us, static_cast<double>(state.hit_tokens) /
                                     static_cast<double>(state.prompt_tokens)});
    while (!hits_.empty() && hits_.front().at_us < now_us - kHitWindowUs)
        hits_.pop_front();
    // Means of the last 10 s and of the 10 s with the best rate before: single plans are noisy.
    double recent = 0, best = 0;
    for (std::size_t end = hits_.size(); end > 0;) {
        double sum = 0;
        std::size_t first = end;
        while (first > 0 && hits_[first - 1].at_us > hits_[end - 1].at_us - kRecentUs)
            sum += hits_[--first].rate;
        const double mean = sum / static_cast<double>(end - first);
        if (end == hits_.size()) recent = mean;
        best = std::max(best, mean);
        end = first;
    }
    hit_fell_ = best - recent > rules_.hit_fall_max;
}

FleetReason FleetPlanner::forbids(const Role& role, std::int64_t now_us,
                                  const RoleState& state) const {
    if (now_us - role.begun_us < rules_.window_us) return FleetReason::unwatched;
    if (use_of(state.quotas) > rules_.quota_max) return FleetReason::quota;
    if (state.draining > 0) return FleetReason::draining;
    if (state.changed_us >= 0 && now_us - state.changed_us < rules_.settle_us)
        return FleetReason::unsettled;
    if (hit_fell_) return FleetReason::hit_rate;
    return FleetReason::shrink;
}

void FleetPlanner::shrink(std::size_t index, std::int64_t now_us, const RoleState& state,
                          RoleDecision& decision) {
    if (now_us - roles_[index].shrunk_us < rules_.shrink_cooldown_us) {
        decision.reason = FleetReason::shrink_cooldown;
        return;
    }
    decision.reason = forbids(roles_[index], now_us, state);
    if (decision.reason != FleetReason::shrink) return;
    std::int64_t remove =
        std::min(state.ready - decision.target, std::max<std::int64_t>(1, state.ready / 20));
    const double used = use_of(state.quotas) * static_cast<double>(state.ready);
    while (remove > 0 &&
           used > rules_.quota_max * static_cast<double>(state.ready - remove) * (1 + 1e-12))
        --remove;
    decision.drain = remove;
    if (remove == 0) decision.reason = FleetReason::quota_after;
}

// The fewest engines that would carry the window's maximum as it would be with them. Work that
// takes the part `load_share` of a full engine's time fills (n / m) times as much of each of m as
// of n, so that steps, and with them what runs at a time, grow by (1 - share) / (1 - share n / m).
std::int64_t FleetPlanner::shrink_target(const RoleRules& rules, std::int64_t ready,
                                         double highest) const {
    const double wanted = highest * (1 + rules_.shrink_margin);
    std::int64_t target = engines_for(wanted, rules);
    for (; target < ready && rules.load_share > 0; ++target) {
        const double filled = rules.load_share * static_cast<double>(ready) /
                              static_cast<double>(std::max<std::int64_t>(target, 1));
        if (filled >= 1) continue;
        if (engines_for(wanted * (1 - rules.load_share) / (1 - filled), rules) <= target) break;
    }
    return target;
}

RoleDecision FleetPlanner::decide(std::size_t index, std::int64_t now_us, const RoleState& state) {
    Role& role = roles_[index];
    const RoleRules& rules = rules_.roles[index];
    const double demand = observe(role, now_us, clean(state.demand));
    double highest = demand;
    for (const Sample& sample : role.samples)
        highest = std::max(highest, sample.smooth);
    const double forecast = clean(state.forecast);
    const std::int64_t grow_to = engines_for(std::max(demand, forecast), rules);
    const std::int64_t shrink_to = std::max({grow_to, shrink_target(rules, state.ready, highest)});

    RoleDecision decision;
    decision.target = std::clamp(state.ready, grow_to, shrink_to);
    const std::int64_t total = state.ready + state.starting;
    if (state.starting > 0 && total > shrink_to) {
        decision.cancel = std::min(state.starting, total - shrink_to);
        decision.reason = FleetReason::cancel;
    }
    if (state.ready < grow_to) {
        const std::int64_t step = std::max<std::int64_t>(1, state.ready / 4);
        const std::int64_t missing = std::min(grow_to - total, step);
        if (decision.cancel > 0) return decision;
        if (missing <= 0) {
            decision.reason = FleetReason::starting;
        } else if (now_us - role.grown_us < rules_.grow_cooldown_us) {
            decision.reason = FleetReason::grow_cooldown;
        } else {
            decision.reason = FleetReason::grow;
            decision.start = missing;
        }
    } else if (state.ready > shrink_to) {
        const FleetReason before = decision.reason;
        shrink(index, now_us, state, decision);
        if (decision.drain == 0 && decision.cancel > 0) decision.reason = before;
    }
    return decision;
}

// Prefill and decode: none without the other. What would leave one alone is not drained; what is
// needed beside the other is started, whatever its own demand.
void FleetPlanner::couple(const FleetState& state, FleetPlan& plan) const {
    const auto left = [&](std::size_t i) {
        const RoleState& own = state.roles[i];
        const RoleDecision& decision = plan.roles[i];
        return own.ready + own.starting + decision.start - decision.cancel - decision.drain;
    };
    constexpr std::size_t kPrefill = 0, kDecode = 1;
    for (const std::size_t self : {kPrefill, kDecode}) {
        const std::size_t other = self == kPrefill ? kDecode : kPrefill;
        RoleDecision& decision = plan.roles[self];
        if (left(self) > 0 || left(other) <= 0) continue;
        decision.target = std::max<std::int64_t>(decision.target, 1);
        decision.reason = FleetReason::coupled;
        if (decision.drain > 0) {
            --decision.drain;
        } else if (decision.cancel > 0) {
            --decision.cancel;
        } else {
            decision.start = 1;
        }
    }
}

// Enough engines of another role, which has too many, for at least one of `to`: no more than are
// missing, and none that a guard keeps.
bool FleetPlanner::convert(const FleetState& state, std::size_t to, std::int64_t missing,
                           std::int64_t free, FleetPlan& plan) const {
    const std::int64_t to_cards = rules_.roles[to].cards;
    for (std::size_t from = 0; from < kFleetRoles; ++from) {
        RoleDecision& donor = plan.roles[from];
        if (from == to || !rules_.converts[from][to] || donor.reason != FleetReason::shrink)
            continue;
        const std::int64_t cards = rules_.roles[from].cards;
        const auto engines = [cards](std::int64_t n) { return (n + cards - 1) / cards; };
        const std::int64_t least = engines(to_cards - free);
        const std::int64_t most = engines(missing * to_cards - free);
        const std::int64_t given = std::clamp(donor.drain, least, most);
        const std::int64_t left = state.roles[from].ready - given;
        const double used =
            use_of(state.roles[from].quotas) * static_cast<double>(state.roles[from].ready);
        if (left < std::max<std::int64_t>(donor.target, 1) ||
            used > rules_.quota_max * static_cast<double>(left) * (1 + 1e-12))
            continue;
        donor.drain = std::max(donor.drain, given);
        donor.reason = FleetReason::given;
        plan.conversion = {.from = static_cast<FleetRole>(from),
                           .to = static_cast<FleetRole>(to),
                           .drain = given,
                           .start = std::min(missing, (free + given * cards) / to_cards)};
        return true;
    }
    return false;
}

// Starts take the cards that are left, then those of a conversion.
void FleetPlanner::fit(const FleetState& state, FleetPlan& plan) const {
    if (rules_.cards_max <= 0) return;
    std::int64_t free = rules_.cards_max;
    for (std::size_t i = 0; i < kFleetRoles; ++i) {
        const RoleState& role = state.roles[i];
        free -= rules_.roles[i].cards * (role.ready + role.starting - role.converting +
                                         role.draining - plan.roles[i].cancel);
    }
    for (std::size_t i = 0; i < kFleetRoles; ++i) {
        RoleDecision& decision = plan.roles[i];
        if (decision.start == 0) continue;
        const std::int64_t cards = rules_.roles[i].cards;
        const std::int64_t wanted = decision.start;
        decision.start = std::clamp<std::int64_t>(free / cards, 0, wanted);
        free -= decision.start * cards;
        const std::int64_t missing = wanted - decision.start;
        if (missing == 0) continue;
        const bool has_conversion = plan.conversion.start > 0;
        if (!has_conversion && convert(state, i, missing, std::max<std::int64_t>(free, 0), plan)) {
            decision.reason = FleetReason::convert;
            free = 0;  // the conversion counts on what was left
        } else if (decision.start == 0) {
            decision.reason = FleetReason::full;
        }
    }
}

FleetPlan FleetPlanner::plan(std::int64_t now_us, const FleetState& state) {
    FleetPlan plan;
    Digest digest;
    digest.add(now_us).add(state.hit_tokens).add(state.prompt_tokens);
    for (const RoleState& role : state.roles) {
        FATHOM_CHECK(role.ready >= 0 && role.starting >= 0 && role.draining >= 0);
        digest.add(clean(role.demand)).add(clean(role.forecast));
        digest.add(role.ready).add(role.starting).add(role.draining).add(role.converting);
        digest.add(role.changed_us);
        for (const QuotaUse& quota : role.quotas)
            digest.add(quota.used).add(quota.limit);
    }
    plan.input_digest = digest.value();
    observe_hits(now_us, state);
    for (std::size_t i = 0; i < kFleetRoles; ++i)
        plan.roles[i] = decide(i, now_us, state.roles[i]);
    couple(state, plan);
    fit(state, plan);
    for (std::size_t i = 0; i < kFleetRoles; ++i) {
        if (plan.roles[i].start > 0 || plan.roles[i].reason == FleetReason::convert)
            roles_[i].grown_us = now_us;
        if (plan.roles[i].drain > 0) roles_[i].shrunk_us = now_us;
    }
    return plan;
}

std::vector<std::uint8_t> FleetPlanner::save() const {
    StateWriter out("FLEE", 2);
    for (const Role& role : roles_) {
        out.add(role.ewma).add(role.begun_us).add(role.grown_us).add(role.shrunk_us);
        out.add(static_cast<std::uint64_t>(role.samples.size()));
        for (const Sample& sample : role.samples)
            out.add(sample.at_us).add(sample.raw).add(sample.smooth);
    }
    out.add(static_cast<std::uint64_t>(hits_.size()));
    for (const HitSample& hit : hits_)
        out.add(hit.at_us).add(hit.rate);
    return out.take();
}

Status FleetPlanner::load(std::span<const std::uint8_t> bytes) {
    StateReader in(bytes, "FLEE", 2);
    std::array<Role, kFleetRoles> roles;
    for (Role& role : roles) {
        role.ewma = clean(in.f64());
        role.begun_us = in.in_range(kNever, -kNever);
        role.grown_us = in.in_range(kNever, -kNever);
        role.shrunk_us = in.in_range(kNever, -kNever);
        role.samples.resize(in.count(kSamplesMax));
        for (Sample& sample : role.samples) {
            sample.at_us = in.in_range(kNever, -kNever);
            sample.raw = clean(in.f64());
            sample.smooth = clean(in.f64());
        }
    }
    std::deque<HitSample> hits(in.count(kSamplesMax));
    for (HitSample& hit : hits) {
        hit.at_us = in.in_range(kNever, -kNever);
        hit.rate = clean(in.f64());
    }
    FATHOM_RETURN_IF_ERROR(in.finish());
    roles_ = std::move(roles);
    hits_ = std::move(hits);
    return {};
}

}  // namespace fathom
