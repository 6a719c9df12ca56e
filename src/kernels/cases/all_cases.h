#pragma once

#include "kernels/cases/attention_cases.h"
#include "kernels/cases/linear_cases.h"
#include "kernels/cases/row_cases.h"

namespace fathom::cases {

// Every operator of Backend, with inputs drawn from `seed`.
inline std::vector<OperatorCase> all_cases(std::uint64_t seed) {
    std::vector<OperatorCase> cases;
    RandomStream random(seed);
    for (const auto add : {add_linear, add_grouped_linear, add_norms_and_trips, add_rope, add_mhc,
                           add_caches, add_index_scores, add_selection, add_attention, add_route,
                           add_gate_up, add_moe, add_engram}) {
        add(cases, random);
    }
    return cases;
}

}  // namespace fathom::cases
