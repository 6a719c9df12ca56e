#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "kernels/math.h"

namespace fathom {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The first entry of the descending order; NaN loses every comparison, as −inf does.
TokenId greatest(std::span<const float> logits) {
    std::size_t best = 0;
    float best_logit = -kInfinity;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] > best_logit) {
            best = i;
            best_logit = logits[i];
        }
    }
    return static_cast<TokenId>(best);
}

// Tokens of positive weight, put into descending order piece by piece: most draws end within the
// first few, so the rest of a large vocabulary is never sorted.
class DescendingTokens {
  public:
    DescendingTokens(std::span<const float> logits, float largest, double temperature)
        : logits_(logits), weights_(logits.size()) {
        for (std::size_t i = 0; i < logits.size(); ++i) {
            if (!(logits[i] > -kInfinity)) continue;  // NaN too
            const double distance = static_cast<double>(logits[i]) - static_cast<double>(largest);
            const float w = math_exp(static_cast<float>(distance / temperature));
            if (w <= 0) continue;
            weights_[i] = w;
            total_ += static_cast<double>(w);
            order_.push_back(static_cast<TokenId>(i));
        }
    }

    std::size_t size() const { return order_.size(); }
    double total() const { return total_; }
    TokenId token(std::size_t rank) {
        if (rank >= sorted_) sort_past(rank);
        return order_[rank];
    }
    double weight(std::size_t rank) {
        return static_cast<double>(weights_[static_cast<std::size_t>(token(rank))]);
    }

  private:
    void sort_past(std::size_t rank) {
        const auto before = [this](TokenId a, TokenId b) {
            const float x = logits_[static_cast<std::size_t>(a)];
            const float y = logits_[static_cast<std::size_t>(b)];
            return x != y ? x > y : a < b;
        };
        const std::size_t end = std::min(order_.size(), std::max(rank + 1, sorted_ * 8 + 64));
        const auto at = [this](std::size_t i) {
            return order_.begin() + static_cast<std::ptrdiff_t>(i);
        };
        if (end < order_.size()) std::nth_element(at(sorted_), at(end), order_.end(), before);
        std::sort(at(sorted_), at(end), before);
        sorted_ = end;
    }

    std::span<const float> logits_;
    std::vector<float> weights_;
    std::vector<TokenId> order_;
    double total_ = 0;
    std::size_t sorted_ = 0;  // ranks below it are final
};

struct Survivors {
    std::size_t count = 0;
    double mass = 0;
};

Survivors survivors(DescendingTokens& tokens, const SamplingParams& params) {
    std::size_t limit = tokens.size();
    if (params.top_k > 0)
        limit = static_cast<std::size_t>(
            std::min<std::uint64_t>(limit, static_cast<std::uint64_t>(params.top_k)));
    const bool by_mass = params.top_p < 1.0 || params.min_p > 0.0;
    if (!by_mass && limit == tokens.size()) return {limit, tokens.total()};
    Survivors kept;
    while (kept.count < limit) {
        const double weight = tokens.weight(kept.count);
        const bool mass_reached = params.top_p < 1.0 && kept.mass > params.top_p * tokens.total();
        if (kept.count > 0 && (mass_reached || weight < params.min_p)) break;
        kept.mass += weight;
        ++kept.count;
    }
    if (kept.count == tokens.size()) kept.mass = tokens.total();
    return kept;
}

}  // namespace

Status validate_sampling(const SamplingParams& params) {
    // Written so that NaN fails every range.
    if (!(params.temperature >= 0.0 && params.temperature <= 2.0))
        return invalid_argument("temperature is {}; it must be within [0, 2]", params.temperature);
    if (params.top_k < 0)
        return invalid_argument("top_k is {}; it must be 0 (off) or positive", params.top_k);
    if (!(params.top_p > 0.0 && params.top_p <= 1.0))
        return invalid_argument("top_p is {}; it must be within (0, 1]", params.top_p);
    if (!(params.min_p >= 0.0 && params.min_p <= 1.0))
        return invalid_argument("min_p is {}; it must be within [0, 1]", params.min_p);
    return {};
}

TokenId sample_token(std::span<const float> logits, const SamplingParams& params,
                     std::int64_t position, std::uint32_t block) {
    FATHOM_CHECK(!logits.empty());
    const TokenId top = greatest(logits);
    const float largest = logits[static_cast<std::size_t>(top)];
    if (params.temperature <= 0 || !(largest > -kInfinity) || largest == kInfinity) return top;

    DescendingTokens tokens(logits, largest, params.temperature);
    const Survivors kept = survivors(tokens, params);
    const double u = random_uniform({.seed = params.seed,
                                     .purpose = RandomPurpose::sample_token,
                                     .index = static_cast<std::uint64_t>(position),
                                     .block = block});
    double mass = 0;
    for (std::size_t rank = 0; rank + 1 < kept.count; ++rank) {
        mass += tokens.weight(rank);
        if (mass > u * kept.mass) return tokens.token(rank);
    }
    return tokens.token(kept.count - 1);
}

}  // namespace fathom
