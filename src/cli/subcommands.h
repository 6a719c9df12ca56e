// Commands that are families: `fathom pool stat`, `fathom sim run`. A subcommand is a row of its
// command's table and a file in the folder of that name.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace fathom {

struct Subcommand {
    const char* name;
    const char* summary;
    int (*run)(const std::vector<std::string>& args);
};

// Runs the row that args[0] names with the words behind it; lists the rows for --help and for no
// words, and names the nearest one for a wrong word. `command` is "fathom pool".
int run_subcommand(const char* command, std::span<const Subcommand> table,
                   const std::vector<std::string>& args);

}  // namespace fathom
