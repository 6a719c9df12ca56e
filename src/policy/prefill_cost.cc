#include "policy/prefill_cost.h"

#include <algorithm>
#include <cmath>

namespace fathom {

namespace {

constexpr double kAbsorbOver = 1.10;
constexpr std::int64_t kDriftUs = 300'000'000;

std::int64_t block_down(std::int64_t tokens) {
    return tokens - tokens % kBlockTokens;
}

}  // namespace

std::size_t prefill_class(std::int64_t total_tokens) {
    std::size_t k = 0;
    while (k < kPrefillClassEdges.size() && total_tokens >= kPrefillClassEdges[k])
        ++k;
    return k;
}

PrefillWork prefill_work(std::int64_t total_tokens, std::int64_t hit_tokens, bool is_window_found) {
    const std::int64_t total = std::max<std::int64_t>(total_tokens, 1);
    const std::int64_t hit = block_down(std::clamp<std::int64_t>(hit_tokens, 0, total - 1));
    std::int64_t tokens = total - hit;
    if (hit > 0 && !is_window_found) {
        tokens = std::max(tokens + kBlockTokens, std::min(total, kDecoderTailTokens));
    }
    const std::int64_t context = block_down(total - std::min(tokens, total));
    return {.context = context, .tokens = total - context};
}

Status PrefillCost::check() const {
    for (const double k : {k0_us, k1_us, k2_us, k3_us, k4_us, k5_us, sync_us, moe_share, scale}) {
        if (!std::isfinite(k) || k < 0) {
            return invalid_argument("prefill cost: coefficient {}, expected a number >= 0", k);
        }
    }
    if (!std::isfinite(moe_balance) || moe_balance < 1) {
        return invalid_argument("prefill cost: moe_lb {}, expected a number >= 1", moe_balance);
    }
    return {};
}

double PrefillCost::work_us(std::int64_t tokens, std::int64_t context) const {
    const auto q = static_cast<double>(tokens);
    const auto c = static_cast<double>(context);
    if (table) return factor() * scale * table->work_us(tokens, context);
    return factor() * scale * (k1_us * q + k2_us * q * (c + (q + 1) / 2));
}

double PrefillCost::slice_us(const PrefillSlice& slice) const {
    double once = k5_us;
    if (slice.first) once += k3_us * static_cast<double>(slice.context);
    if (slice.last) once += k4_us;
    return work_us(slice.tokens, slice.context) + factor() * once;
}

double PrefillCost::request_us(std::int64_t context, std::int64_t tokens, bool first) const {
    const std::int64_t slices = (tokens + kStepRowsMax - 1) / kStepRowsMax;
    const PrefillSlice whole{.context = context, .tokens = tokens, .first = first, .last = true};
    const auto more = static_cast<double>(std::max<std::int64_t>(slices - 1, 0));
    return slice_us(whole) + factor() * k5_us * more;
}

namespace {

// The most tokens up to `limit` whose work is within the budget, a time without the factor.
std::int64_t tokens_within(const PrefillCost& cost, double budget, std::int64_t context,
                           std::int64_t limit) {
    const auto c = static_cast<double>(context);
    if (cost.table) {
        std::int64_t fits = 0, over = limit + 1;
        while (over - fits > 1) {
            const std::int64_t middle = fits + (over - fits) / 2;
            const bool is_within = cost.scale * cost.table->work_us(middle, context) <= budget;
            (is_within ? fits : over) = middle;
        }
        return fits;
    }
    // The root of a·q² + b·q = budget as 2·budget / (b + √…): no difference of close numbers, and
    // right for a = 0.
    const double a = cost.scale * cost.k2_us / 2;
    const double b = cost.scale * (cost.k1_us + cost.k2_us * (c + 0.5));
    const double divisor = b + std::sqrt(b * b + 4 * a * budget);
    const double root = divisor > 0 ? 2 * budget / divisor : static_cast<double>(limit);
    return root >= static_cast<double>(limit) ? limit : static_cast<std::int64_t>(root);
}

}  // namespace

std::int64_t fit_slice(const PrefillCost& cost, double budget_us, const PrefillRest& rest,
                       std::int64_t tokens_max, bool is_rank_empty) {
    const auto c = static_cast<double>(rest.context);
    const std::int64_t limit = std::max<std::int64_t>(0, std::min(rest.tokens, tokens_max));
    const double factor = cost.factor();
    const double once = cost.k5_us + (rest.first ? cost.k3_us * c : 0);
    const double budget = budget_us / factor - once;
    const std::int64_t least = is_rank_empty ? std::min(limit, kBlockTokens) : 0;
    if (!(budget > 0)) return least;

    std::int64_t n = tokens_within(cost, budget, rest.context, limit);
    const double finish = cost.work_us(rest.tokens, rest.context) / factor + cost.k4_us;
    if (n == rest.tokens && finish > budget) n = rest.tokens - 1;  // the decoder tail counts too
    if (n < rest.tokens) {
        n = block_down(n);
        if (rest.tokens - n < kTailAbsorb) {
            if (rest.tokens <= tokens_max && finish <= budget * kAbsorbOver) return rest.tokens;
            n = block_down(std::max<std::int64_t>(0, rest.tokens - kTailAbsorb));
        }
    }
    return std::max(n, least);
}

bool is_same_for_all(const PrefillCosts& costs) {
    return std::all_of(costs.begin(), costs.end(),
                       [&](const PrefillCost& cost) { return cost == costs[0]; });
}

void PrefillCorrection::observe(std::size_t length_class, double predicted_us, double observed_us,
                                const Excuse& excuse, std::int64_t now_us) {
    if (excuse.any() || !(predicted_us > 0) || !(observed_us > 0)) return;
    CostCorrection& correction = classes_[length_class];
    correction.observe(predicted_us, observed_us);
    std::int64_t& since_us = off_since_us_[length_class];
    if (!correction.drifted()) {
        since_us = -1;
    } else if (since_us < 0) {
        since_us = now_us;
    }
}

bool PrefillCorrection::drifted(std::int64_t now_us) const {
    return std::any_of(off_since_us_.begin(), off_since_us_.end(), [&](std::int64_t since_us) {
        return since_us >= 0 && now_us - since_us >= kDriftUs;
    });
}

void PrefillCorrection::save(StateWriter& out) const {
    for (std::size_t k = 0; k < kPrefillClasses; ++k)
        out.add(classes_[k].log_scale()).add(off_since_us_[k]);
}

void PrefillCorrection::load(StateReader& in) {
    for (std::size_t k = 0; k < kPrefillClasses; ++k) {
        classes_[k] = CostCorrection(in.f64());
        off_since_us_[k] = in.i64();
    }
}

}  // namespace fathom
