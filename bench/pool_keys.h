// Rows of the pool's benchmark about names of blocks.
#pragma once

#include "bench/report.h"

namespace fathom::bench {

// Microseconds that one core takes for the key of a block in a chain of a thousand
// (key.us_per_block), and for the rest of its name, of which the token mac is all that costs
// (name.mac_us_per_block).
void add_key_rows(Report& report);

}  // namespace fathom::bench
