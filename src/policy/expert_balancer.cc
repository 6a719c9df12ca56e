#include "policy/expert_balancer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace fathom {
namespace {

// What lies on live ranks.
LayerPlacement live_part(const ExpertShape& shape, std::span<const std::int32_t> current,
                         std::span<const std::uint8_t> alive) {
    LayerPlacement live(current.begin(), current.end());
    for (std::size_t s = 0; s < live.size() && !alive.empty(); ++s)
        if (alive[s / static_cast<std::size_t>(shape.slots)] == 0) live[s] = -1;
    return live;
}

LayerPlacement place(const ExpertShape& shape, std::span<const double> loads,
                     std::span<const std::uint8_t> alive, std::int64_t alive_count) {
    const std::vector<std::int32_t> copies =
        replicate(loads, alive_count * shape.slots, alive_count);
    LayerPlacement placement = pack(shape, loads, copies, alive);
    refine(shape, loads, placement, alive);
    return placement;
}

// As many groups on each node, heaviest first to the lightest node with room: groups of each node.
std::vector<std::vector<std::int64_t>> groups_to_nodes(const ExpertShape& shape,
                                                       std::span<const double> loads) {
    const std::int64_t size = shape.experts / shape.groups;
    const auto room = static_cast<std::size_t>(shape.groups / shape.nodes());
    std::vector<double> group_loads(static_cast<std::size_t>(shape.groups));
    for (std::size_t e = 0; e < loads.size(); ++e)
        group_loads[e / static_cast<std::size_t>(size)] += loads[e];
    std::vector<std::int64_t> order(group_loads.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return group_loads[static_cast<std::size_t>(a)] > group_loads[static_cast<std::size_t>(b)];
    });
    std::vector<std::vector<std::int64_t>> nodes(static_cast<std::size_t>(shape.nodes()));
    std::vector<double> node_loads(nodes.size());
    for (const std::int64_t group : order) {
        std::size_t least = nodes.size();
        for (std::size_t n = 0; n < nodes.size(); ++n)
            if (nodes[n].size() < room &&
                (least == nodes.size() || node_loads[n] < node_loads[least]))
                least = n;
        nodes[least].push_back(group);
        node_loads[least] += group_loads[static_cast<std::size_t>(group)];
    }
    return nodes;
}

LayerPlacement place_by_nodes(const ExpertShape& shape, std::span<const double> loads) {
    const std::int64_t group_size = shape.experts / shape.groups;
    LayerPlacement placement;
    for (const std::vector<std::int64_t>& groups : groups_to_nodes(shape, loads)) {
        std::vector<std::int32_t> experts;
        std::vector<double> own_loads;
        for (const std::int64_t group : groups)
            for (std::int64_t e = group * group_size; e < (group + 1) * group_size; ++e) {
                experts.push_back(static_cast<std::int32_t>(e));
                own_loads.push_back(loads[static_cast<std::size_t>(e)]);
            }
        const ExpertShape node{.experts = static_cast<std::int64_t>(experts.size()),
                               .ranks = shape.ranks_per_node,
                               .slots = shape.slots};
        for (const std::int32_t local : place(node, own_loads, {}, node.ranks))
            placement.push_back(local < 0 ? -1 : experts[static_cast<std::size_t>(local)]);
    }
    return placement;
}

// Of every step, how much less its maximum is than before, over the mean: average and standard
// error. One value, and no error, without steps.
struct Gain {
    double mean = 0, error = 0;
};
Gain gain_of(std::span<const Balance> before, std::span<const Balance> after) {
    double scale = 0;
    for (const Balance& step : before)
        scale += step.mean_sum;
    const auto n = static_cast<double>(before.size());
    scale /= n;
    if (!(scale > 0)) return {};
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
        const double gain = (before[i].max_sum - after[i].max_sum) / scale;
        sum += gain;
        squares += gain * gain;
    }
    const double mean = sum / n;
    const double variance = n > 1 ? std::max(0.0, squares - n * mean * mean) / (n - 1) : 0;
    return {mean, std::sqrt(variance / n)};
}

double ratio_of(std::span<const Balance> steps) {
    Balance sum;
    for (const Balance& step : steps)
        sum += step;
    return sum.ratio();
}

constexpr std::int64_t kTrialStepsMin = 16;

// Every second step.
ExpertWindow half_of(const ExpertWindow& window, std::int64_t first) {
    ExpertWindow half(window.experts(), (window.steps() - first + 1) / 2);
    for (std::int64_t i = first; i < window.steps(); i += 2)
        half.add(window.step(i));
    return half;
}

// A placement by steps, if it is surely better than `by_loads` at steps that it was not fitted to.
struct StepTrial {
    LayerPlacement placement;            // fitted to all steps; empty: not better
    std::vector<Balance> before, after;  // of the trial's other steps
};
StepTrial try_steps(const ExpertShape& shape, std::span<const double> loads,
                    const ExpertWindow& window, std::span<const std::int32_t> live,
                    const LayerPlacement& by_loads, int swaps_max) {
    StepTrial trial;
    if (window.steps() < kTrialStepsMin || shape.ranks < 2) return trial;
    const ExpertWindow judged = half_of(window, 1), other = half_of(window, 0);
    const std::vector<std::int32_t> copies = replicate(loads, shape.slots_total(), shape.ranks);
    const LayerPlacement fitted = pack_steps(shape, loads, copies, other);
    if (fitted.empty()) return trial;
    trial.after = step_balances(shape, fitted, judged);
    const Gain gain = gain_of(step_balances(shape, by_loads, judged), trial.after);
    if (!(gain.mean - 2 * gain.error > 0)) return trial;
    trial.before = step_balances(shape, live, judged);
    trial.placement = pack_steps(shape, loads, copies, window);
    if (!trial.placement.empty()) refine_steps(shape, loads, window, swaps_max, trial.placement);
    return trial;
}

std::vector<Balance> balances(const ExpertShape& shape, std::span<const std::int32_t> placement,
                              std::span<const double> loads, const ExpertWindow& window) {
    if (window.steps() == 0) return {balance_of(shape, placement, loads)};
    return step_balances(shape, placement, window);
}

PlacementReason gate(const BalanceRules& rules, const Gain& gain, const MoveCost& move) {
    if (!(gain.mean > 0) || move.slots == 0) return PlacementReason::no_gain;
    const double sure = gain.mean - 2 * gain.error;
    const double saved_us = rules.tokens_until_next * rules.moe_us_per_token * sure;
    const double move_us =
        static_cast<double>(move.weighted) * rules.fetch_us_per_slot * rules.interference;
    const bool priced = rules.tokens_until_next > 0 && rules.moe_us_per_token > 0;
    if (priced ? saved_us > move_us : sure > 0) return PlacementReason::applied;
    return PlacementReason::not_worth;
}

}  // namespace

DecisionRecord LayerPlan::record(std::int64_t now_us, std::uint32_t layer) const {
    Digest digest;
    for (const std::int32_t expert : placement)
        digest.add(expert);
    return {.kind = DecisionKind::expert_placement,
            .reason = static_cast<std::uint16_t>(reason),
            .actor = layer,
            .now_us = now_us,
            .input_digest = input_digest,
            .fields = {move.slots, move.weighted, std::llround(1e6 * before),
                       std::llround(1e6 * after), static_cast<std::int64_t>(digest.value())}};
}

LayerPlan plan_layer(const ExpertShape& shape, std::span<const double> loads,
                     const ExpertWindow& window, std::span<const std::int32_t> current,
                     const BalanceRules& rules, std::span<const std::uint8_t> alive) {
    FATHOM_CHECK(shape.check().ok());
    FATHOM_CHECK(static_cast<std::int64_t>(loads.size()) == shape.experts &&
                 window.experts() == shape.experts &&
                 static_cast<std::int64_t>(current.size()) == shape.slots_total() &&
                 (alive.empty() || static_cast<std::int64_t>(alive.size()) == shape.ranks));
    LayerPlan plan;
    Digest digest;
    for (const double load : loads)
        digest.add(load);
    for (const std::int32_t expert : current)
        digest.add(expert);
    for (const std::uint8_t is_alive : alive)
        digest.add(is_alive != 0);
    for (std::int64_t i = 0; i < window.steps(); ++i)
        for (const std::int32_t tokens : window.step(i))
            digest.add(tokens);
    digest.add(rules.hierarchical).add(rules.by_steps);
    digest.add(static_cast<std::int64_t>(rules.swaps_max));
    digest.add(rules.tokens_until_next).add(rules.moe_us_per_token);
    plan.input_digest = digest.add(rules.fetch_us_per_slot).add(rules.interference).value();

    const std::int64_t alive_count =
        alive.empty() ? shape.ranks
                      : shape.ranks - std::count(alive.begin(), alive.end(), std::uint8_t{0});
    const bool all_alive = alive_count == shape.ranks;
    const LayerPlacement live = live_part(shape, current, alive);
    const std::vector<std::int32_t> copies = count_copies(shape, live);
    const bool mandatory = std::find(copies.begin(), copies.end(), 0) != copies.end();
    if (alive_count * shape.slots < shape.experts) {
        plan.reason = PlacementReason::no_room;
        return plan;
    }
    const bool traffic =
        std::any_of(loads.begin(), loads.end(), [](double load) { return load > 0; });
    if (!traffic && !mandatory) return plan;

    const bool by_nodes =
        rules.hierarchical && all_alive && shape.nodes() > 1 && shape.groups % shape.nodes() == 0;
    LayerPlacement placement =
        by_nodes ? place_by_nodes(shape, loads) : place(shape, loads, alive, alive_count);
    StepTrial trial;
    if (rules.by_steps && !by_nodes && all_alive)
        trial = try_steps(shape, loads, window, live, placement, rules.swaps_max);
    plan.by_steps = !trial.placement.empty();
    if (plan.by_steps) placement = std::move(trial.placement);
    plan.move = relabel(shape, live, by_nodes, alive, placement);
    const std::vector<Balance> before =
        plan.by_steps ? std::move(trial.before) : balances(shape, live, loads, window);
    const std::vector<Balance> after =
        plan.by_steps ? std::move(trial.after) : balances(shape, placement, loads, window);
    plan.before = ratio_of(before);
    plan.after = ratio_of(after);
    plan.reason =
        mandatory ? PlacementReason::mandatory : gate(rules, gain_of(before, after), plan.move);
    if (mandatory || plan.reason == PlacementReason::applied) plan.placement = std::move(placement);
    return plan;
}

}  // namespace fathom
