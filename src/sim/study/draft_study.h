// What the live verification scheduler gains on a simulated decode group that never lacks work: so
// many sequences on each rank, each of which is followed by another one when it ends. The group is
// the simulator's own (fleet/decode_side.h): ranks in lock step, contexts of their own lengths,
// steps with noise, sequences that come and go.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/fleet/fleet_config.h"

namespace fathom {

struct DraftStudy {
    DecodeSideConfig decode;              // of one group; its `groups` and `ranks` are ignored
    std::vector<std::int64_t> sequences;  // of each rank
    double context_tokens = 30'000, context_sigma = 1.2;  // median, deviation of the logarithm
    double output_tokens = 500, output_sigma = 0.8;
    std::int64_t warmup_steps = 300, steps = 2000;
    std::uint64_t seed = 1;
};
struct DraftStudyResult {
    double tokens_s = 0;  // accepted, of all ranks
    DraftFigures figures;
    std::uint64_t decisions = 0;  // hash
};
DraftStudyResult run_draft_study(const DraftStudy& study);

// Gain in tokens a second over verifying all drafts of the same sequences; 0.01: 1 %.
double draft_gain(const DraftStudy& study);

}  // namespace fathom
