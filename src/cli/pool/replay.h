// fathom pool replay TRACE…: traces through models of a pool, docs/pool_replay.md.
#pragma once

#include <string>
#include <vector>

namespace fathom {

int run_pool_replay(const std::vector<std::string>& args);

}  // namespace fathom
