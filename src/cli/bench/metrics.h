// What a load run is judged by: the record of each request, and the figures that serving benchmarks
// report from them, under the same definitions:
//
//   TTFT  from sending the request to the first text or token
//   ITL   between two arrivals of one answer, each a value of its own
//   TPOT  (E2E − TTFT) / (output tokens − 1) of one request, where there are at least two
//   E2E   from sending to the end
//
// Failed requests count as such and in nothing else. Percentiles interpolate linearly between the
// ranks. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom {

struct RequestRecord {
    std::int64_t index = 0;  // of the workload
    std::int64_t start_us = 0, first_us = 0, end_us = 0;
    std::vector<std::int64_t> gaps_us;  // between arrivals, from the first on
    std::int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
    std::string error;   // a kind, few in number: "http 429", "deadline_exceeded"; empty: completed
    std::string detail;  // the sentence behind it

    // One arrival of output at `now_us`: the first sets first_us, later ones a gap.
    void arrive(std::int64_t now_us);

  private:
    std::int64_t last_us_ = 0;
};

struct Distribution {
    double mean = 0, median = 0, stddev = 0, p90 = 0, p95 = 0, p99 = 0;
};
// All zero without values.
Distribution distribution_of(std::vector<double> values);
// 0 ≤ p ≤ 100, of ascending values, not empty.
double percentile(std::span<const double> ascending, double p);

// Bounds in milliseconds that a request must keep to count as good.
struct ServiceLevel {
    std::optional<double> ttft_ms, tpot_ms, e2el_ms;
    bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
};
// "ttft:200", "tpot:50", "e2el:2000", one bound each.
Result<ServiceLevel> parse_service_level(const std::vector<std::string>& bounds);

struct LoadSummary {
    double duration_s = 0;  // from the first start to the last end
    std::int64_t completed = 0, failed = 0;
    std::int64_t input_tokens = 0, cached_tokens = 0, output_tokens = 0;
    double request_throughput = 0, output_throughput = 0, total_throughput = 0;  // a second
    std::optional<double> goodput;  // good requests a second, when a level was given
    Distribution ttft_ms, tpot_ms, itl_ms, e2el_ms;
    std::map<std::string, std::int64_t> errors;  // requests by kind of error
    std::string first_detail;                    // of the first error
};

LoadSummary summarise(const std::vector<RequestRecord>& records, const ServiceLevel& level);

}  // namespace fathom
