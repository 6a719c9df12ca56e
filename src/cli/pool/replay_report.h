// Results of `fathom pool replay` as a table for people, CSV, JSON, and a plot in SVG. Pure text.
#pragma once

#include <string>
#include <vector>

#include "sim/replay/replay.h"

namespace fathom {

struct TraceReport {
    std::string trace;  // as it was named on the command line
    ReplayResult result;
};

std::string replay_table(const std::vector<TraceReport>& reports);
std::string replay_csv(const std::vector<TraceReport>& reports);
std::string replay_json(const std::vector<TraceReport>& reports);
// Hit rate by capacity where the rows have several capacities, else by TTL; a line for each policy,
// policies without an end as a horizontal line. Needs nothing but a viewer.
std::string replay_svg(const std::vector<TraceReport>& reports);

}  // namespace fathom
