// The assignment problem: one column for each row, each column once, least sum of costs (the
// Hungarian method with potentials, O(n³)).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fathom {

// cost[row * n + column], n = √size; finite, below 2^40 in size. Returns the column of each row.
// Deterministic; which of several best ones is returned depends on the costs only.
std::vector<std::int32_t> assign_least(std::span<const std::int64_t> cost);

}  // namespace fathom
