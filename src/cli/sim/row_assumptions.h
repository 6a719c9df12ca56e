// What the rows of a sweep assume, together: each assumption once, with the rows that make it where
// not all do.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "sim/fleet/fleet_config.h"

namespace fathom {

struct RowAssumption {
    Assumption assumption;
    std::vector<std::size_t> rows;  // ascending
};

// In the order of the first row that makes them; those of one thing stand together.
std::vector<RowAssumption> row_assumptions(std::span<const FleetConfig> rows);

// A line each. `names` are what the rows are called; of one thing with many values only the first
// few are shown.
std::string row_assumptions_text(std::span<const FleetConfig> rows,
                                 std::span<const std::string> names);

// As assumptions_json; an assumption that not all rows make has a member "rows": their places.
Json row_assumptions_json(std::span<const FleetConfig> rows);

}  // namespace fathom
