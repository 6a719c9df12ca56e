// Figures that may not be there: no percentile of no requests. Tables say "-", JSON null, CSV
// nothing, and plots leave a gap.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "sim/fleet/fleet_result.h"

namespace fathom {

using Figure = std::optional<double>;

inline Figure figure_if(bool is_there, double value) {
    return is_there ? Figure(value) : std::nullopt;
}
inline Figure percentile_of(const LogHistogram& histogram, double share) {
    return figure_if(histogram.count() > 0, histogram.percentile(share));
}
inline Figure mean_of(const LogHistogram& histogram) {
    return figure_if(histogram.count() > 0, histogram.mean());
}
// part ÷ whole; nothing of nothing.
Figure share_of(std::int64_t part, std::int64_t whole);

// Right-aligned in `width`, with `digits` behind the point.
std::string figure_cell(Figure figure, int width, int digits);
// The same in a sentence, with its unit.
std::string figure_text(Figure figure, int digits, const char* unit);
// With its sign, "+1.5"; what rounds to 0 has none.
std::string signed_text(double value, int digits);
std::string figure_csv(Figure figure);
Json figure_json(Figure figure);
// For a plot: NaN is a gap.
double figure_y(Figure figure);

// What is not as in the preset, for tables and JSON of every report.
std::string changes_text(const FleetConfig& config);
Json changes_json(const FleetConfig& config);
// What the figures rest on, likewise.
std::string assumptions_text(const FleetConfig& config);
Json assumption_json(const Assumption& assumption);
Json assumptions_json(const FleetConfig& config);

}  // namespace fathom
