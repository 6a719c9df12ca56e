// Expert placements on made-up traffic (serving.md 2.3.1): 384 experts, 6 a token, 60 sequences of
// 4 tokens on each of 64 ranks with one spare slot; popularities log-normal with σ, κ tokens of a
// sequence choose alike. A window of 100 steps is recorded, 64 further steps are counted token by
// token, each with a random copy of its expert. Every setting is ten layers, each with a seed and
// popularities of its own; moe_lb is Σ max ÷ Σ mean over their steps. Rows:
//
//   eplb.over_floor            the worst of all σ and κ of realised.ours ÷ (1 + 2.39 √(κ / 1440)),
//                              the sampling floor as the specification has it; .layer: of one layer
//   eplb.over_own_floor        the same ÷ the same steps with each rank's own mean shifted to the
//                              common one: a lower floor, since tokens choose distinct experts and
//                              copies part tokens that choose alike, which the formula leaves out
//   eplb.expected.sS           moe_lb of our placement on what was foretold, σ = S
//   eplb.realised.NAME.sS.kK   moe_lb of the steps after: none (no spare slots), public, deployed,
//                              ours; .worst: of the worst layer
//   eplb.topics.NAME           σ = 0.7, κ = 1, and twelve topics whose popularity changes with
//   every
//                              step (log-normal, 0.3), so that experts are busy together
//   eplb.again.slots           slots fetched a layer by a second plan on steady traffic (κ = 1,
//                              σ = 0.7), mean; of 448
//   eplb.prefill8.sS, .prefill4.sS   realised by ours at EP8 and EP4 with 4 spare slots, and 8,192
//                              tokens on a rank
//   eplb.ms, .topics           planning 40 layers of 384 experts on 64 ranks, 100 steps recorded;
//                              where experts are busy together, so that every layer is also packed
//                              by all steps
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

constexpr int kLayers = 10;

// Sums over layers, and the worst layer.
struct Figure {
    Balance sum;
    double worst = 0;
    void add(const Balance& layer) {
        sum += layer;
        worst = std::max(worst, layer.ratio());
    }
    double ratio() const { return sum.ratio(); }
};

struct Outcome {
    Figure expected, none, published, deployed, ours, own_floor;
    double again_slots = 0;  // mean of layers
};

struct Setting {
    ExpertShape shape;
    double sigma = 0;
    std::int64_t alike = 1;
    Steps steps = {};
    double topics = 0;  // log-normal spread of each step's topics; 0: none
};

ExpertWindow record(testing::ExpertTraffic& traffic, const Setting& setting,
                    std::vector<std::int32_t>& experts) {
    ExpertWindow window(kExperts);
    for (std::int64_t i = 0; i < setting.steps.recorded; ++i) {
        if (setting.topics > 0) traffic.choose_topics(setting.topics);
        traffic.draw(setting.shape.ranks * setting.steps.tokens_per_rank, kTop, setting.alike,
                     experts);
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(kExperts));
        for (const std::int32_t e : experts)
            ++tokens[static_cast<std::size_t>(e)];
        window.add(tokens);
    }
    return window;
}

void measure_layer(const Setting& setting, std::uint64_t seed, Outcome& outcome) {
    const ExpertShape& shape = setting.shape;
    testing::ExpertTraffic traffic(kExperts, setting.sigma, seed);
    std::vector<std::int32_t> experts;
    const ExpertWindow window = record(traffic, setting, experts);
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
    for (std::int64_t i = 0; i < setting.steps.counted; ++i) {
        if (setting.topics > 0) traffic.choose_topics(setting.topics);
        traffic.draw(shape.ranks * setting.steps.tokens_per_rank, kTop, setting.alike, experts);
        for (Router* router : {&none, &published, &deployed, &ours})
            router->count(experts, static_cast<std::uint64_t>(i));
    }
    outcome.expected.add(balance_of(shape, placement, loads));
    outcome.none.add(none.realised());
    outcome.published.add(published.realised());
    outcome.deployed.add(deployed.realised());
    outcome.ours.add(ours.realised());
    outcome.own_floor.add(ours.floor());
    const ExpertWindow later = record(traffic, setting, experts);
    predictor.observe(later.mean());
    const LayerPlan again = plan_layer(shape, predictor.predict(), later, placement, {});
    if (again.apply()) outcome.again_slots += static_cast<double>(again.move.slots) / kLayers;
}

Outcome measure(const Setting& setting) {
    Outcome outcome;
    for (int layer = 0; layer < kLayers; ++layer)
        measure_layer(setting, static_cast<std::uint64_t>(1 + layer), outcome);
    return outcome;
}

// `topics`: log-normal spread of the popularity of twelve groups of experts, step by step.
void bench_time(Report& report, const char* name, double topics, double limit) {
    constexpr int kPlanned = 40;
    const ExpertShape shape{.experts = kExperts, .ranks = 64, .slots = 7, .ranks_per_node = 8};
    std::vector<ExpertWindow> windows;
    for (int l = 0; l < kPlanned; ++l) {
        testing::ExpertTraffic traffic(kExperts, 0.7, static_cast<std::uint64_t>(100 + l));
        double sum = 0;
        for (const double p : traffic.popularity())
            sum += p;
        windows.emplace_back(kExperts);
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(kExperts));
        for (std::int64_t i = 0; i < Steps{}.recorded; ++i) {
            std::vector<double> factors;
            for (int t = 0; t < 12; ++t)
                factors.push_back(std::exp(topics * traffic.random().next_normal()));
            for (std::size_t e = 0; e < tokens.size(); ++e) {
                const double mean =
                    factors[e % 12] * 64 * kTokensPerRank * kTop * traffic.popularity()[e] / sum;
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
                fmt::print(stderr, "{}: a layer was not placed anew\n", name);
        }
        best = std::min(best, policy_thread_seconds() - start);
    }
    report.add(name, 1e3 * best, "ms", limit);
}

void add_realised(Report& report, const std::string& head, const std::string& tail,
                  const Outcome& outcome) {
    const auto add = [&](const char* name, const Figure& figure) {
        report.add(head + name + tail, figure.ratio(), "");
        report.add(head + name + tail + ".worst", figure.worst, "");
    };
    add("none", outcome.none);
    add("public", outcome.published);
    add("deployed", outcome.deployed);
    add("ours", outcome.ours);
}

}  // namespace

void bench_eplb(Report& report) {
    constexpr double kHighestOf64 = 2.39;  // expected maximum of 64 normal numbers
    const ExpertShape decode{.experts = kExperts, .ranks = 64, .slots = 7};
    double over_floor = 0, over_floor_layer = 0, over_own_floor = 0, again_slots = 0;
    for (const double sigma : {0.4, 0.7, 1.0}) {
        for (const std::int64_t alike : {1, 2, 4}) {
            const Outcome outcome = measure({.shape = decode, .sigma = sigma, .alike = alike});
            if (alike == 1)
                report.add(fmt::format("eplb.expected.s{:.1f}", sigma), outcome.expected.ratio(),
                           "");
            add_realised(report, "eplb.realised.", fmt::format(".s{:.1f}.k{}", sigma, alike),
                         outcome);
            const double floor =
                1 + kHighestOf64 * std::sqrt(static_cast<double>(alike) /
                                             static_cast<double>(kTokensPerRank * kTop));
            over_floor = std::max(over_floor, outcome.ours.ratio() / floor);
            over_floor_layer = std::max(over_floor_layer, outcome.ours.worst / floor);
            over_own_floor =
                std::max(over_own_floor, outcome.ours.ratio() / outcome.own_floor.ratio());
            if (alike == 1 && sigma == 0.7) again_slots = outcome.again_slots;
        }
    }
    add_realised(report, "eplb.topics.", "",
                 measure({.shape = decode, .sigma = 0.7, .topics = 0.3}));
    for (const std::int64_t ranks : {8, 4}) {
        const ExpertShape prefill{
            .experts = kExperts, .ranks = ranks, .slots = kExperts / ranks + 4};
        for (const double sigma : {0.4, 1.0})
            report.add(
                fmt::format("eplb.prefill{}.s{:.1f}", ranks, sigma),
                measure({.shape = prefill, .sigma = sigma, .steps = {8192, 10, 4}}).ours.ratio(),
                "");
    }
    report.add("eplb.over_floor", over_floor, "", 1.005);
    report.add("eplb.over_floor.layer", over_floor_layer, "");
    report.add("eplb.over_own_floor", over_own_floor, "");
    report.add("eplb.again.slots", again_slots, "slots");
    bench_time(report, "eplb.ms", 0, 100);
    bench_time(report, "eplb.ms.topics", 0.3, 100);
}

}  // namespace fathom::bench
