// fathom sim sweep PRESET|CONFIG.toml --vary KEY=A,B,C: one fleet for each value,
// docs/simulator.md.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace fathom {

int run_sim_sweep(const std::vector<std::string>& args);

struct SweepAxis {
    std::string key;
    std::vector<std::string> values;
};
// "workload.load=0.5,0.7" or "decode.ranks=8..64..8" (from, to, step). invalid_argument names what
// is wrong; at most 1,000 values.
Result<SweepAxis> parse_sweep_axis(const std::string& text);

}  // namespace fathom
