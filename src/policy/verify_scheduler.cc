#include "policy/verify_scheduler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "policy/state_bytes.h"

namespace fathom {
namespace {

// Of lengths that are fixed: every request has `drafts` of its own, up to its cap.
BudgetChoice price_all(const VerifyBatch& batch, const VerifyCost& cost) {
    BudgetChoice all{.drafts = 0, .tokens = static_cast<double>(batch.requests), .ms = 0};
    for (std::int64_t r = 0; r < batch.requests; ++r) {
        all.drafts += batch.cap(r);
        for (std::int64_t k = 0; k < batch.cap(r); ++k) {
            const float survival = batch.survivals[static_cast<std::size_t>(r * batch.drafts + k)];
            if (survival > 0) all.tokens += static_cast<double>(std::min(survival, 1.0f));
        }
    }
    if (const auto step = cost.curve().step(batch.rows_min() + all.drafts))
        all.ms = cost.forward_ms(*step) + cost.sampler_ms(batch.requests);
    return all;
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

// Prices all three ways and says which is best. plans are indexed by mode.
VerifyMode VerifyScheduler::prefer(const VerifyBatch& stale, const VerifyCost& cost,
                                   VerifyDecision (&plans)[3]) {
    BudgetChoice& scheduled = plans[0].choice;
    BudgetChoice& plain = plans[1].choice;
    BudgetChoice& none = plans[2].choice;
    VerifyBatch candidates = stale;
    candidates.survival_floor = rules_.survival_floor;
    scheduled = solver_.choose(candidates, cost, rules_.path_ms);
    scheduled.drafts = fill_run(stale, cost, scheduled.drafts);
    plain = price_all(stale, cost);
    none = {.drafts = 0, .tokens = static_cast<double>(stale.requests), .ms = 0};
    if (const auto step = cost.curve().step(stale.rows_min())) {
        const double ms = cost.forward_ms(*step) + cost.sampler_ms(stale.requests);
        none.ms = std::max(ms - rules_.draft_ms, step->ms * 1e-3);  // a step takes some time
    }
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

VerifyDecision VerifyScheduler::decide(const VerifyBatch& stale, const VerifyCost& cost) {
    VerifyDecision decision;
    if (stale.requests == 0) return decision;
    if (!cost.known()) {
        decision.reason = VerifyReason::no_curve;
        decision.choice = solver_.choose(stale, cost);
        decision.rows = stale.rows_min() + decision.choice.drafts;
        return decision;
    }
    VerifyDecision plans[3];
    plans[0].reason = VerifyReason::scheduled;
    plans[1].reason = VerifyReason::plain;
    plans[2].reason = VerifyReason::no_drafts;
    const VerifyMode preferred = prefer(stale, cost, plans);
    if (rules_.patience > 0) {
        // since_probe_ counts on from the probe; survivals are its own once they are old enough.
        const bool informed = mode_ != VerifyMode::no_drafts || since_probe_ == rules_.probe_age;
        if (informed) follow(preferred);
    }
    // Where all drafts are more rows than a step takes, some of them.
    const VerifyDecision& most = plans[plans[1].choice.ms > 0 ? 1 : 0];
    decision = mode_ == VerifyMode::plain ? most : plans[static_cast<std::size_t>(mode_)];
    if (mode_ == VerifyMode::no_drafts && ++since_probe_ >= rules_.probe_every) {
        decision = most;
        decision.reason = VerifyReason::probe;
        since_probe_ = 0;
    }
    decision.rows = stale.rows_min() + decision.choice.drafts;
    return decision;
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
