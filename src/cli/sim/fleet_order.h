// From the words of a command to a fleet: a preset or a configuration file, and flags over it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "cli/sim/fleet_settings.h"
#include "sim/fleet/fleet_result.h"

namespace fathom {

struct FleetOrder {
    bool help = false;  // --help was given and answered
    FleetConfig config;
    std::vector<std::string> inputs;  // files that it reads
};

struct FleetOrderReader {
    CommandSpec spec;  // read() adds the tables of a fleet and their familiar names
    // Adds the command's own keys; called for each pass over the words.
    std::function<void(ConfigSchema&)> bind_own;

    // The first word may be a preset or a file; a flag may be given as --set key=value as well.
    // `values` (key, value) win over everything. invalid_argument names field, value and limit.
    using Values = std::vector<std::pair<std::string, std::string>>;
    Result<FleetOrder> read(const std::vector<std::string>& args, const Values& values = {}) const;
};

// Whether the outputs that are named can be written, are different files and no inputs. Nothing is
// written.
Status check_sim_outputs(const std::vector<std::string>& outputs,
                         const std::vector<std::string>& inputs);

// Runs it with progress on a terminal; Ctrl-C ends it as cancelled.
Result<FleetResult> simulate_fleet(const FleetConfig& config);

// The exit status of a command that failed, with the reason on stderr.
int fail_sim_command(const char* command, const Status& status);

}  // namespace fathom
