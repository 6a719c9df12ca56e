// Rows of the pool's benchmark about erasure codes.
#pragma once

#include <string>

#include "base/result.h"
#include "bench/report.h"

namespace fathom::bench {

// Microseconds of one core for a block (112 KiB) of data, each beside copying it (the limit):
// ec.encode_4p2_us, ec.encode_10p2_us for its share of the parity; ec.rebuild_10p2_us for its share
// of rebuilding a block of a lost device from ten others.
void add_code_rows(Report& report);

// Blocks a second out of a 4+2 pool whose devices are folders of one disk, eight at a time:
// ec.get from their own device, ec.get_degraded rebuilt from four others (the limit: ec.get). What
// is made in `directory` is removed.
Status add_degraded_rows(Report& report, const std::string& directory);

}  // namespace fathom::bench
