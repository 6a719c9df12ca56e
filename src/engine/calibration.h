// Measures steps of a model for its cost model (policy/cost_fit.h). A context is made of copies of
// the pages of a really computed text, so that caches and selections meet data as they are in use,
// without computing a hundred thousand tokens first.
//
// Two uses: `fathom calibrate` measures a grid as large as machine and time allow; every start
// without a calibrated file takes a probe of a few short steps, which gives one speed that stands
// for all arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "model/model.h"
#include "policy/cost_fit.h"
#include "policy/prefill_cost.h"

namespace fathom {

// A step of equal slices.
struct CalibrationPoint {
    std::int64_t context = 0, rows = 1, slices = 1;
    std::int64_t decoder_rows = 0;  // of each slice, at its end; with any, it gives logits too
    bool first = false;
};

struct CalibrationOptions {
    std::vector<CalibrationPoint> points;
    int warm_ups = 1, repeats = 5;
    std::int64_t time_limit_us = 0;  // points that will not fit any more are left out
    // Called before each point; false ends the measurement with `cancelled`. May be empty.
    std::function<bool(std::size_t done, std::size_t total)> on_progress;
    // Told of each step that was measured. May be empty.
    std::function<void(const CalibrationPoint& point, const CostSample& sample)> on_sample;
};

// The grid of serving.md 2.1.3 as far as rows_max, the model's positions and context_max go, cheap
// points first.
std::vector<CalibrationPoint> calibration_grid(const Model& model, std::int64_t context_max);

// The model is the caller's alone meanwhile. Points that do not fit the model are left out.
Result<std::vector<CostSample>> measure_steps(Model& model, const CalibrationOptions& options,
                                              const Clock& clock);

// Whether a fleet's prefill cost (policy/prefill_cost.h) is about such steps: slices of a block or
// more. Fewer rows are decode, or the crumbs that no prefill step leaves.
bool is_prefill(const CalibrationPoint& point);
// A measured step of prefill as that cost sees it.
PrefillSample prefill_sample(const CalibrationPoint& point, const CostSample& sample);

// The probe, about time_limit_us long (longer only where a single row takes longer).
CostModel probe_cost_model(Model& model, const Clock& clock, std::int64_t time_limit_us);

}  // namespace fathom
