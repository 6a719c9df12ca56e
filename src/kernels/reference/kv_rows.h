// Stored KV rows and numbers.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace fathom::reference {

// The row's numbers, exact.
void load_kv_row(KvFormat format, std::int64_t dim, const ConstKvRow& row, float* out);

}  // namespace fathom::reference
