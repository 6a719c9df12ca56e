#include "policy/verify_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "policy/verify_scheduler.h"

namespace fathom {

double VerifyModel::step_ms(std::int64_t rows, double slope_scale) const {
    constexpr double kLow = 100, kHigh = 405;
    const auto n = static_cast<double>(rows);
    return base_ms * (1 + slope_scale * (slope_low * std::min(n, kLow) +
                                         slope_middle * std::clamp(n - kLow, 0.0, kHigh - kLow) +
                                         slope_high * std::max(n - kHigh, 0.0)));
}

VerifyCost VerifyModel::cost(std::int64_t rows_max, std::int64_t stride, double slope_scale) const {
    std::vector<CurvePoint> points;
    for (std::int64_t rows = stride; rows < rows_max + stride; rows += stride)
        points.push_back({rows, step_ms(rows, slope_scale)});
    Result<VerifyCurve> curve = VerifyCurve::make(points);
    FATHOM_CHECK(curve.ok());
    return VerifyCost(*std::move(curve));
}

VerifyRequests::VerifyRequests(const VerifyModel& model, std::int64_t count, std::uint64_t seed)
    : model_(model), random_(seed), ease_(static_cast<std::size_t>(count)) {
    for (double& z : ease_)
        z = random_.next_normal();
}

namespace {

double confidence_of(double logit) {
    return 1 / (1 + std::exp(-logit));
}

}  // namespace

void VerifyRequests::next(Block& block) {
    block.logits.clear();
    block.survivals.clear();
    block.accepted.clear();
    const double fresh = std::sqrt(1 - model_.persistence * model_.persistence);
    for (double& z : ease_) {
        z = model_.persistence * z + fresh * random_.next_normal();
        double survival = 1;
        std::int64_t accepted = 0;
        bool alive = true;
        for (std::int64_t k = 0; k < model_.drafts; ++k) {
            const double logit = model_.logit_mean + model_.logit_spread * z +
                                 model_.logit_noise * random_.next_normal();
            const double confidence = confidence_of(logit);
            survival *= confidence;
            alive = alive && random_.next_uniform() < confidence;
            accepted += alive ? 1 : 0;
            block.logits.push_back(static_cast<float>(logit));
            block.survivals.push_back(static_cast<float>(survival));
        }
        block.accepted.push_back(accepted);
    }
}

VerifyBatch VerifyRequests::view(const std::vector<float>& survivals) const {
    return {.requests = static_cast<std::int64_t>(ease_.size()),
            .drafts = model_.drafts,
            .survivals = survivals};
}

namespace {

struct Tally {
    double tokens = 0, ms = 0, drafts = 0, accepted = 0;
    double rate() const { return tokens / ms; }
};

// One run of a trial beside the plain path.
class Run {
  public:
    Run(const VerifyModel& model, const VerifyTrial& trial, std::int64_t requests,
        std::uint64_t seed)
        : model_(model),
          trial_(trial),
          requests_(model, requests, seed),
          chance_(seed + 0x5eed),
          path_ms_(trial.has_path ? model.path_ms() : 0),
          cost_(model.cost(requests * (model.drafts + 1), trial.stride, trial.table_slope)),
          scheduler_({.path_ms = path_ms_, .draft_ms = 0}),
          lengths_(static_cast<std::size_t>(requests)),
          full_(lengths_.size(), static_cast<std::int32_t>(model.drafts) + 1) {
        for (Seen& seen : blocks_)
            fill(seen);
    }

    VerifyGain run() {
        for (std::int64_t i = 0; i < trial_.steps; ++i)
            step(static_cast<std::size_t>(i));
        const double count =
            static_cast<double>(lengths_.size()) * static_cast<double>(trial_.steps);
        const auto steps = static_cast<double>(trial_.steps);
        return {.requests = static_cast<std::int64_t>(lengths_.size()),
                .gain = ours_.rate() / plain_.rate() - 1,
                .gain_sd = 0,
                .verified = ours_.drafts / count,
                .length = ours_.tokens / count,
                .length_plain = plain_.tokens / count,
                .accepted = ours_.drafts > 0 ? ours_.accepted / ours_.drafts : 0,
                .step_ms = ours_.ms / steps,
                .step_plain_ms = plain_.ms / steps};
    }

  private:
    struct Seen {
        VerifyRequests::Block block;
        std::vector<float> survivals;  // as the scheduler sees them
    };

    void fill(Seen& seen) {
        requests_.next(seen.block);
        if (trial_.allocation == VerifyAllocation::sure) {
            seen.survivals.assign(seen.block.survivals.size(), 1.0f);
            return;
        }
        seen.survivals = seen.block.survivals;
        if (trial_.logit_scale == 1 && trial_.logit_error == 0) return;
        const auto drafts = static_cast<std::size_t>(model_.drafts);
        double survival = 1;
        for (std::size_t i = 0; i < seen.survivals.size(); ++i) {
            if (i % drafts == 0) survival = 1;
            const double logit = static_cast<double>(seen.block.logits[i]);
            survival *= confidence_of(trial_.logit_scale * logit +
                                      trial_.logit_error * chance_.next_normal());
            seen.survivals[i] = static_cast<float>(survival);
        }
    }

    void commit(Tally& tally, const VerifyRequests::Block& block,
                std::span<const std::int32_t> lengths, double path_ms) const {
        std::int64_t rows = 0;
        for (std::size_t r = 0; r < lengths.size(); ++r) {
            const auto accepted = std::min<std::int64_t>(block.accepted[r], lengths[r] - 1);
            rows += lengths[r];
            tally.accepted += static_cast<double>(accepted);
        }
        const auto requests = static_cast<std::int64_t>(lengths.size());
        tally.drafts += static_cast<double>(rows - requests);
        tally.tokens = tally.accepted + static_cast<double>(requests) * (steps_done_ + 1);
        const std::int64_t run = (rows + trial_.stride - 1) / trial_.stride * trial_.stride;
        tally.ms += model_.step_ms(run) + path_ms;
    }

    void shuffle(std::vector<float>& survivals) {
        const auto drafts = static_cast<std::ptrdiff_t>(model_.drafts);
        for (std::size_t r = lengths_.size(); r > 1; --r) {
            const auto other = static_cast<std::ptrdiff_t>(chance_.next_below(r));
            const auto own = static_cast<std::ptrdiff_t>(r - 1);
            if (own != other)
                std::swap_ranges(survivals.begin() + own * drafts,
                                 survivals.begin() + (own + 1) * drafts,
                                 survivals.begin() + other * drafts);
        }
    }

    // Lengths of the step; whether on the path of variable lengths.
    bool schedule(const Seen& old, const Seen& now) {
        const VerifyBatch stale = requests_.view(old.survivals);
        if (trial_.allocation == VerifyAllocation::shorter) {
            std::fill(lengths_.begin(), lengths_.end(), static_cast<std::int32_t>(model_.drafts));
            return false;
        }
        if (trial_.allocation == VerifyAllocation::fallback) {
            const VerifyDecision decision = scheduler_.decide(stale, cost_);
            lengths_ = full_;
            if (decision.variable())
                solver_.allocate(requests_.view(now.survivals), decision.choice.drafts, lengths_);
            return decision.variable();
        }
        const std::int64_t budget = solver_.choose(stale, cost_, path_ms_).drafts;
        switch (trial_.allocation) {
            case VerifyAllocation::stale:
                solver_.allocate(stale, budget, lengths_);
                break;
            case VerifyAllocation::even: {
                const auto requests = static_cast<std::int64_t>(lengths_.size());
                for (std::int64_t r = 0; r < requests; ++r)
                    lengths_[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(
                        1 + budget / requests + (r < budget % requests ? 1 : 0));
                break;
            }
            case VerifyAllocation::shuffled: {
                std::vector<float> survivals = now.survivals;
                shuffle(survivals);
                solver_.allocate(requests_.view(survivals), budget, lengths_);
                break;
            }
            default:
                solver_.allocate(requests_.view(now.survivals), budget, lengths_);
        }
        return true;
    }

    void step(std::size_t i) {
        Seen& now = blocks_[(i + 2) % 3];
        fill(now);
        const bool variable = schedule(blocks_[i % 3], now);
        commit(ours_, now.block, lengths_, variable ? path_ms_ : 0);
        commit(plain_, now.block, full_, 0);
        steps_done_ += 1;
    }

    VerifyModel model_;
    VerifyTrial trial_;
    VerifyRequests requests_;
    RandomStream chance_;
    double path_ms_;
    VerifyCost cost_;
    VerifyScheduler scheduler_;
    BudgetSolver solver_;
    std::array<Seen, 3> blocks_;  // of steps i, i + 1, i + 2 by their number modulo 3
    std::vector<std::int32_t> lengths_, full_;
    Tally ours_, plain_;
    double steps_done_ = 0;
};

}  // namespace

VerifyGain verify_gain(const VerifyModel& model, const VerifyTrial& trial, std::int64_t requests,
                       std::uint64_t seed) {
    FATHOM_CHECK(requests > 0 && trial.steps > 0 && trial.stride > 0);
    FATHOM_CHECK(model.drafts > 0 && model.drafts <= kDraftsMax && model.base_ms > 0);
    return Run(model, trial, requests, seed).run();
}

VerifyGain verify_gain(const VerifyModel& model, const VerifyTrial& trial, std::int64_t requests,
                       std::span<const std::uint64_t> seeds) {
    FATHOM_CHECK(!seeds.empty());
    std::vector<VerifyGain> runs;
    for (const std::uint64_t seed : seeds)
        runs.push_back(verify_gain(model, trial, requests, seed));
    VerifyGain mean{.requests = requests};
    const auto n = static_cast<double>(runs.size());
    for (const VerifyGain& run : runs) {
        mean.gain += run.gain / n;
        mean.verified += run.verified / n;
        mean.length += run.length / n;
        mean.length_plain += run.length_plain / n;
        mean.accepted += run.accepted / n;
        mean.step_ms += run.step_ms / n;
        mean.step_plain_ms += run.step_plain_ms / n;
    }
    double squares = 0;
    for (const VerifyGain& run : runs)
        squares += (run.gain - mean.gain) * (run.gain - mean.gain);
    mean.gain_sd = runs.size() > 1 ? std::sqrt(squares / (n - 1)) : 0;
    return mean;
}

std::vector<VerifyTableRow> verify_table(const VerifyModel& model, const VerifyTrial& trial) {
    struct Setting {
        std::int64_t requests, steps;
        double published;
    };
    constexpr Setting kSettings[] = {
        {16, 4000, -0.015}, {32, 2000, 0.016}, {60, 1000, 0.054}, {96, 700, 0.110}};
    constexpr std::array<std::uint64_t, 3> kSeeds = {1, 2, 3};
    std::vector<VerifyTableRow> table;
    for (const Setting& setting : kSettings) {
        VerifyTrial own = trial;
        own.steps = setting.steps;
        table.push_back({setting.requests, setting.published,
                         verify_gain(model, own, setting.requests, kSeeds)});
    }
    return table;
}

}  // namespace fathom
