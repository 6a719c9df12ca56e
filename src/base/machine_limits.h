// What this machine can do at best, measured where the figures are needed: a stored constant would
// compare with another day. Names for people, and probes that run on the pool of the work that is
// held against them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/compute_pool.h"

namespace fathom {

std::string cpu_name();  // from /proc/cpuinfo; "unknown" where it does not say
std::string isa_name();  // the widest level here: "avx512-bf16", "avx512", "avx2", or the platform

// Limits of this machine with the pool's threads; 0 where a probe needs instructions that are
// missing. Each takes some 50 ms.
// Fused multiply-adds per second, with vectors of at most `lanes_max` numbers.
double peak_fp32_flops(ComputePool& pool, int lanes_max = 16);
double peak_bf16_flops(ComputePool& pool);  // VDPBF16PS
// `steps` rounds of the same arithmetic on the calling thread alone, to be timed by the caller;
// returns how many operations, 0 where the instructions are missing.
double run_fp32_flops(std::int64_t steps, int lanes_max = 16);
double run_bf16_flops(std::int64_t steps);
double read_bandwidth(ComputePool& pool);  // bytes per second from memory larger than the caches

// What read_bandwidth measures, with memory that stays: for asking again and again beside the work
// under test. Each thread reads the share that it touched first, front to back, prefetching ahead.
class ReadProbe {
  public:
    explicit ReadProbe(ComputePool& pool, std::int64_t bytes = std::int64_t{1} << 30);
    double bytes_per_second();  // one pass
    // Reads the next few megabytes on the calling thread alone, to be timed by the caller; returns
    // how many bytes.
    std::int64_t read_some();

  private:
    ComputePool& pool_;
    std::int64_t bytes_;
    std::int64_t next_ = 0;  // of read_some
    std::shared_ptr<std::byte> memory_;
};

// The least of `repeats` durations of one call, in seconds.
double best_seconds(int repeats, const std::function<void()>& call);

}  // namespace fathom
