#include "cli/subcommands.h"

#include <fmt/core.h>

#include "base/config.h"
#include "cli/commands.h"

namespace fathom {
namespace {

void print_help(const char* command, std::span<const Subcommand> table) {
    fmt::print("usage: {} SUBCOMMAND [options]\n\nsubcommands:\n", command);
    for (const Subcommand& known : table)
        fmt::print("  {:<12} {}\n", known.name, known.summary);
    fmt::print("\n`{} SUBCOMMAND --help` lists its options.\n", command);
}

}  // namespace

int run_subcommand(const char* command, std::span<const Subcommand> table,
                   const std::vector<std::string>& args) {
    if (args.empty() || args[0] == "--help" || args[0] == "-h") {
        print_help(command, table);
        return args.empty() ? kExitUsage : kExitOk;
    }
    std::vector<std::string> names;
    for (const Subcommand& known : table) {
        if (args[0] == known.name)
            return known.run(std::vector<std::string>(args.begin() + 1, args.end()));
        names.emplace_back(known.name);
    }
    const std::string nearest = nearest_word(args[0], names);
    fmt::print(stderr, "{}: unknown subcommand \"{}\"{}; `{} --help` lists them\n", command,
               args[0], nearest.empty() ? "" : fmt::format(", did you mean \"{}\"?", nearest),
               command);
    return kExitUsage;
}

}  // namespace fathom
