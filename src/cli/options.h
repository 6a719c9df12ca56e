// Command lines. Every option is a key of a ConfigSchema ("server.port"); on the command line it is
// the flag --server.port, and some have a familiar short name as well (--port). A file given with
// --config is read first, flags win over it. Unknown flags are refused and the nearest known one is
// named.
//
// One schema serves all commands, so one file can too; a command accepts and shows only the flags
// of the tables that it reads. The parser behind it (CLI11) stays in options.cc. Single-threaded,
// at start.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "base/result.h"

namespace fathom {

struct FlagAlias {
    std::string flag;  // "--port" or "-p"
    std::string key;   // "server.port"
};

struct CommandSpec {
    std::string usage;                // "fathom serve --model DIR [options]"
    std::string summary;              // one sentence
    std::vector<std::string> tables;  // "server" shows and accepts server.*
    std::vector<FlagAlias> aliases;   // those of other tables are left out
    std::size_t positional_max = 0;   // words that are not flags
};

struct CommandLine {
    bool help = false;  // --help was given; nothing else was read
    std::vector<std::string> positional;
};

// Reads `args` into the variables that `schema` binds. invalid_argument names the flag, the value
// and the expectation. Words after "--" are positional whatever they look like.
Result<CommandLine> parse_command_line(const std::vector<std::string>& args, ConfigSchema& schema,
                                       const CommandSpec& spec);

std::string help_text(const ConfigSchema& schema, const CommandSpec& spec);

}  // namespace fathom
