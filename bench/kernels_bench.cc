// Single operators of a back end beside the limits of one core: rates as ratios to the arithmetic
// peak and the read bandwidth measured in the same loop (paired.h).
//
//   kernels_bench [--json] [--backend NAME] [--only PREFIX] [--seconds S]
//
// Weights are random and rotated through more memory than the caches hold. One row (m1) is bound by
// reading: value and limit are bytes per second; more rows by arithmetic: operations per second.
// Shapes are those of the released model. --json prints the report's JSON object as the last line.
#include <fmt/core.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "bench/linear_benches.h"
#include "bench/paired.h"
#include "bench/row_benches.h"
#include "kernels/ops.h"

namespace fathom {
namespace {

struct Options {
    std::string backend = "auto";
    std::string only;
    double seconds = 1.2;
    bool json = false;
};

Result<Options> parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view flag = argv[i];
        if (flag == "--json") {
            options.json = true;
            continue;
        }
        if (flag != "--backend" && flag != "--only" && flag != "--seconds") {
            return invalid_argument(
                "unknown option \"{}\"; known: --json, --backend NAME, --only PREFIX, --seconds S",
                flag);
        }
        if (++i == argc) return invalid_argument("{} needs a value", flag);
        if (flag == "--backend") options.backend = argv[i];
        if (flag == "--only") options.only = argv[i];
        if (flag == "--seconds") {
            char* end = nullptr;
            options.seconds = std::strtod(argv[i], &end);
            if (*end != '\0' || !(options.seconds > 0 && options.seconds <= 60)) {
                return invalid_argument("--seconds: expected a number up to 60, got \"{}\"",
                                        argv[i]);
            }
        }
    }
    return options;
}

int main_of(int argc, char** argv) {
    const auto options = parse_options(argc, argv);
    if (!options.ok()) {
        fmt::print(stderr, "kernels_bench: {}\n", options.status().message());
        return 2;
    }
    auto backend = make_backend(options->backend, std::make_shared<ComputePool>(1));
    if (!backend.ok()) {
        fmt::print(stderr, "kernels_bench: {}\n", backend.status().message());
        return 2;
    }
    fmt::print("{}, {}, one thread\n", bench::cpu_name(), (*backend)->name());
    bench::Paired paired(bench::arithmetic_of(**backend), options->seconds);
    bench::Report report("kernels");
    bench::bench_linears(**backend, paired, report, options->only);
    bench::bench_rows(**backend, paired, report, options->only);
    if (options->json) fmt::print("{}\n", report.json());
    return 0;
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
    return fathom::main_of(argc, argv);
}
