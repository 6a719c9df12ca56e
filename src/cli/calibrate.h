// What `fathom calibrate` does with a loaded model: measures steps, fits the scheduler's cost model
// to all of them and a fleet's prefill costs to those of prefill, and writes what passes its gates.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "cli/stack.h"
#include "policy/prefill_cost.h"

namespace fathom {

struct CalibrateSettings {
    std::string output = "cost_model.json";
    std::string prefill_costs;  // a second file, of sim.prefill_costs; empty: none
    std::int64_t seconds = 300, context_max = 65'536;
    bool json = false;
};

// What a person wants to know of it, in lines.
std::string prefill_fit_text(const PrefillCalibration& calibration);

// Prints a report. invalid_argument, before anything is measured, when the model's steps are too
// small for prefill costs; unavailable when a fit misses its gates, whose file is then not written,
// while the other one is; cancelled after a signal.
Status calibrate(const LoadedModel& loaded, const CalibrateSettings& settings, const Clock& clock);

}  // namespace fathom
