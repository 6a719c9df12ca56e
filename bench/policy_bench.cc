// The policies on simulated fleets, each beside the usual alternatives.
//
//   policy_bench [--json]
//
// Rows (serving.md 2.1.5 and 2.2.2 describe the settings; docs/prefill_balancer.md and
// docs/decode_balancer.md what they mean):
//
//   prefill.overload        16 engines × 4 ranks at 1.3 times their capacity: the useful part of
//                           the ranks' time in steps, with pull and B*; .RULE: other rules;
//                           .RULE.utilisation: of all ranks' time; .RULE.p99_s: time to first token
//   prefill.nominal         the same at 0.85 times the capacity
//   decode.fresh64          64 ranks, reports of the last step: mean over slowest rank's time;
//   decode.stale64          reports five steps old; .RULE: other rules; decode.blind64: five steps
//                           old, without the ledger
//   decode.fresh128         128 ranks
#include <fmt/core.h>

#include <string_view>

#include "bench/policy_benches.h"

int main(int argc, char** argv) {
    bool json = false;
    for (int i = 1; i < argc; ++i) {
        if (std::string_view(argv[i]) != "--json") {
            fmt::print(stderr, "policy_bench: \"{}\" is not known: policy_bench [--json]\n",
                       argv[i]);
            return 2;
        }
        json = true;
    }
    fathom::bench::Report report("policy");
    fathom::bench::bench_policy_prefill(report);
    fathom::bench::bench_policy_decode(report);
    fmt::print("{}", report.table());
    if (json) fmt::print("{}\n", report.json());
    return 0;
}
