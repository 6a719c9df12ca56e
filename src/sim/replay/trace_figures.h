// The token hit rates that were published with this project's traces (kvpool.md 15.5), and what
// this code makes of the same settings. They tie the models here to figures found in another way: a
// change that moves one by more than half a point is a change of meaning.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/replay/replay.h"

namespace fathom {

inline constexpr double kTraceFigureTolerance = 0.005;

struct TraceFigure {
    std::string trace;  // file name without .jsonl or .jsonl.zst
    std::string setting;
    CachePolicy policy;
    double published = 0;
};
// Grouped by trace.
std::vector<TraceFigure> trace_figures();

struct TraceFigureRow {
    TraceFigure figure;
    double measured = 0;
    double difference() const { return measured - figure.published; }
};
// Replays every trace of `figures` that lies in `folder`, each once for all its figures. not_found
// when none does; a trace that is absent is left out.
Result<std::vector<TraceFigureRow>> run_trace_figures(const std::string& folder,
                                                      const std::vector<TraceFigure>& figures,
                                                      const ReplayOptions& options);

// folder/name.jsonl.zst or folder/name.jsonl; empty when neither is there.
std::string find_trace(const std::string& folder, const std::string& name);

}  // namespace fathom
