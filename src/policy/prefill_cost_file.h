// What prefill costs a fleet, as a JSON file. It holds for one model, one build of the kernels, one
// engine size and one type of card, and names them; with any other it is refused, since a wrong
// model plans steps that are late, which looks like a slow machine (serving.md 2.1.3).
//
//   {"format": "fathom-prefill-cost-1", "model": "…", "kernels": "…", "ranks": 4, "card": "…",
//    "method": "pooled", "mean_error": 0.03, "p99_error": 0.08, "samples": 96,
//    "classes": [{"k0_us": …, …, "k5_us": …, "table": {"contexts": […], "tokens": […], "us": […]}},
//                …]}
//
// "table" only where no coefficients fit. `fathom calibrate --prefill-costs` writes it, of engines
// of one rank, and `sim.prefill_costs` reads it.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "policy/prefill_cost.h"

namespace fathom {

struct PrefillCostIdentity {
    std::string model;    // a digest
    std::string kernels;  // build
    std::int64_t ranks = 0;
    std::string card;
};

std::string prefill_cost_file_text(const PrefillCostIdentity& identity,
                                   const PrefillCalibration& calibration);
// No coefficient and no time of a table is more, and a table covers slices of a block.
inline constexpr double kPrefillCostUsMax = 1e9;
// Errors name the field, the value and what was expected; fields that are not above are refused.
Result<PrefillCosts> read_prefill_cost_file(const Json& file, const PrefillCostIdentity& expected);

}  // namespace fathom
