// fathom pool SUBCOMMAND: what can be done with a KV pool, and studied about one. A subcommand is a
// row of the table and a file of cli/pool/.
#include <fmt/core.h>

#include <string>
#include <vector>

#include "base/config.h"
#include "cli/commands.h"
#include "cli/pool/admin.h"
#include "cli/pool/replay.h"

namespace fathom {
namespace {

struct Subcommand {
    const char* name;
    const char* summary;
    int (*run)(const std::vector<std::string>& args);
};

constexpr Subcommand kSubcommands[] = {
    {"stat", "what a pool holds, by class and namespace", run_pool_stat},
    {"verify", "reads and checks every block, changes nothing", run_pool_verify},
    {"scrub", "checks every block and forgets bad ones", run_pool_scrub},
    {"gc", "removes what is expired or too much", run_pool_gc},
    {"drop", "erases a tenant with its encryption key", run_pool_drop},
    {"bench", "how fast a pool would be on a disk", run_pool_bench},
    {"replay", "hit rates of a trace by TTL, capacity and renewal", run_pool_replay},
};

void print_help() {
    fmt::print("usage: fathom pool SUBCOMMAND [options]\n\nsubcommands:\n");
    for (const Subcommand& known : kSubcommands)
        fmt::print("  {:<10} {}\n", known.name, known.summary);
    fmt::print("\n`fathom pool SUBCOMMAND --help` lists its options.\n");
}

}  // namespace

int run_pool(const std::vector<std::string>& args) {
    if (args.empty() || args[0] == "--help" || args[0] == "-h") {
        print_help();
        return args.empty() ? kExitUsage : kExitOk;
    }
    std::vector<std::string> names;
    for (const Subcommand& known : kSubcommands) {
        if (args[0] == known.name)
            return known.run(std::vector<std::string>(args.begin() + 1, args.end()));
        names.emplace_back(known.name);
    }
    const std::string nearest = nearest_word(args[0], names);
    fmt::print(stderr,
               "fathom pool: unknown subcommand \"{}\"{}; `fathom pool --help` lists them\n",
               args[0], nearest.empty() ? "" : fmt::format(", did you mean \"{}\"?", nearest));
    return kExitUsage;
}

}  // namespace fathom
