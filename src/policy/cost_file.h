// A cost model as a JSON file. It holds for one model, one build of the kernels and one number of
// threads, and names them: with any other it is refused, since a wrong model plans steps that are
// late, which looks like a slow machine.
//
//   {"format": "fathom-cost-model-1", "model": "…", "kernels": "…", "threads": 2,
//    "microseconds": {"step": 12.5, "reads": …, …},
//    "mean_error": 0.03, "p99_error": 0.08, "samples": 96}
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "policy/cost_fit.h"

namespace fathom {

struct CostIdentity {
    std::string model;    // shape_digest
    std::string kernels;  // back end and version
    std::int64_t threads = 0;
};

// 16 hex digits of everything that the counts know of a model.
std::string shape_digest(const ModelShape& shape);

std::string cost_file_text(const CostIdentity& identity, const CostFit& fit);
// Errors name the field and both values; fields that are not above are refused.
Result<CostModel> read_cost_file(const Json& file, const CostIdentity& expected);

}  // namespace fathom
