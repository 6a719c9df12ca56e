// fathom sim plan PRESET|CONFIG.toml --cards N: which fleet for so many cards, and what each choice
// gains (sim/study/sizing.h), docs/simulator.md.
#pragma once

#include <string>
#include <vector>

namespace fathom {

int run_sim_plan(const std::vector<std::string>& args);

}  // namespace fathom
