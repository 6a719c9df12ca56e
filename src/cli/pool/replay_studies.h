// Prepared questions for `fathom pool replay --study`, each with its settings, on the traces of one
// folder (docs/pool_replay.md). What was measured on a trace and what is assumed beyond it stand
// apart in the output.
//
//   trace-figures  the published hit rates beside ours
//   renewal        what fixed expiry loses, and what renewing near the end wins back, at which
//   price capacity       earliest expiry by whole segments, LRU and S3-FIFO with the same bytes
//   chat-ttl       what a TTL of 3 days costs chat against 7 days
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "sim/replay/replay.h"

namespace fathom {

struct StudyResult {
    std::string text;
    Json json;
    bool passed = true;  // trace-figures: all within the tolerance
};

// `study` is one of the names above. `options` gives the progress callback.
Result<StudyResult> run_study(const std::string& study, const std::string& folder,
                              const ReplayOptions& options);

}  // namespace fathom
