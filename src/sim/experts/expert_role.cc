#include "sim/experts/expert_role.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::int64_t kRanksMax = 512;   // each knows all maps while a switch is under way
constexpr double kTokensMax = 1e9;        // of a step, so that counts stay counts
constexpr double kDriftsInItsTime = 128;  // steps in which drift is followed

ExpertShape shape_of(const ExpertConfig& config, const ExpertRoleConfig& role, std::int64_t ranks) {
    return {.experts = config.experts,
            .ranks = ranks,
            .slots = (config.experts + ranks - 1) / ranks + role.spare_slots};
}

SwitchRules switch_rules(const ExpertConfig& config) {
    SwitchRules rules;
    rules.fetch_bytes = config.expert_bytes;
    rules.link_bytes_per_us = 1000 * config.link_gb_s;
    rules.link_part = config.link_part;
    return rules;
}

Status check_role(const char* name, const ExpertConfig& config, const ExpertRoleConfig& role,
                  std::int64_t ranks) {
    if (ranks > kRanksMax)
        return invalid_argument("experts.process: {}.ranks is {}, expected at most {} with it",
                                name, ranks, kRanksMax);
    if (const Status status = shape_of(config, role, ranks).check(); !status.ok())
        return invalid_argument("experts of {}: {}", name, status.message());
    return {};
}

}  // namespace

Status ExpertConfig::check(std::int64_t prefill_ranks, std::int64_t decode_ranks) const {
    if (!is_process) return {};
    if (experts_per_token > experts)
        return invalid_argument("experts.per_token: {}, expected at most experts.count, {}",
                                experts_per_token, experts);
    if (window_steps < 1 || window_steps > kWindowStepsMax)
        return invalid_argument("experts.window_steps: {}, expected 1 to {}", window_steps,
                                kWindowStepsMax);
    FATHOM_RETURN_IF_ERROR(switch_rules(*this).check());
    FATHOM_RETURN_IF_ERROR(check_role("prefill", *this, prefill, prefill_ranks));
    return check_role("decode", *this, decode, decode_ranks);
}

ExpertRole::ExpertRole(const ExpertConfig& config, const ExpertRoleConfig& role,
                       const ExpertRoleFacts& facts, std::uint64_t seed, std::uint64_t index)
    : config_(config),
      role_(role),
      facts_(facts),
      shape_(shape_of(config, role, facts.ranks)),
      switch_(shape_, switch_rules(config), config.layers),
      due_ns_(static_cast<SimTime>(config.first_s * 1e9)) {
    for (std::int64_t i = 0; i < config.layers; ++i) {
        const std::uint64_t entity = index << 32 | static_cast<std::uint64_t>(i);
        layers_.push_back({.popularity = {config, role.drift_sigma, seed, entity, index},
                           .steps = SimRandom(seed, entity, SimPurpose::expert_step),
                           .window = ExpertWindow(config.experts, config.window_steps),
                           .predictor = ExpertPredictor(config.experts),
                           .copies = {}});
    }
    recount();
}

void ExpertRole::recount() {
    for (std::size_t i = 0; i < layers_.size(); ++i)
        layers_[i].copies = count_copies(shape_, switch_.map(static_cast<std::int64_t>(i)));
}

void ExpertRole::record(double now_s, double tokens_per_rank) {
    // Drift is exact at the times it is followed to; between them it stands.
    const double least_s =
        std::min(config_.drift_time_s,
                 config_.topics > 0 ? config_.topic_time_s : config_.drift_time_s) /
        kDriftsInItsTime;
    const bool drifts = now_s - drifted_s_ >= least_s;
    if (drifts) drifted_s_ = now_s;
    const double tokens = std::min(kTokensMax, tokens_per_rank * static_cast<double>(shape_.ranks) *
                                                   static_cast<double>(config_.experts_per_token));
    Balance step;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        Layer& layer = layers_[i];
        if (drifts) layer.popularity.advance(now_s);
        draw_expert_step(layer.popularity.weights(), tokens, role_.dispersion, layer.steps,
                         tokens_);
        if (config_.is_balanced) layer.window.add(tokens_);
        step += split_(shape_, switch_.map(static_cast<std::int64_t>(i)), layer.copies, tokens_,
                       layer.steps);
    }
    balance_ = step.ratio();
    figures_.realised += step;
    interval_ += step;
}

void ExpertRole::sample(SimTime now_ns, const ExpertTraffic& traffic, bool is_whole) {
    step_us_ = traffic.step_us;
    const double steps = traffic.rank_steps - before_.rank_steps;
    const double tokens = traffic.rank_tokens - before_.rank_tokens;
    before_ = traffic;
    if (steps > 0 && tokens > 0) record(static_cast<double>(now_ns) / 1e9, tokens / steps);
    if (!config_.is_balanced || now_ns < due_ns_) return;
    if (switch_.busy() || !is_whole) {
        ++figures_.deferred;  // tried again at the next sample
        return;
    }
    due_ns_ = now_ns + static_cast<SimTime>(role_.period_s * 1e9);
    plan(now_ns);
}

// What a rank gets within the horizon is what ranks got since the last plan, at the same rate.
// Ranks fetch at the same time: a slot costs the group a rank's share of its time.
BalanceRules ExpertRole::rules(SimTime now_ns) const {
    BalanceRules rules;
    if (!config_.is_move_priced) return rules;
    const auto routed = static_cast<double>(config_.experts_per_token);
    const double passed_s = std::max(1e-3, static_cast<double>(now_ns - planned_ns_) / 1e9);
    const double rank_tokens =
        (before_.rank_tokens - at_plan_.rank_tokens) / static_cast<double>(facts_.cards);
    const double horizon_s = config_.horizon_s > 0 ? config_.horizon_s : role_.period_s;
    rules.tokens_until_next = rank_tokens * routed * horizon_s / passed_s;
    rules.moe_us_per_token =
        facts_.moe_us_per_token / (routed * static_cast<double>(config_.layers));
    rules.fetch_us_per_slot = static_cast<double>(config_.expert_bytes) /
                              (1000 * config_.link_gb_s * config_.link_part) /
                              static_cast<double>(shape_.ranks);
    rules.interference = config_.interference;
    return rules;
}

LayerPlan ExpertRole::plan_layer_at(SimTime now_ns, std::size_t index, const BalanceRules& rules) {
    Layer& layer = layers_[index];
    std::vector<double> loads(static_cast<std::size_t>(shape_.experts));
    if (layer.window.steps() > 0) {
        layer.predictor.observe(layer.window.mean());
        loads = layer.predictor.predict();
    }
    const LayerPlacement& current = switch_.map(static_cast<std::int64_t>(index));
    LayerPlan plan = plan_layer(shape_, loads, layer.window, current, rules);
    log_.record(plan.record(now_ns / 1000, static_cast<std::uint32_t>(index)));
    figures_.before += balance_of(shape_, current, loads);
    figures_.after += balance_of(shape_, plan.apply() ? plan.placement : current, loads);
    if (plan.apply()) {
        ++figures_.layers_passed;
        figures_.slots_passed += plan.move.slots;
    } else {
        ++figures_.layers_held;
        figures_.slots_held += plan.move.slots;
    }
    return plan;
}

void ExpertRole::plan(SimTime now_ns) {
    const BalanceRules how = rules(now_ns);
    std::vector<std::int64_t> changed;
    std::vector<LayerPlacement> next;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        LayerPlan plan = plan_layer_at(now_ns, i, how);
        if (!plan.apply()) continue;
        changed.push_back(static_cast<std::int64_t>(i));
        next.push_back(std::move(plan.placement));
    }
    ++figures_.plans;
    planned_ns_ = now_ns;
    at_plan_ = before_;
    if (changed.empty()) {
        ++figures_.gated;
    } else {
        switch_.begin(now_ns, changed, std::move(next));
    }
}

void ExpertRole::turn(SimTime now_ns) {
    const std::int64_t chunks = switch_.figures().chunks;
    switch_.turn(now_ns, step_us_);
    if (switch_.figures().chunks != chunks) recount();
}

void ExpertRole::lose(SimTime now_ns) {
    switch_.lose(now_ns);
    recount();
}

double ExpertRole::take_interval_balance() {
    const Balance interval = std::exchange(interval_, {});
    return interval.mean_sum > 0 ? interval.ratio() : balance_;
}

ExpertFigures ExpertRole::figures() {
    ExpertFigures figures = figures_;
    figures.switches = switch_.figures();
    figures.decisions = Digest().add(log_.hash()).add(switch_.decision_hash()).value();
    return figures;
}

}  // namespace fathom
