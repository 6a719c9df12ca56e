#include "bench/paired.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cstdio>

#include "base/check.h"

namespace fathom::bench {

namespace {

constexpr std::int64_t kReadBytes = std::int64_t{256} << 20;
constexpr double kKernelSeconds = 4e-3;  // of a sample, at least
constexpr std::int64_t kSteps = 1 << 15;

double cpu_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Quantiles quantiles(std::vector<double> values) {
    FATHOM_CHECK(!values.empty());
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    return {values[n / 2], values[std::min(n - 1, n * 9 / 10)]};
}

}  // namespace

Paired::Paired(Arithmetic arithmetic, double seconds_each)
    : arithmetic_(arithmetic),
      seconds_each_(seconds_each),
      pool_(ComputePoolOptions{.threads = 1, .pin = true}),
      read_(pool_, kReadBytes) {}

double Paired::read_rate() {
    const double start = cpu_seconds();
    const std::int64_t bytes = read_.read_some();
    return static_cast<double>(bytes) / (cpu_seconds() - start);
}

double Paired::flop_rate() const {
    const double start = cpu_seconds();
    const double flops =
        arithmetic_ == Arithmetic::bf16 ? run_bf16_flops(kSteps) : run_fp32_flops(kSteps, 8);
    return flops / (cpu_seconds() - start);
}

PairedResult Paired::measure(const Work& work, const std::function<void(std::int64_t)>& call) {
    const FlushDenormals flush;
    std::int64_t i = 0;
    const auto timed = [&](std::int64_t calls) {
        const double start = cpu_seconds();
        for (std::int64_t c = 0; c < calls; ++c)
            call(i++);
        return (cpu_seconds() - start) / static_cast<double>(calls);
    };
    timed(2);
    const auto calls =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(kKernelSeconds / timed(1)));
    std::vector<double> seconds, reads, flops, of_read, of_flops;
    double peak = flop_rate(), read = read_rate();
    for (const double begin = cpu_seconds();
         seconds.size() < 5 || cpu_seconds() - begin < seconds_each_;) {
        seconds.push_back(timed(calls));
        const double peak_after = flop_rate(), read_after = read_rate();
        flops.push_back((peak + peak_after) / 2);
        reads.push_back((read + read_after) / 2);
        of_flops.push_back(work.flops / seconds.back() / flops.back());
        of_read.push_back(work.bytes / seconds.back() / reads.back());
        peak = peak_after;
        read = read_after;
    }
    return {.seconds = quantiles(seconds).median,
            .read_limit = quantiles(reads).median,
            .flop_limit = quantiles(flops).median,
            .of_read = quantiles(of_read),
            .of_flops = quantiles(of_flops)};
}

void Paired::print(const std::string& what, const Work& work, const PairedResult& r) const {
    fmt::print(
        "{:<20} {:>9.1f} us  {:>6.1f} GB/s  of read {:.2f} (p90 {:.2f})  {:>7.1f} GFLOP/s  "
        "of peak {:.2f} (p90 {:.2f})\n",
        what, 1e6 * r.seconds, 1e-9 * work.bytes / r.seconds, r.of_read.median, r.of_read.p90,
        1e-9 * work.flops / r.seconds, r.of_flops.median, r.of_flops.p90);
    std::fflush(stdout);
}

// The value is the ratio's median times the limit's, so that ratio and limit are those measured.
void Paired::report_read(Report& report, const std::string& what, const Work& work,
                         const std::function<void(std::int64_t)>& call) {
    const PairedResult r = measure(work, call);
    print(what, work, r);
    report.add(what, 1e-9 * r.of_read.median * r.read_limit, "GB/s", 1e-9 * r.read_limit);
}

void Paired::report_flops(Report& report, const std::string& what, const Work& work,
                          const std::function<void(std::int64_t)>& call) {
    const PairedResult r = measure(work, call);
    print(what, work, r);
    report.add(what, 1e-9 * r.of_flops.median * r.flop_limit, "GFLOP/s", 1e-9 * r.flop_limit);
}

}  // namespace fathom::bench
