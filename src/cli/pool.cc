// fathom pool SUBCOMMAND: what can be done with a KV pool, and studied about one.
#include "cli/commands.h"
#include "cli/pool/admin.h"
#include "cli/pool/replay.h"
#include "cli/subcommands.h"

namespace fathom {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"stat", "what a pool holds, by class and namespace", run_pool_stat},
    {"verify", "reads and checks every block, changes nothing", run_pool_verify},
    {"scrub", "checks every block and forgets bad ones", run_pool_scrub},
    {"gc", "removes what is expired or too much", run_pool_gc},
    {"drop", "erases a tenant with its encryption key", run_pool_drop},
    {"bench", "how fast a pool would be on a disk", run_pool_bench},
    {"replay", "hit rates of a trace by TTL, capacity and renewal", run_pool_replay},
};

}  // namespace

int run_pool(const std::vector<std::string>& args) {
    return run_subcommand("fathom pool", kSubcommands, args);
}

}  // namespace fathom
