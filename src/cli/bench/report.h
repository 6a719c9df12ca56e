// The results of a `fathom bench` run as a table for people, CSV, JSON, and one HTML page with
// Pareto plots. The names of the fields in JSON and CSV are those of vLLM's serving benchmark, so
// that programs which read its files read these (spec serving.md 7.5). Pure text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/metrics.h"

namespace fathom {

// What a run was done with; limits are measured beside it, 0 where they are unknown.
struct BenchMachine {
    std::string cpu, isa;
    std::int64_t threads = 0;
    double read_bytes_per_s = 0, peak_flops = 0;
    std::string peak_name;                 // "bf16" or "fp32"
    std::int64_t active_weight_bytes = 0;  // that a token decoded alone reads; 0: unknown
};

// One measured point of a sweep.
struct BenchPoint {
    std::int64_t concurrency = 0, num_prompts = 0;
    std::int64_t input_len = 0, output_len = 0;  // asked for; 0 with a dataset file
    double request_rate = 0;                     // a second; 0: as fast as concurrency allows
    double burstiness = 1;
    LoadSummary summary;
};

// The short requests of a mixed load, alone and beside a long prompt.
struct MixedResult {
    std::int64_t long_prompt_tokens = 0;
    LoadSummary alone, beside;
    std::int64_t long_prompts_ended = 0;  // while the short ones were measured
    double ttft_p99_ratio() const {
        return alone.ttft_ms.p99 > 0 ? beside.ttft_ms.p99 / alone.ttft_ms.p99 : 0;
    }
};

struct BenchReport {
    std::string date;  // "2026-11-29 20:15:00 UTC"
    std::string model_id;
    std::string target;  // directory or URL
    std::string dataset;
    std::optional<BenchMachine> machine;  // of a run in this process
    std::vector<BenchPoint> points;
    std::optional<MixedResult> mixed;
};

std::string report_table(const BenchReport& report);
std::string report_csv(const BenchReport& report);
std::string report_json(const BenchReport& report);
std::string report_html(const BenchReport& report);  // report_html.cc

// The share of the measured read bandwidth that decoding alone reached: weight bytes of a token
// over its TPOT. Nothing where it does not apply (concurrency above 1, unknown limits).
std::optional<double> decode_bandwidth_share(const BenchReport& report, const BenchPoint& point);

}  // namespace fathom
