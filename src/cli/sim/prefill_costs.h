// A file of `fathom calibrate --prefill-costs`, or one like it, as what prefill costs a fleet: by
// length class, for engines of the size that was measured.
#pragma once

#include <string>

#include "base/result.h"
#include "sim/fleet/fleet_config.h"

namespace fathom {

// `model_dir` is the checkpoint that was measured; the file must be of its shape. Replaces the
// costs of all classes, takes as many engines of its size as the cards make (cards that make none
// are left out), and calls prefill measured. Errors name file and field: also engines of more ranks
// than there are cards, unless somebody says how many engines there are (`is_engines_given`).
Status apply_prefill_costs(const std::string& path, const std::string& model_dir,
                           bool is_engines_given, FleetConfig& config);

}  // namespace fathom
