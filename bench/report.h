// What every benchmark shares: the machine's name, its limits measured in the same run (a stored
// constant would compare with another day), and results as a table for people or one JSON line for
// programs:
//
//   {"bench": "...", "cpu": "...", "isa": "avx512-bf16",
//    "rows": [{"what": "...", "value": 1.5, "unit": "GFLOP/s", "limit": 100, "ratio": 0.015}]}
//
// limit and ratio are null for a row without a limit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/machine_limits.h"

namespace fathom::bench {

// base/machine_limits.h, under the name that benchmarks use.
using fathom::best_seconds;
using fathom::cpu_name;
using fathom::isa_name;
using fathom::peak_bf16_flops;
using fathom::peak_fp32_flops;
using fathom::read_bandwidth;
using fathom::ReadProbe;

class Report {
  public:
    explicit Report(std::string bench) : bench_(std::move(bench)) {}

    void add(std::string what, double value, std::string unit,
             std::optional<double> limit = std::nullopt);
    std::string json() const;   // one line, no newline
    std::string table() const;  // for people

  private:
    struct Row {
        std::string what;
        double value = 0;
        std::string unit;
        std::optional<double> limit;
    };
    std::string bench_;
    std::vector<Row> rows_;
};

}  // namespace fathom::bench
