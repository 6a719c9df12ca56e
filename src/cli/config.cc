// `fathom config dump`: every setting, its value and where it comes from. Reads what the other
// commands read: the same file, the same flags.
#include <fmt/core.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/settings.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage = "fathom config dump [--config FILE] [options]",
    .summary =
        "Prints every setting as `key = value  # origin`; secrets show only that they are set.",
    .tables = {"model", "engine", "pool", "server", "sampling", "generate", "chat", "log"},
    .aliases = {},
    .positional_max = 1};

}  // namespace

int run_config(const std::vector<std::string>& args) {
    Settings settings;
    ConfigSchema schema;
    bind_settings(settings, schema);
    CommandSpec spec = kSpec;
    spec.aliases = flag_aliases();
    const Result<CommandLine> line = parse_command_line(args, schema, spec);
    if (!line.ok()) {
        fmt::print(stderr, "fathom config: {}\n", line.status().message());
        return kExitUsage;
    }
    if (line->help) {
        fmt::print("{}", help_text(schema, spec));
        return kExitOk;
    }
    if (line->positional != std::vector<std::string>{"dump"}) {
        fmt::print(stderr, "fathom config: say what to do; usage: {}\n", spec.usage);
        return kExitUsage;
    }
    for (const ConfigSchema::Origin& entry : schema.effective())
        fmt::print("{} = {}  # {}\n", entry.key, entry.value, entry.origin);
    return kExitOk;
}

}  // namespace fathom
