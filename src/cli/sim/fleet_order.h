// From the words of a command to a fleet: a preset or a configuration file, and flags over it.
//
//   preset ─▶ calibration, or engines of other sizes ─▶ file ─▶ flags, --set ─▶ values of a sweep
//
// (a file of measured prefill costs comes between the first two.)
//
// What comes later wins. A side (prefill, decode) whose engines have another size than the preset's
// gets the costs and the memory that follow from [hardware], as `fathom sim plan` takes them; not
// where it was measured, or where a cost of that side was given.
#pragma once

#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "cli/sim/command_keys.h"
#include "cli/sim/fleet_settings.h"
#include "sim/fleet/fleet_result.h"

namespace fathom {

struct FleetOrder {
    std::string help;  // --help was given, and this is the answer; nothing else was read
    FleetConfig config;
    SimCommandKeys keys;
    std::vector<std::string> inputs;  // files that it reads
};

struct FleetOrderReader {
    CommandSpec spec;  // read() adds the tables of a fleet and their familiar names

    // The key that a name stands for in --set and --vary: "load" is workload.load, as --load is.
    // Other names are keys already.
    std::string key_of(const std::string& name) const;

    // The first word may be a preset or a file; --set KEY=VALUE wins over flags, and `values`
    // (key of a fleet, value) over everything. invalid_argument names field, value and limit.
    using Values = std::vector<std::pair<std::string, std::string>>;
    Result<FleetOrder> read(const std::vector<std::string>& args, const Values& values = {}) const;
};

// Whether the outputs that are named can be written, are different files and no inputs. Nothing is
// written.
Status check_sim_outputs(const std::vector<std::string>& outputs,
                         const std::vector<std::string>& inputs);

// Runs it with progress on a terminal; a signal ends it as cancelled, and resource_exhausted says
// that there is not enough memory for so large a fleet.
Result<FleetResult> simulate_fleet(const FleetConfig& config, const Interrupts& interrupts);

// What `run` returns, or resource_exhausted when it runs out of memory.
template <typename Run>
auto within_memory(Run&& run) -> decltype(run()) {
    constexpr const char* kMessage =
        "the simulated fleet needs more memory than there is; take fewer cards or requests";
    try {
        return run();
    } catch (const std::bad_alloc&) {
        return error(StatusCode::resource_exhausted, kMessage);
    } catch (const std::length_error&) {
        return error(StatusCode::resource_exhausted, kMessage);
    }
}

// Exit statuses, with the reason on stderr: of a command line or a configuration that is wrong, and
// of work that ended like this.
int refuse_sim_command(const char* command, const Status& status);
int end_sim_command(const char* command, const Status& status);

}  // namespace fathom
