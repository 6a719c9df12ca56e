// Rates of one thread as ratios to limits measured beside them.
//
// On a shared machine absolute rates move by tens of percent within minutes, and so do the limits.
// So each sample is a loop of: arithmetic in registers alone, a prefetched pure read of fresh
// memory, the kernel under test, and the first two again; all in thread CPU time, which leaves out
// the time that others had the processor. The kernel's rate is divided by that of its neighbours,
// and the median over a second or more of samples is reported (cpu-kernels.md section 1).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report.h"
#include "kernels/ops.h"

namespace fathom::bench {

enum class Arithmetic {
    bf16,  // VDPBF16PS, 512 bits
    fp32,  // FMA, 256 bits
};

// What the kernels of a back end multiply with.
inline Arithmetic arithmetic_of(const Backend& backend) {
    return std::string_view(backend.name()) == "x86-avx512" ? Arithmetic::bf16 : Arithmetic::fp32;
}

// What one call of a kernel moves and computes.
struct Work {
    double bytes = 0;  // of weights or keys, read once
    double flops = 0;  // 2 a multiply-add
};

struct Quantiles {
    double median = 0, p90 = 0;
};

struct PairedResult {
    double seconds = 0;                     // of one call, median
    double read_limit = 0, flop_limit = 0;  // median, per second
    Quantiles of_read, of_flops;            // ratios
};

class Paired {
  public:
    // Pins the calling thread, which is the one that measures from then on.
    explicit Paired(Arithmetic arithmetic, double seconds_each = 1.2);

    // call(i) is the i-th call; weights larger than the caches are rotated by i.
    PairedResult measure(const Work& work, const std::function<void(std::int64_t)>& call);

    // Adds the row `what`: the rate of bytes or of operations, with its limit. The other ratio and
    // the 90th percentile go to standard output.
    void report_read(Report& report, const std::string& what, const Work& work,
                     const std::function<void(std::int64_t)>& call);
    void report_flops(Report& report, const std::string& what, const Work& work,
                      const std::function<void(std::int64_t)>& call);

  private:
    double read_rate();
    double flop_rate() const;
    void print(const std::string& what, const Work& work, const PairedResult& r) const;

    Arithmetic arithmetic_;
    double seconds_each_;
    ComputePool pool_;
    ReadProbe read_;
};

}  // namespace fathom::bench
