#include "policy/share.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace fathom {

std::vector<double> share_budget(double budget, std::span<const double> needs) {
    if (std::accumulate(needs.begin(), needs.end(), 0.0) <= budget)
        return {needs.begin(), needs.end()};
    std::vector<double> shares(needs.size(), 0.0);
    if (needs.empty() || budget <= 0) return shares;
    std::vector<std::size_t> order(needs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return needs[a] < needs[b]; });
    const double reserve = kOldestShare * budget;
    double left = budget - reserve;
    std::size_t finishing = 0;
    for (; needs[order[finishing]] <= left; ++finishing) {  // not all: they are more than budget
        shares[order[finishing]] = needs[order[finishing]];
        left -= shares[order[finishing]];
    }
    std::size_t oldest = 0;
    while (shares[oldest] > 0 || needs[oldest] <= 0)
        ++oldest;
    shares[oldest] = std::min(needs[oldest], reserve);
    if (finishing > 0) return shares;
    for (const std::size_t i : order) {
        const double given = std::min(needs[i] - shares[i], left);
        shares[i] += given;
        left -= given;
    }
    return shares;
}

}  // namespace fathom
