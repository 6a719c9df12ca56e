// All comparisons of one case in one numeric mode, as a list of checks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/verify/case.h"
#include "cli/verify/compare.h"
#include "cli/verify/runner.h"

namespace fathom::verify {

struct SuiteOptions {
    NumericMode mode = NumericMode::real;
    int threads = 1;
    std::string backend = "auto";
    std::function<void(const std::string& what)> progress;  // may be empty
};

// Fails only when the case cannot be run at all; what differs is in the checks.
Result<std::vector<Check>> run_suite(const GoldenCase& c, const SuiteOptions& options);

}  // namespace fathom::verify
