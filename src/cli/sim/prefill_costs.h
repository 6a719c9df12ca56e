// A file of `fathom calibrate --prefill-costs`, or one like it, as what prefill costs a fleet: by
// length class, for engines of the size that was measured.
#pragma once

#include <string>

#include "base/result.h"
#include "sim/fleet/fleet_config.h"

namespace fathom {

// `model_dir` is the checkpoint that was measured; the file must be of its shape. Replaces the
// costs of all classes, takes as many engines of its size as the cards make, and calls prefill
// measured. Errors name file and field.
Status apply_prefill_costs(const std::string& path, const std::string& model_dir,
                           FleetConfig& config);

}  // namespace fathom
