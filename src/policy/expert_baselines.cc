#include "policy/expert_baselines.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace fathom {
namespace {

std::vector<std::size_t> falling(std::span<const double> values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
    return order;
}

// Items, heaviest first, each to the lightest of `packs` packs that has room: the pack of each.
std::vector<std::size_t> pack_items(std::span<const double> weights, std::size_t packs) {
    FATHOM_CHECK(weights.size() % packs == 0);
    const std::size_t room = weights.size() / packs;
    std::vector<std::size_t> pack_of(weights.size()), used(packs);
    std::vector<double> loads(packs);
    for (const std::size_t item : falling(weights)) {
        std::size_t least = packs;
        for (std::size_t p = 0; p < packs; ++p)
            if (used[p] < room && (least == packs || loads[p] < loads[least])) least = p;
        pack_of[item] = least;
        ++used[least];
        loads[least] += weights[item];
    }
    return pack_of;
}

// The experts of `total` copies; the first ones are one copy of each.
std::vector<std::size_t> replicate_items(std::span<const double> loads, std::size_t total) {
    std::vector<std::size_t> expert_of(loads.size());
    std::iota(expert_of.begin(), expert_of.end(), std::size_t{0});
    std::vector<double> copies(loads.size(), 1);
    while (expert_of.size() < total) {
        std::size_t heaviest = 0;
        for (std::size_t e = 1; e < loads.size(); ++e)
            if (loads[e] / copies[e] > loads[heaviest] / copies[heaviest]) heaviest = e;
        expert_of.push_back(heaviest);
        ++copies[heaviest];
    }
    return expert_of;
}

// Replicas of the experts of one node and their ranks.
void place_node(std::span<const double> loads, std::span<const std::int32_t> experts,
                std::size_t ranks, std::size_t slots, LayerPlacement& placement) {
    const std::vector<std::size_t> expert_of = replicate_items(loads, ranks * slots);
    std::vector<double> copies(loads.size()), weights;
    for (const std::size_t e : expert_of)
        ++copies[e];
    for (const std::size_t e : expert_of)
        weights.push_back(loads[e] / copies[e]);
    const std::vector<std::size_t> rank_of = pack_items(weights, ranks);
    for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < expert_of.size(); ++i)
            if (rank_of[i] == r) placement.push_back(experts[expert_of[i]]);
}

}  // namespace

LayerPlacement public_eplb(const ExpertShape& shape, std::span<const double> loads) {
    std::int64_t nodes = shape.nodes();
    std::int64_t groups = shape.groups;
    if (groups % nodes != 0) nodes = groups = 1;
    const std::int64_t group_size = shape.experts / groups;
    std::vector<double> group_loads(static_cast<std::size_t>(groups));
    for (std::size_t e = 0; e < loads.size(); ++e)
        group_loads[e / static_cast<std::size_t>(group_size)] += loads[e];
    const std::vector<std::size_t> node_of =
        pack_items(group_loads, static_cast<std::size_t>(nodes));
    LayerPlacement placement;
    for (std::size_t n = 0; n < static_cast<std::size_t>(nodes); ++n) {
        std::vector<double> own_loads;
        std::vector<std::int32_t> experts;
        for (std::size_t e = 0; e < loads.size(); ++e) {
            if (node_of[e / static_cast<std::size_t>(group_size)] != n) continue;
            own_loads.push_back(loads[e]);
            experts.push_back(static_cast<std::int32_t>(e));
        }
        place_node(own_loads, experts, static_cast<std::size_t>(shape.ranks / nodes),
                   static_cast<std::size_t>(shape.slots), placement);
    }
    return placement;
}

namespace {

// The heaviest two copies of every step decide what a replica gains: only one more of the heaviest
// expert can lower a step's maximum.
std::vector<std::int32_t> deployed_copies(const ExpertShape& shape, const ExpertWindow& window) {
    std::vector<std::int32_t> copies(static_cast<std::size_t>(shape.experts), 1);
    std::vector<double> gains(copies.size());
    for (std::int64_t given = shape.experts; given < shape.slots_total(); ++given) {
        std::fill(gains.begin(), gains.end(), 0.0);
        for (std::int64_t i = 0; i < window.steps(); ++i) {
            const std::span<const std::int32_t> tokens = window.step(i);
            std::size_t at = 0;
            double first = -1, second = -1;
            for (std::size_t e = 0; e < copies.size(); ++e) {
                const double load = static_cast<double>(tokens[e]) / copies[e];
                if (load > first) {
                    second = first;
                    first = load;
                    at = e;
                } else {
                    second = std::max(second, load);
                }
            }
            const double with_one_more = static_cast<double>(tokens[at]) / (copies[at] + 1);
            gains[at] += first - std::max(second, with_one_more);
        }
        // Ties to the lower expert by a small weight of its index.
        std::size_t best = 0;
        double best_score = gains[0];
        for (std::size_t e = 1; e < gains.size(); ++e)
            if (const double score = gains[e] - 1e-4 * static_cast<double>(e); score > best_score) {
                best = e;
                best_score = score;
            }
        ++copies[best];
    }
    return copies;
}

}  // namespace

LayerPlacement deployed_eplb(const ExpertShape& shape, const ExpertWindow& window) {
    const std::vector<std::int32_t> copies = deployed_copies(shape, window);
    const auto steps = static_cast<std::size_t>(window.steps());
    const auto ranks = static_cast<std::size_t>(shape.ranks);
    std::vector<double> totals;
    std::vector<std::int32_t> expert_of;
    const std::vector<double> means = window.mean();
    for (std::size_t e = 0; e < copies.size(); ++e)
        for (std::int32_t c = 0; c < copies[e]; ++c) {
            expert_of.push_back(static_cast<std::int32_t>(e));
            totals.push_back(means[e] / copies[e]);
        }
    std::vector<double> loads(ranks * steps), maxima(steps), series(steps);
    std::vector<std::int64_t> used(ranks);
    LayerPlacement placement(static_cast<std::size_t>(shape.slots_total()), -1);
    for (const std::size_t item : falling(totals)) {
        const auto expert = static_cast<std::size_t>(expert_of[item]);
        for (std::size_t i = 0; i < steps; ++i)
            series[i] = static_cast<double>(window.step(static_cast<std::int64_t>(i))[expert]) /
                        copies[expert];
        std::size_t best = ranks;
        double best_sum = 0;
        for (std::size_t r = 0; r < ranks; ++r) {
            if (used[r] == shape.slots) continue;
            double sum = 0;
            for (std::size_t i = 0; i < steps; ++i)
                sum += std::max(maxima[i], loads[r * steps + i] + series[i]);
            if (best == ranks || sum < best_sum) {
                best = r;
                best_sum = sum;
            }
        }
        placement[best * static_cast<std::size_t>(shape.slots) +
                  static_cast<std::size_t>(used[best]++)] = expert_of[item];
        for (std::size_t i = 0; i < steps; ++i) {
            loads[best * steps + i] += series[i];
            maxima[i] = std::max(maxima[i], loads[best * steps + i]);
        }
    }
    return placement;
}

}  // namespace fathom
