// Expert placements on made-up traffic (serving.md 2.3.1): 384 experts, 6 a token, 60 sequences of
// 4 tokens on each of 64 ranks with one spare slot; popularities log-normal with σ, κ tokens of a
// sequence choose alike. A window of 100 steps is recorded, 64 further steps are counted token by
// token, each with a random copy of its expert. Rows:
//
//   eplb.expected.sS           moe_lb of our placement on what was foretold, σ = S
//   eplb.realised.NAME.sS.kK   moe_lb of the steps after, by placement: none, public, deployed,
//   ours eplb.prefill8.sS, .prefill4.sS   realised by ours at EP8 and EP4 with 4 spare slots, and
//                              8,192 tokens on a rank
//   eplb.over_floor            realised by ours over the same steps without the placement's own
//                              unevenness (every rank shifted to the mean): the worst of all σ and
//                              κ
//   eplb.ms                    planning 40 layers of 384 experts on 64 ranks, 100 steps recorded
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/policy_benches.h"
#include "policy/expert_balancer.h"
#include "policy/expert_baselines.h"
#include "policy/test_expert_traffic.h"

namespace fathom::bench {
namespace {

constexpr std::int64_t kExperts = 384, kTop = 6, kTokensPerRank = 240;

struct Steps {
    std::int64_t tokens_per_rank = kTokensPerRank, recorded = 100, counted = 64;
};

// Tokens that each rank of a placement gets.
class Router {
  public:
    Router(const ExpertShape& shape, const LayerPlacement& placement)
        : shape_(shape), ranks_of_(static_cast<std::size_t>(shape.experts)) {
        for (std::size_t s = 0; s < placement.size(); ++s)
            if (placement[s] >= 0)
                ranks_of_[static_cast<std::size_t>(placement[s])].push_back(
                    s / static_cast<std::size_t>(shape.slots));
        sums_.resize(static_cast<std::size_t>(shape.ranks));
    }

    void count(const std::vector<std::int32_t>& experts, std::uint64_t step) {
        std::vector<double> loads(sums_.size());
        std::uint64_t hash = step * 0x9e3779b97f4a7c15;
        for (const std::int32_t expert : experts) {
            const std::vector<std::size_t>& ranks = ranks_of_[static_cast<std::size_t>(expert)];
            hash = hash * 0xd1342543de82ef95 + 0x2545f4914f6cdd1d;
            ++loads[ranks[static_cast<std::size_t>((hash >> 33) % ranks.size())]];
        }
        for (std::size_t r = 0; r < loads.size(); ++r)
            sums_[r] += loads[r];
        steps_.push_back(std::move(loads));
    }

    Balance realised() const { return balance(false); }
    // As if every rank expected the mean.
    Balance floor() const { return balance(true); }

  private:
    Balance balance(bool shifted) const {
        double mean = 0;
        for (const double sum : sums_)
            mean += sum / static_cast<double>(sums_.size() * steps_.size());
        Balance total;
        for (const std::vector<double>& loads : steps_) {
            double most = 0;
            for (std::size_t r = 0; r < loads.size(); ++r) {
                const double own = sums_[r] / static_cast<double>(steps_.size());
                most = std::max(most, shifted ? loads[r] - own + mean : loads[r]);
            }
            total += {.max_sum = most, .mean_sum = mean};
        }
        return total;
    }

    ExpertShape shape_;
    std::vector<std::vector<std::size_t>> ranks_of_;
    std::vector<double> sums_;
    std::vector<std::vector<double>> steps_;
};

struct Outcome {
    double expected = 0, none = 0, published = 0, deployed = 0, ours = 0, floor = 0;
};

Outcome measure(const ExpertShape& shape, double sigma, std::int64_t alike,
                const Steps& steps = {}) {
    testing::ExpertTraffic traffic(kExperts, sigma, 7);
    ExpertWindow window(kExperts);
    std::vector<std::int32_t> experts;
    for (std::int64_t i = 0; i < steps.recorded; ++i) {
        traffic.draw(shape.ranks * steps.tokens_per_rank, kTop, alike, experts);
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(kExperts));
        for (const std::int32_t e : experts)
            ++tokens[static_cast<std::size_t>(e)];
        window.add(tokens);
    }
    ExpertPredictor predictor(kExperts);
    predictor.observe(window.mean());
    const std::vector<double> loads = predictor.predict();
    const LayerPlacement initial = initial_placement(shape);
    const LayerPlan plan = plan_layer(shape, loads, window, initial, {});
    const LayerPlacement& placement = plan.apply() ? plan.placement : initial;
    ExpertShape bare = shape;
    bare.slots = (kExperts + shape.ranks - 1) / shape.ranks;
    Router none(bare, initial_placement(bare)), published(shape, public_eplb(shape, loads)),
        deployed(shape, deployed_eplb(shape, window)), ours(shape, placement);
    for (std::int64_t i = 0; i < steps.counted; ++i) {
        traffic.draw(shape.ranks * steps.tokens_per_rank, kTop, alike, experts);
        for (Router* router : {&none, &published, &deployed, &ours})
            router->count(experts, static_cast<std::uint64_t>(i));
    }
    return {.expected = balance_of(shape, placement, loads).ratio(),
            .none = none.realised().ratio(),
            .published = published.realised().ratio(),
            .deployed = deployed.realised().ratio(),
            .ours = ours.realised().ratio(),
            .floor = ours.floor().ratio()};
}

void bench_time(Report& report) {
    constexpr int kLayers = 40;
    const ExpertShape shape{.experts = kExperts, .ranks = 64, .slots = 7, .ranks_per_node = 8};
    std::vector<ExpertWindow> windows;
    for (int l = 0; l < kLayers; ++l) {
        testing::ExpertTraffic traffic(kExperts, 0.7, static_cast<std::uint64_t>(100 + l));
        double sum = 0;
        for (const double p : traffic.popularity())
            sum += p;
        windows.emplace_back(kExperts);
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(kExperts));
        for (std::int64_t i = 0; i < Steps{}.recorded; ++i) {
            for (std::size_t e = 0; e < tokens.size(); ++e) {
                const double mean = 64 * kTokensPerRank * kTop * traffic.popularity()[e] / sum;
                const double drawn = mean + std::sqrt(mean) * traffic.random().next_normal();
                tokens[e] = static_cast<std::int32_t>(std::max(drawn, 0.0));
            }
            windows.back().add(tokens);
        }
    }
    const LayerPlacement initial = initial_placement(shape);
    double best = 1e9;
    for (int round = 0; round < 3; ++round) {
        const double start = policy_thread_seconds();
        for (const ExpertWindow& window : windows) {
            ExpertPredictor predictor(kExperts);
            predictor.observe(window.mean());
            if (!plan_layer(shape, predictor.predict(), window, initial, {}).apply())
                fmt::print(stderr, "eplb.ms: a layer was not placed anew\n");
        }
        best = std::min(best, policy_thread_seconds() - start);
    }
    report.add("eplb.ms", 1e3 * best, "ms", 100);
}

}  // namespace

void bench_eplb(Report& report) {
    const ExpertShape decode{.experts = kExperts, .ranks = 64, .slots = 7};
    double over_floor = 0;
    for (const double sigma : {0.4, 0.7, 1.0}) {
        for (const std::int64_t alike : {1, 2, 4}) {
            const Outcome outcome = measure(decode, sigma, alike);
            const std::string tail = fmt::format("s{:.1f}.k{}", sigma, alike);
            if (alike == 1)
                report.add(fmt::format("eplb.expected.s{:.1f}", sigma), outcome.expected, "");
            report.add("eplb.realised.none." + tail, outcome.none, "");
            report.add("eplb.realised.public." + tail, outcome.published, "");
            report.add("eplb.realised.deployed." + tail, outcome.deployed, "");
            report.add("eplb.realised.ours." + tail, outcome.ours, "");
            over_floor = std::max(over_floor, outcome.ours / outcome.floor);
        }
    }
    for (const std::int64_t ranks : {8, 4}) {
        const ExpertShape prefill{
            .experts = kExperts, .ranks = ranks, .slots = kExperts / ranks + 4};
        for (const double sigma : {0.4, 1.0})
            report.add(fmt::format("eplb.prefill{}.s{:.1f}", ranks, sigma),
                       measure(prefill, sigma, 1, {8192, 30, 16}).ours, "");
    }
    report.add("eplb.over_floor", over_floor, "", 1.005);
    bench_time(report);
}

}  // namespace fathom::bench
