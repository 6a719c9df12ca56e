#include "cli/sim/command_keys.h"

namespace fathom {
namespace {

constexpr const char* kJsonHelp = "JSON on standard output instead of tables";

void bind_run(RunKeys& run, ConfigSchema& schema) {
    schema.add("out.csv", &run.csv, "file for the figures over time");
    schema.add("out.html", &run.html, "file for a report with plots");
    schema.add("out.json", &run.json, kJsonHelp);
}

void bind_sweep(SweepKeys& sweep, ConfigSchema& schema) {
    schema.add("sweep.vary", &sweep.vary, "KEY=VALUES; repeated for several keys");
    schema.add("sweep.csv", &sweep.csv, "file for the rows with all figures");
    schema.add("sweep.svg", &sweep.svg, "file for plots over the first key");
    schema.add("sweep.json", &sweep.json, kJsonHelp);
}

void bind_plan(PlanKeys& plan, ConfigSchema& schema) {
    schema.add("plan.cards", &plan.cards, 0, 1'000'000,
               "cards to plan for; 0: those of the preset, or of plan.usd_hour");
    schema.add("plan.usd_hour", &plan.usd_hour, 0.0, 1e9,
               "budget instead of cards, at money.card_hour; 0: none");
    schema.add("plan.prefill_ep", &plan.prefill_ep,
               "sizes of prefill engines to try; repeated; by default 2, 4 and 8");
    schema.add("plan.decode_ep", &plan.decode_ep,
               "sizes of decode groups to try; by default 2, 4, 8, 16, 32 and 64");
    schema.add("plan.slo_share", &plan.slo_share, 0.01, 1.0,
               "of requests that must be within the SLO");
    schema.add("plan.candidates", &plan.candidates, 1, 100, "pairs of sizes that are run");
    schema.add("plan.seconds", &plan.seconds, 10.0, 86'400.0, "measured time of each run");
    schema.add("plan.warmup_s", &plan.warmup_s, 0.0, 86'400.0,
               "and before it; copies of a trace begin within it, unless workload.trace_spread_s "
               "says when");
    schema.add("plan.csv", &plan.csv, "file for the rows");
    schema.add("plan.json", &plan.json, kJsonHelp);
}

}  // namespace

void bind_command_keys(SimCommandKeys& keys, ConfigSchema& schema) {
    bind_run(keys.run, schema);
    bind_sweep(keys.sweep, schema);
    bind_plan(keys.plan, schema);
}

}  // namespace fathom
