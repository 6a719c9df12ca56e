// The parts of policy_bench. Each adds its rows, and beside each the usual alternatives on the same
// work. All are simulations with fixed seeds: they give the same numbers on every machine.
#pragma once

#include "bench/report.h"

namespace fathom::bench {

void bench_policy_prefill(Report& report);
void bench_policy_decode(Report& report);

}  // namespace fathom::bench
