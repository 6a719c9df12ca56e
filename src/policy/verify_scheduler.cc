#include "policy/verify_scheduler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "policy/state_bytes.h"

namespace fathom {
namespace {

std::int64_t drafts_of(const VerifyBatch& batch) {
    std::int64_t drafts = 0;
    for (std::int64_t r = 0; r < batch.requests; ++r)
        drafts += batch.cap(r);
    return drafts;
}

// When every request has `drafts` of its own, up to its cap.
double tokens_of_all(const VerifyBatch& batch) {
    auto tokens = static_cast<double>(batch.requests);
    for (std::int64_t r = 0; r < batch.requests; ++r) {
        for (std::int64_t k = 0; k < batch.cap(r); ++k) {
            const float survival = batch.survivals[static_cast<std::size_t>(r * batch.drafts + k)];
            if (survival > 0) tokens += static_cast<double>(std::min(survival, 1.0f));
        }
    }
    return tokens;
}

double less_drafting(double ms, double draft_ms, double curve_ms) {
    return std::max(ms - draft_ms, curve_ms * 1e-3);  // a step takes some time
}

}  // namespace

DecisionRecord VerifyDecision::record(std::int64_t now_us, std::uint32_t rank,
                                      const VerifyBatch& stale) const {
    Digest digest;
    digest.add(stale.requests).add(stale.drafts).add(stale.other_rows);
    for (const float survival : stale.survivals)
        digest.add(std::uint64_t{std::bit_cast<std::uint32_t>(survival)});
    for (const std::int32_t cap : stale.caps)
        digest.add(cap);
    return {.kind = DecisionKind::verify_budget,
            .reason = static_cast<std::uint16_t>(reason),
            .actor = rank,
            .now_us = now_us,
            .input_digest = digest.value(),
            .fields = {choice.drafts, rows, std::llround(choice.tokens),
                       std::llround(1000 * choice.ms), 0}};
}

VerifyScheduler::Plans VerifyScheduler::price(const VerifyBatch& stale, const VerifyCost& cost) {
    Plans plans;
    auto& [scheduled, plain, none] = plans;
    VerifyBatch candidates = stale;
    candidates.survival_floor = rules_.survival_floor;
    scheduled = solver_.choose(candidates, cost, rules_.path_ms);
    scheduled.drafts = fill_run(stale, cost, scheduled.drafts);
    plain = {.drafts = drafts_of(stale), .tokens = tokens_of_all(stale), .ms = 0};
    if (const auto step = cost.curve().step(stale.rows_min() + plain.drafts))
        plain.ms = cost.forward_ms(*step) + cost.sampler_ms(stale.requests);
    none = {.drafts = 0, .tokens = static_cast<double>(stale.requests), .ms = 0};
    if (const auto step = cost.curve().step(stale.rows_min())) {
        const double ms = cost.forward_ms(*step) + cost.sampler_ms(stale.requests);
        none.ms = less_drafting(ms, rules_.draft_ms, step->ms);
    }
    return plans;
}

VerifyScheduler::Plans VerifyScheduler::price_group(std::span<const VerifyBatch> stale,
                                                    const VerifyCost& cost, double ms_per_row) {
    Plans plans;
    auto& [scheduled, plain, none] = plans;
    candidates_.assign(stale.begin(), stale.end());
    for (VerifyBatch& batch : candidates_)
        batch.survival_floor = rules_.survival_floor;
    budgets_.assign(stale.size(), 0);
    scheduled = solver_.choose_group(candidates_, cost, ms_per_row, budgets_, rules_.path_ms);
    std::int64_t most = 0, least = 0, rows = 0;  // rows of the fullest rank; anchors of all
    double sampler_ms = 0;
    for (const VerifyBatch& batch : stale) {
        const std::int64_t drafts = drafts_of(batch);
        most = std::max(most, batch.rows_min() + drafts);
        least = std::max(least, batch.rows_min());
        rows += batch.rows_min();
        sampler_ms = std::max(sampler_ms, cost.sampler_ms(batch.requests));
        plain.drafts += drafts;
        plain.tokens += tokens_of_all(batch);
        none.tokens += static_cast<double>(batch.requests);
    }
    const auto price_rows = [&](const VerifyCurve::Step& step, std::int64_t drafts) {
        return cost.forward_ms(step) + sampler_ms + ms_per_row * static_cast<double>(rows + drafts);
    };
    if (const auto step = cost.curve().step(most)) plain.ms = price_rows(*step, plain.drafts);
    if (const auto step = cost.curve().step(least))
        none.ms = less_drafting(price_rows(*step, 0), rules_.draft_ms, step->ms);
    return plans;
}

VerifyMode VerifyScheduler::prefer(const Plans& plans) const {
    const auto& [scheduled, plain, none] = plans;
    const double drafting = std::max(scheduled.rate(), plain.rate());
    if (none.rate() > drafting) return VerifyMode::no_drafts;
    if (plain.rate() > 0 && scheduled.rate() <= plain.rate() * (1 + rules_.gain_min))
        return VerifyMode::plain;
    return VerifyMode::scheduled;
}

void VerifyScheduler::follow(VerifyMode preferred) {
    if (preferred == mode_) {
        agreed_ = 0;
        return;
    }
    agreed_ = preferred == candidate_ ? agreed_ + 1 : 1;
    candidate_ = preferred;
    // While nothing is drafted judgements are rare, and each is of a probe.
    if (agreed_ < rules_.patience && mode_ != VerifyMode::no_drafts) return;
    mode_ = preferred;
    agreed_ = 0;
    since_probe_ = 0;
}

VerifyScheduler::Settled VerifyScheduler::settle(const Plans& plans) {
    if (rules_.patience > 0) {
        // since_probe_ counts on from the probe; survivals are its own once they are old enough.
        const bool informed = mode_ != VerifyMode::no_drafts || since_probe_ == rules_.probe_age;
        if (informed) follow(prefer(plans));
    }
    // Where all drafts are more rows than a step takes, some of them.
    const VerifyMode most = plans[1].ms > 0 ? VerifyMode::plain : VerifyMode::scheduled;
    const VerifyMode mode = mode_ == VerifyMode::plain ? most : mode_;
    if (mode == VerifyMode::no_drafts && ++since_probe_ >= rules_.probe_every) {
        since_probe_ = 0;
        return {static_cast<std::size_t>(most), VerifyReason::probe};
    }
    constexpr VerifyReason kReasons[] = {VerifyReason::scheduled, VerifyReason::plain,
                                         VerifyReason::no_drafts};
    const auto plan = static_cast<std::size_t>(mode);
    return {plan, kReasons[plan]};
}

VerifyDecision VerifyScheduler::decide(const VerifyBatch& stale, const VerifyCost& cost) {
    VerifyDecision decision;
    if (stale.requests == 0) return decision;
    if (!cost.known()) {
        decision.reason = VerifyReason::no_curve;
        decision.choice = solver_.choose(stale, cost);
    } else {
        const Plans plans = price(stale, cost);
        const Settled settled = settle(plans);
        decision.reason = settled.reason;
        decision.choice = plans[settled.plan];
    }
    decision.rows = stale.rows_min() + decision.choice.drafts;
    return decision;
}

void VerifyScheduler::decide_group(std::span<const VerifyBatch> stale, const VerifyCost& cost,
                                   double ms_per_row, std::span<VerifyDecision> decisions) {
    FATHOM_CHECK(stale.size() == decisions.size());
    std::fill(decisions.begin(), decisions.end(), VerifyDecision{});
    const auto has_requests = [](const VerifyBatch& batch) { return batch.requests > 0; };
    if (std::none_of(stale.begin(), stale.end(), has_requests)) return;
    VerifyDecision all{.reason = VerifyReason::no_curve, .choice = {}};
    if (!cost.known()) {
        budgets_.assign(stale.size(), 0);
        all.choice = solver_.choose_group(stale, cost, ms_per_row, budgets_);
    } else {
        const Plans plans = price_group(stale, cost, ms_per_row);
        const Settled settled = settle(plans);
        all = {.reason = settled.reason, .choice = plans[settled.plan]};
        const auto mode = static_cast<VerifyMode>(settled.plan);
        for (std::size_t r = 0; r < stale.size() && mode != VerifyMode::scheduled; ++r)
            budgets_[r] = mode == VerifyMode::plain ? drafts_of(stale[r]) : 0;
    }
    for (std::size_t r = 0; r < stale.size(); ++r) {
        if (stale[r].requests == 0) continue;
        decisions[r] = all;
        decisions[r].choice.drafts = budgets_[r];
        decisions[r].rows = stale[r].rows_min() + budgets_[r];
    }
}

std::vector<std::uint8_t> VerifyScheduler::save() const {
    StateWriter out("VSCH", 1);
    out.add(static_cast<std::int64_t>(mode_)).add(static_cast<std::int64_t>(candidate_));
    out.add(agreed_).add(since_probe_);
    return out.take();
}

Status VerifyScheduler::load(std::span<const std::uint8_t> bytes) {
    StateReader in(bytes, "VSCH", 1);
    const auto mode = static_cast<VerifyMode>(in.in_range(0, 2));
    const auto candidate = static_cast<VerifyMode>(in.in_range(0, 2));
    const std::int64_t agreed = in.in_range(0, 1 << 30);
    const std::int64_t since_probe = in.in_range(0, 1 << 30);
    FATHOM_RETURN_IF_ERROR(in.finish());
    mode_ = mode;
    candidate_ = candidate;
    agreed_ = agreed;
    since_probe_ = since_probe;
    return {};
}

}  // namespace fathom
