// Verification lengths of one rank exactly as the deployed engine decides them, as cases in files
// of JSON lines:
//
//   {"id": "…", "drafts": N, "curve": [[rows, ms], …],
//    "updates": [[requests, rows run, forward ms, sampler ms], …],       measured steps before
//    "sequences": [{"paired": true, "drafted": true, "rates": [N], "prev": [N]}, …],
//    "lengths": [1 + verified drafts of each sequence]}
//
// rates are survivals of the newest processed block, prev those of the one before; either may be
// empty. `paired`: the last step that was scheduled has been processed. The total comes from the
// block before the last scheduled one, the lengths from the newest: of a paired sequence prev and
// rates, of another one rates twice. What is missing counts as 1 where there is a draft, else as 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "policy/verify_budget.h"

namespace fathom {

struct VerifySequence {
    bool paired = false, drafted = false;
    std::vector<float> rates, prev;
};

struct VerifyUpdate {
    std::int64_t requests = 0, run = 0;
    double forward_ms = 0, sampler_ms = 0;
};

struct VerifyCase {
    std::string id;
    std::int64_t drafts = 0;
    VerifyCurve curve;
    std::vector<VerifyUpdate> updates;
    std::vector<VerifySequence> sequences;
    std::vector<std::int32_t> lengths;
};

inline constexpr std::int64_t kCaseSequencesMax = 16'384;

// Errors name the field.
Result<VerifyCase> read_verify_case(const Json& json);
std::vector<std::int32_t> deployed_lengths(const VerifyCase& verify_case);

}  // namespace fathom
