// fathom sim run PRESET|CONFIG.toml: one fleet in virtual time, docs/simulator.md.
#pragma once

#include <string>
#include <vector>

namespace fathom {

int run_sim_run(const std::vector<std::string>& args);

}  // namespace fathom
