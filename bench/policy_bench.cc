// The policies of a fleet on made-up traffic, each beside its alternatives.
//
//   policy_bench [--json] [--only PART]
//
// PART is prefill, decode, eplb, budget, sim, sim-scale or sim-hour; each is explained in its file,
// policy_PART.cc (those of the simulator in policy_sim.cc). sim-hour takes minutes and runs only
// when it is asked for.
#include <fmt/core.h>

#include <string_view>

#include "bench/policy_benches.h"
#include "bench/report.h"

namespace {

struct Part {
    std::string_view name;
    void (*run)(fathom::bench::Report& report);
    bool is_long = false;
};
constexpr Part kParts[] = {
    {"prefill", fathom::bench::bench_policy_prefill},
    {"decode", fathom::bench::bench_policy_decode},
    {"eplb", fathom::bench::bench_eplb},
    {"budget", fathom::bench::bench_verify_budget},
    {"sim", fathom::bench::bench_sim},
    {"sim-scale", fathom::bench::bench_sim_scale},
    {"sim-hour", fathom::bench::bench_sim_hour, true},
};

}  // namespace

int main(int argc, char** argv) {
    bool json = false;
    std::string_view only;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--json") {
            json = true;
        } else if (word == "--only" && i + 1 < argc) {
            only = argv[++i];
        } else {
            fmt::print(stderr, "\"{}\" is not known: policy_bench [--json] [--only PART]\n", word);
            return 2;
        }
    }
    fathom::bench::Report report("policy");
    bool known = only.empty();
    for (const Part& part : kParts) {
        if (only.empty() ? part.is_long : only != part.name) continue;
        part.run(report);
        known = true;
    }
    if (!known) {
        fmt::print(stderr, "no part is named \"{}\"\n", only);
        return 2;
    }
    fmt::print("{}", report.table());
    if (json) fmt::print("{}\n", report.json());
    return 0;
}
