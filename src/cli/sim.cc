// fathom sim SUBCOMMAND: fleets in virtual time, and the policies that run them.
#include "cli/commands.h"
#include "cli/sim/check_budget.h"
#include "cli/sim/plan.h"
#include "cli/sim/reproduce.h"
#include "cli/sim/run.h"
#include "cli/sim/sweep.h"
#include "cli/subcommands.h"

namespace fathom {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"check-budget", "recorded verification lengths against ours", run_sim_check_budget},
    {"plan", "which fleet for so many cards, and what each choice gains", run_sim_plan},
    {"reproduce", "the vendor's published figures beside ours", run_sim_reproduce},
    {"run", "a fleet in virtual time: latencies, use of cards, hits, cost", run_sim_run},
    {"sweep", "the same for each value of any parameter", run_sim_sweep},
};

}  // namespace

int run_sim(const std::vector<std::string>& args) {
    return run_subcommand("fathom sim", kSubcommands, args);
}

}  // namespace fathom
