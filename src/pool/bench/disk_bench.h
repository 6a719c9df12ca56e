// The embedded store beside the disk that it would lie on: what people ask before they choose a
// directory for a pool, and what the project's benchmark measures.
//
// Short rounds of raw io_uring and of the store take turns, reads and writes of whole slots at
// random, and the median of their ratios counts; both write, then sync. Rows:
//
//   get.qd1, get.qd8, get.qd32   verified reads a second; the limit is raw reads at that depth
//   put.qd1, put.qd8, put.qd32   the same for puts
//   get.cpu_us_per_block         CPU time of the process for a get at depth 32 and for a put, all
//   put.cpu_us_per_block         its threads, system calls included
//   open.s_per_100k              opening a pool again, for 100,000 blocks
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom {

inline constexpr std::int64_t kPoolBenchBytes = std::int64_t{3} << 30;  // that it writes at most

struct PoolBenchOptions {
    std::string directory;        // on the disk in question, with kPoolBenchBytes free
    std::int64_t rounds = 9;      // 1 to 15, so that these suffice
    std::int64_t blocks = 6'000;  // that are read: more than a device's own cache
    // Called before each round with rounds done and all; false ends the work as cancelled.
    std::function<bool(std::int64_t done, std::int64_t total)> progress = {};
};
struct PoolBenchRow {
    std::string what;
    double value = 0;
    std::string unit;
    std::optional<double> limit;
};

// What it makes in the directory is gone at its end, whatever that is. Errors name path, cause and
// remedy: resource_exhausted when there is too little room.
Result<std::vector<PoolBenchRow>> bench_pool(const PoolBenchOptions& options);

}  // namespace fathom
