// Two known expert balancers, from their descriptions, to compare with. Neither forbids two copies
// of an expert on one rank, and neither minds what a change moves.
#pragma once

#include "policy/expert_placement.h"

namespace fathom {

// The published EPLB algorithm, by summed loads: replicas one by one to the heaviest copy; copies
// in falling order to the lightest rank (node) with room. With nodes that divide the groups,
// hierarchical: groups to nodes, replicas within each node, copies to its ranks.
LayerPlacement public_eplb(const ExpertShape& shape, std::span<const double> loads);

// The deployed engine's, by the recorded steps (deepinfer-engine.md 14): a replica goes to the
// expert that lowers Σ over steps of the heaviest copy most; copies in falling order of their total
// go to the rank with room where Σ over steps of the heaviest rank stays lowest.
LayerPlacement deployed_eplb(const ExpertShape& shape, const ExpertWindow& window);

}  // namespace fathom
