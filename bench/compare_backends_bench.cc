// Runs every operator of two back ends on the same inputs and says, per case, whether their bits
// are equal, how far the numbers are apart and how long each took. It is the judge of a new back
// end; its cases are the tables of src/kernels/cases.
//
//   compare_backends_bench [--json] [--backend NAME[:THREADS]] [--against NAME[:THREADS]]
//                          [--seed N] [--quick]
//
// The default compares the reference on one thread with itself on all. --quick takes one set of
// inputs instead of four and leaves the large shapes out. --json prints the report's JSON object as
// the last line. Exit status: 0 when all bits are equal, 1 when some differ, 2 for a wrong command
// line or a back end that this machine cannot run.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <thread>

#include "base/json.h"
#include "bench/report.h"
#include "kernels/cases/all_cases.h"

namespace fathom {
namespace {

struct Options {
    std::string backend = "reference:1";
    std::string against = "reference";
    std::uint64_t seed = 1;
    bool json = false;
    bool quick = false;
};

template <class T>
Result<T> parse_number(std::string_view name, std::string_view text, T low) {
    T value{};
    const auto [end, error_code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error_code != std::errc{} || end != text.data() + text.size() || value < low) {
        return invalid_argument("{}: expected an integer of at least {}, got \"{}\"", name, low,
                                text);
    }
    return value;
}

Result<Options> parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view flag = argv[i];
        if (flag == "--json" || flag == "--quick") {
            (flag == "--json" ? options.json : options.quick) = true;
            continue;
        }
        if (flag != "--backend" && flag != "--against" && flag != "--seed") {
            return invalid_argument(
                "unknown option \"{}\"; known: --json, --quick, --backend NAME[:THREADS], "
                "--against NAME[:THREADS], --seed N",
                flag);
        }
        if (++i == argc) return invalid_argument("{} needs a value", flag);
        if (flag == "--seed") {
            FATHOM_ASSIGN(options.seed, parse_number<std::uint64_t>(flag, argv[i], 0));
        } else {
            (flag == "--backend" ? options.backend : options.against) = argv[i];
        }
    }
    return options;
}

// "NAME" with all threads of the machine, or "NAME:THREADS".
Result<std::unique_ptr<Backend>> open_backend(const std::string& text) {
    const std::size_t colon = text.find(':');
    int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    if (colon != std::string::npos) {
        FATHOM_ASSIGN(threads, parse_number<int>("threads of " + text, text.substr(colon + 1), 1));
    }
    return make_backend(text.substr(0, colon), std::make_shared<ComputePool>(threads));
}

struct Difference {
    std::size_t values = 0;
    std::size_t bits = 0;  // values whose bits differ
    double absolute = 0;
    double relative = 0;  // of the larger magnitude
};

Difference compare(const std::vector<float>& a, const std::vector<float>& b) {
    Difference d{.values = std::max(a.size(), b.size())};
    const std::size_t n = std::min(a.size(), b.size());
    d.bits = d.values - n;
    for (std::size_t i = 0; i < n; ++i) {
        if (cases::same_bits({a[i]}, {b[i]})) continue;
        ++d.bits;
        const double error = std::fabs(static_cast<double>(a[i]) - b[i]);
        const double size = std::max(std::fabs(a[i]), std::fabs(b[i]));
        d.absolute = std::max(d.absolute, error);
        if (size > 0) d.relative = std::max(d.relative, error / size);
    }
    return d;
}

struct Side {
    std::string name;
    std::unique_ptr<Backend> backend;
    double peak = 0;  // FLOP/s of its threads
};

class Comparison {
  public:
    Comparison(Side& a, Side& b) : a_(a), b_(b) {
        fmt::print("{:<62} {:>10} {:>9} {:>9} {:>11} {:>11} {:>7}\n",
                   fmt::format("case (A: {}, B: {})", a.name, b.name), "bits", "abs err", "rel err",
                   "A us", "B us", "A/B");
    }

    // Runs the cases and prints a line for each. `timed` reports the times of those large enough
    // that a call is not mostly overhead.
    void run(const std::vector<cases::OperatorCase>& list, bool timed, bench::Report& report) {
        for (const cases::OperatorCase& c : list) {
            const cases::Bound left = c.bind(*a_.backend, 0, c.rows);
            const cases::Bound right = c.bind(*b_.backend, 0, c.rows);
            const double seconds[] = {bench::best_seconds(3, left.run),
                                      bench::best_seconds(3, right.run)};
            const Difference d = compare(left.outputs(), right.outputs());
            fmt::print("{:<62} {:>10} {:>9.2g} {:>9.2g} {:>11.1f} {:>11.1f} {:>7.2f}\n", c.what,
                       d.bits == 0 ? "equal" : fmt::format("{}/{}", d.bits, d.values), d.absolute,
                       d.relative, 1e6 * seconds[0], 1e6 * seconds[1], seconds[0] / seconds[1]);
            note(c, d);
            constexpr double kWorthTiming = 1e6;  // multiply-adds
            if (!timed || c.multiply_adds < kWorthTiming) continue;
            for (const int side : {0, 1}) {
                const Side& s = side == 0 ? a_ : b_;
                report.add(fmt::format("{}: time of {}", c.what, s.name), 1e6 * seconds[side],
                           "us");
                report.add(fmt::format("{}: rate of {}", c.what, s.name),
                           2e-9 * c.multiply_adds / seconds[side], "GFLOP/s", 1e-9 * s.peak);
            }
        }
    }

    // One summary an operator; returns the number of cases that differ.
    std::int64_t summarise(bench::Report& report) const {
        std::int64_t differ = 0, count = 0;
        for (const Operator& o : operators_) {
            report.add(o.name + ": cases that differ", static_cast<double>(o.differ), "cases", 0);
            report.add(o.name + ": largest absolute error", o.worst.absolute, "");
            report.add(o.name + ": largest relative error", o.worst.relative, "");
            fmt::print(
                "{:<20} {:>3} cases, {} differ; largest error {:.2g} absolute, {:.2g} "
                "relative\n",
                o.name, o.cases, o.differ, o.worst.absolute, o.worst.relative);
            differ += o.differ;
            count += o.cases;
        }
        fmt::print("{} of {} cases differ\n", differ, count);
        return differ;
    }

  private:
    struct Operator {
        std::string name;
        std::int64_t cases = 0, differ = 0;
        Difference worst;
    };

    // A case's operator is the first word of its name.
    void note(const cases::OperatorCase& c, const Difference& d) {
        const std::string name = c.what.substr(0, c.what.find(' '));
        auto o = std::find_if(operators_.begin(), operators_.end(),
                              [&](const Operator& known) { return known.name == name; });
        if (o == operators_.end()) o = operators_.insert(o, {.name = name, .worst = {}});
        ++o->cases;
        o->differ += d.bits != 0;
        o->worst.absolute = std::max(o->worst.absolute, d.absolute);
        o->worst.relative = std::max(o->worst.relative, d.relative);
    }

    Side& a_;
    Side& b_;
    std::vector<Operator> operators_;
};

int run(const Options& options) {
    Side sides[2] = {{options.backend, nullptr}, {options.against, nullptr}};
    bench::Report report("compare_backends");
    for (Side& side : sides) {
        auto backend = open_backend(side.name);
        if (!backend.ok()) {
            fmt::print(stderr, "compare_backends: {}\n", backend.status().message());
            return 2;
        }
        side.backend = std::move(*backend);
        side.peak = bench::peak_fp32_flops(side.backend->pool());
        report.add("limit: fp32 fused multiply-adds with the threads of " + side.name,
                   1e-9 * side.peak, "GFLOP/s");
    }
    Comparison comparison(sides[0], sides[1]);
    for (std::uint64_t set = 0; set < (options.quick ? 1 : 4); ++set) {
        fmt::print("inputs of seed {}\n", options.seed + set);
        comparison.run(cases::all_cases(options.seed + set), set == 0, report);
    }
    if (!options.quick) {
        fmt::print("shapes of the released model\n");
        comparison.run(cases::large_cases(options.seed), true, report);
    }
    const std::int64_t differ = comparison.summarise(report);
    if (options.json) fmt::print("{}\n", report.json());
    return differ == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
    const auto options = fathom::parse_options(argc, argv);
    if (!options.ok()) {
        fmt::print(stderr, "compare_backends: {}\n", options.status().message());
        return 2;
    }
    return fathom::run(*options);
}
