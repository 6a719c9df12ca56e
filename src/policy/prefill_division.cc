#include "policy/prefill_division.h"

#include <algorithm>
#include <numeric>

namespace fathom {

namespace {

constexpr std::int64_t kChangeDivisor = 10;

std::int64_t sum(const ClassCounts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Demand with the least one joined to its next longer neighbour (the longest: next shorter) until
// there are at most `engines` classes.
ClassCounts merge_demand(ClassCounts demand, std::int64_t engines) {
    for (;;) {
        std::size_t least = kPrefillClasses;
        std::int64_t active = 0;
        for (std::size_t k = 0; k < kPrefillClasses; ++k) {
            if (demand[k] == 0) continue;
            ++active;
            if (least == kPrefillClasses || demand[k] < demand[least]) least = k;
        }
        if (active <= engines) return demand;
        std::size_t target = least;
        for (std::size_t k = least + 1; k < kPrefillClasses && target == least; ++k)
            if (demand[k] > 0) target = k;
        for (std::size_t k = least; k-- > 0 && target == least;)
            if (demand[k] > 0) target = k;
        demand[target] += demand[least];
        demand[least] = 0;
    }
}

ClassCounts by_demand(const ClassCounts& demand, std::int64_t engines) {
    std::array<double, kPrefillClasses> share{};
    double all = 0;
    for (const std::int64_t d : demand)
        all += static_cast<double>(d);
    ClassCounts n{};
    for (std::size_t k = 0; k < kPrefillClasses; ++k) {
        if (demand[k] == 0) continue;
        share[k] = static_cast<double>(demand[k]) / all * static_cast<double>(engines);
        n[k] = std::max<std::int64_t>(1, static_cast<std::int64_t>(share[k]));
    }
    const auto excess = [&](std::size_t k) { return static_cast<double>(n[k]) - share[k]; };
    while (sum(n) > engines) {
        std::size_t worst = kPrefillClasses;
        for (std::size_t k = 0; k < kPrefillClasses; ++k)
            if (n[k] > 1 && (worst == kPrefillClasses || excess(k) > excess(worst))) worst = k;
        --n[worst];  // there is one: at most `engines` classes have demand
    }
    while (sum(n) < engines) {
        std::size_t worst = kPrefillClasses;
        for (std::size_t k = 0; k < kPrefillClasses; ++k) {
            if (demand[k] == 0) continue;
            if (worst == kPrefillClasses || excess(k) < excess(worst)) worst = k;
        }
        ++n[worst];
    }
    return n;
}

// `change` steps from `previous` towards `target`, each where the gap is largest.
ClassCounts step_towards(ClassCounts previous, const ClassCounts& target, std::int64_t change) {
    for (; change > 0; --change) {
        std::size_t from = 0, to = 0;
        for (std::size_t k = 1; k < kPrefillClasses; ++k) {
            if (previous[k] - target[k] > previous[from] - target[from]) from = k;
            if (target[k] - previous[k] > target[to] - previous[to]) to = k;
        }
        --previous[from];
        ++previous[to];
    }
    return previous;
}

}  // namespace

std::array<std::size_t, kPrefillClasses> serving_classes(const ClassCounts& engines) {
    std::array<std::size_t, kPrefillClasses> served_by{};
    for (std::size_t k = 0; k < kPrefillClasses; ++k) {
        served_by[k] = k;
        for (std::size_t j = k; j < kPrefillClasses && engines[served_by[k]] == 0; ++j)
            if (engines[j] > 0) served_by[k] = j;
        for (std::size_t j = k; j-- > 0 && engines[served_by[k]] == 0;)
            if (engines[j] > 0) served_by[k] = j;
    }
    return served_by;
}

Division divide_engines(const DivisionInput& input) {
    Division division;
    division.engines = input.previous;
    if (input.engines > 0 && sum(input.demand_us) > 0) {
        const ClassCounts target =
            by_demand(merge_demand(input.demand_us, input.engines), input.engines);
        std::int64_t change = 0;
        for (std::size_t k = 0; k < kPrefillClasses; ++k)
            change += std::max<std::int64_t>(0, target[k] - input.previous[k]);
        const std::int64_t limit = std::max<std::int64_t>(1, input.engines / kChangeDivisor);
        division.engines = input.is_limited && change > limit
                               ? step_towards(input.previous, target, limit)
                               : target;
    }
    division.served_by = serving_classes(division.engines);
    return division;
}

}  // namespace fathom
