// What the cost model has to know of a model (policy/work_counts.h), from its configuration.
#pragma once

#include "model/config.h"
#include "policy/work_counts.h"

namespace fathom {

ModelShape make_model_shape(const ModelConfig& config);

}  // namespace fathom
