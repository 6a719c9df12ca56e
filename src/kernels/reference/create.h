#pragma once

#include <memory>

#include "kernels/ops.h"

namespace fathom::reference {

// The caller has made sure that the CPU has AVX2 and FMA.
std::unique_ptr<Backend> create(std::shared_ptr<ComputePool> pool);

}  // namespace fathom::reference
