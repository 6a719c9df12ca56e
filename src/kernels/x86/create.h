// The back end for x86-64 servers. One instruction-set level is chosen when it is made.
#pragma once

#include <memory>

#include "base/result.h"
#include "kernels/ops.h"

namespace fathom::x86 {

// avx512 means AVX-512 F, BW, VL, DQ with BF16, VBMI and VNNI (Zen 4 and later, Sapphire Rapids and
// later); avx2 means AVX2 with FMA. Both give the same bits.
enum class Level { avx2, avx512 };
const char* level_name(Level level);

// Whether this CPU and its operating system run the level; the message names what is missing.
Status check_level(Level level);

// The level must have passed check_level.
std::unique_ptr<Backend> create(std::shared_ptr<ComputePool> pool, Level level);

}  // namespace fathom::x86
