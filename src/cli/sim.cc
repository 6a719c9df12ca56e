// fathom sim SUBCOMMAND: the policies of a fleet, without the fleet.
#include "cli/commands.h"
#include "cli/sim/check_budget.h"
#include "cli/subcommands.h"

namespace fathom {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"check-budget", "recorded verification lengths against ours", run_sim_check_budget},
};

}  // namespace

int run_sim(const std::vector<std::string>& args) {
    return run_subcommand("fathom sim", kSubcommands, args);
}

}  // namespace fathom
