// Which processors there are, in the order in which threads are placed on them: one per physical
// core, memory node after memory node, then the siblings that share a core (two threads of one core
// share its multipliers, so they come last).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

struct CpuTopology {
    std::vector<int> cpus;
    std::vector<int> nodes;  // beside cpus: the memory node of each
    int cores = 0;           // the first so many of cpus share no core

    // The processors of this process's affinity mask.
    static CpuTopology detect();
    // The `allowed` ones as /sys below `root` describes them; one node where it says nothing.
    static CpuTopology read(const std::string& root, const std::vector<int>& allowed);
    // "0,1|2-3": two nodes of two processors each, for trying a placement.
    static Result<CpuTopology> parse(std::string_view text);
};

// A list as the kernel writes it: "0-3,8". Empty text gives an empty list.
Result<std::vector<int>> parse_cpu_list(std::string_view text);

}  // namespace fathom
