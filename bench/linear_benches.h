// The linears and experts of kernels_bench.
#pragma once

#include <string_view>

#include "bench/paired.h"
#include "kernels/ops.h"

namespace fathom::bench {

// Adds the rows whose names begin with `only`. Weights are random, of the released model's shapes,
// and rotated through more memory than the caches hold. One row (m1) is bound by reading: value and
// limit are bytes per second; more rows by arithmetic: operations per second.
void bench_linears(Backend& backend, Paired& paired, Report& report, std::string_view only);

}  // namespace fathom::bench
