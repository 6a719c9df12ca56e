// What the order of additions costs (cpu-kernels.md 9.2): the same 64 × 6 micro-kernel over the
// same cached operands, once by rule N1 (a chain a group of 32 inputs, group sums added in order)
// and once as one long chain, in turn on one thread.
#pragma once

namespace fathom::bench {

struct InvarianceCost {
    double share = 0;  // time of N1 over time of the long chain, − 1; median of the rounds
    double grouped_flops = 0;  // of N1, per second
};

// With VDPBF16PS where the machine has it, else with fp32 multiply-adds; zeros where it has
// neither.
InvarianceCost invariance_cost();

}  // namespace fathom::bench
