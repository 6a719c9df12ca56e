// A file of `fathom calibrate` as the step curves of a fleet: each card is then a machine like the
// one that was measured, with an engine to itself.
#pragma once

#include <string>

#include "base/result.h"
#include "policy/cost_model.h"
#include "sim/fleet/fleet_config.h"

namespace fathom {

// The shape of the checkpoint in `model_dir` that the file of `key` was measured with. Names the
// key where no folder is given.
Result<ModelShape> measured_shape(const char* key, const std::string& model_dir);

// `model_dir` is the checkpoint that was measured; the file must be of its shape. Replaces what
// steps cost on both sides by a fit to the file's own predictions, takes as many engines of one
// card as there were cards, no drafts, and calls prefill and decode measured. Errors name file and
// field.
Status apply_calibration(const std::string& path, const std::string& model_dir,
                         FleetConfig& config);

}  // namespace fathom
