// fathom sim reproduce: the vendor's published figures beside what this simulator and these
// policies give, with what each rests on; docs/simulator.md.
#pragma once

#include <string>
#include <vector>

namespace fathom {

int run_sim_reproduce(const std::vector<std::string>& args);

}  // namespace fathom
