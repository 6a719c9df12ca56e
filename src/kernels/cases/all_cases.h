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

// Shapes of the released model, for timing: one token and a batch of 48.
inline std::vector<OperatorCase> large_cases(std::uint64_t seed) {
    constexpr auto kFp8 = WeightFormat::fp8_block32, kFp4 = WeightFormat::fp4_row32;
    constexpr auto kAct = DType::bf16;
    std::vector<OperatorCase> cases;
    RandomStream random(seed);
    for (const std::int64_t n : {1, 48}) {
        for (const LinearShape& r :
             {LinearShape{kFp8, 1280, 5120, n, kAct, kAct, Magnitude::ordinary, true},
              LinearShape{kFp4, 2304, 5120, n, kAct, kAct, Magnitude::ordinary, true},
              LinearShape{WeightFormat::bf16, 384, 5120, n, kAct, DType::f32, Magnitude::ordinary,
                          false}}) {
            cases.push_back(linear_case(random, r));
        }
        cases.push_back(moe_case(random, {8, 6, 1024, 512, n, true, NumericMode::real}));
    }
    cases.push_back(index_case(random, {KvFormat::index_fp4, 32, 128, 8192, 1, 0}));
    cases.push_back(selection_case(random, {65536, 512, 1, 0, 0}));
    cases.push_back(
        attention_case(random, {KvFormat::window_fp8, KvFormat::main_fp4, 64, 512, 1, 128, 512}));
    return cases;
}

}  // namespace fathom::cases
