#include "cli/sim/fleet_order.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/progress.h"
#include "cli/sim/calibration.h"
#include "sim/fleet/fleet.h"

namespace fathom {
namespace {

bool is_preset(const std::string& word) {
    const auto names = fleet_preset_names();
    return std::find(names.begin(), names.end(), word) != names.end();
}

// `--set key=value` is another spelling of `--key value`.
Result<std::vector<std::string>> without_set(const std::vector<std::string>& args) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < args.size(); ++i) {
        const bool is_joined = args[i].starts_with("--set=");
        if (args[i] == "--") {
            words.insert(words.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
            break;
        }
        if (args[i] != "--set" && !is_joined) {
            words.push_back(args[i]);
            continue;
        }
        const std::string pair = is_joined             ? args[i].substr(6)
                                 : i + 1 < args.size() ? args[++i]
                                                       : std::string();
        const std::size_t equals = pair.find('=');
        if (equals == 0 || equals == std::string::npos)
            return invalid_argument("--set: \"{}\", expected KEY=VALUE", pair);
        words.push_back("--" + pair);
    }
    return words;
}

// Where all values begin. It is itself told by values: those win over what they begin with.
struct Beginning {
    std::string preset, calibration, model;
    bool operator==(const Beginning&) const = default;
};

Result<FleetConfig> config_of(const Beginning& begin) {
    FATHOM_ASSIGN(FleetConfig config, fleet_preset(begin.preset));
    if (!begin.calibration.empty())
        FATHOM_RETURN_IF_ERROR(apply_calibration(begin.calibration, begin.model, config));
    return config;
}

// A step curve that somebody changed is not the one that was measured, unless they say so.
void tell_what_was_changed(const ConfigSchema& schema, FleetConfig& config) {
    std::vector<std::string> changed;
    for (const ConfigSchema::Origin& one : schema.effective()) {
        if (one.origin == "default") continue;
        if (one.key == "sim.measured") return;
        if (one.key.ends_with("_us") || one.key.find(".moe_") != std::string::npos)
            changed.push_back(one.key.substr(0, one.key.find('.')));
    }
    std::erase_if(config.measured, [&](const std::string& table) {
        return std::find(changed.begin(), changed.end(), table) != changed.end();
    });
}

Result<FleetOrder> read_over(const Beginning& begin, const CommandSpec& spec,
                             const FleetOrderReader& reader, const std::vector<std::string>& args,
                             const FleetOrderReader::Values& values) {
    FleetOrder order;
    FATHOM_ASSIGN(const FleetConfig config, config_of(begin));
    FleetSettings settings(config);
    reader.bind_own(settings.schema());
    FATHOM_ASSIGN(const CommandLine line, parse_command_line(args, settings.schema(), spec));
    if (line.help) {
        order.help = true;
        fmt::print("{}", help_text(settings.schema(), spec));
        return order;
    }
    if (!line.positional.empty()) {
        const std::string& word = line.positional[0];
        if (is_preset(word))
            FATHOM_RETURN_IF_ERROR(settings.schema().set_flag("sim.preset", word));
        else if (word.find_first_of("./") == std::string::npos)
            FATHOM_RETURN_IF_ERROR(fleet_preset(word).status());  // no file's name
        else
            FATHOM_RETURN_IF_ERROR(settings.schema().load_file(word));
    }
    for (const auto& [key, value] : values)
        FATHOM_RETURN_IF_ERROR(settings.schema().set_flag(key, value));
    const Beginning named = {settings.preset(), settings.calibration(), settings.model()};
    if (named != begin) return read_over(named, spec, reader, args, values);
    FATHOM_ASSIGN(order.config, settings.config());
    order.inputs = line.positional;
    order.inputs.insert(order.inputs.end(), {settings.calibration(), order.config.workload.trace});
    for (std::size_t i = 0; i + 1 < args.size(); ++i)
        if (args[i] == "--config") order.inputs.push_back(args[i + 1]);
    std::erase_if(order.inputs, [](const std::string& path) { return path.empty(); });
    if (!begin.calibration.empty()) tell_what_was_changed(settings.schema(), order.config);
    return order;
}

}  // namespace

Result<FleetOrder> FleetOrderReader::read(const std::vector<std::string>& args,
                                          const Values& values) const {
    CommandSpec whole = spec;
    whole.tables.insert(whole.tables.begin(), FleetSettings::tables().begin(),
                        FleetSettings::tables().end());
    const std::vector<FlagAlias> aliases = {{"--preset", "sim.preset"},
                                            {"--seed", "sim.seed"},
                                            {"--duration", "sim.duration_s"},
                                            {"--load", "workload.load"},
                                            {"--rate", "workload.rate"}};
    whole.aliases.insert(whole.aliases.begin(), aliases.begin(), aliases.end());
    whole.positional_max = 1;
    FATHOM_ASSIGN(const std::vector<std::string> words, without_set(args));
    return read_over({.preset = fleet_preset_names().front(), .calibration = "", .model = ""},
                     whole, *this, words, values);
}

Status check_sim_outputs(const std::vector<std::string>& outputs,
                         const std::vector<std::string>& inputs) {
    std::vector<std::string> taken = inputs;
    for (const std::string& path : outputs) {
        if (path.empty()) continue;
        FATHOM_RETURN_IF_ERROR(check_output_path(path));
        FATHOM_RETURN_IF_ERROR(check_output_is_no_input(path, inputs));
        if (std::find(taken.begin(), taken.end(), path) != taken.end())
            return invalid_argument("{}: is named for two outputs", path);
        taken.push_back(path);
    }
    return {};
}

Result<FleetResult> simulate_fleet(const FleetConfig& config) {
    const Interrupts interrupts;
    Progress progress("simulated seconds", static_cast<std::int64_t>(config.duration_s),
                      real_clock());
    return run_fleet(config, {.progress = [&](double done_s, double) {
                         progress.update(static_cast<std::int64_t>(done_s));
                         return !interrupts.pending();
                     }});
}

int fail_sim_command(const char* command, const Status& status) {
    if (status.code() == StatusCode::cancelled) return kExitInterrupted;
    fmt::print(stderr, "fathom sim {}: {}\n", command, status.message());
    const bool is_usage =
        status.code() == StatusCode::invalid_argument || status.code() == StatusCode::not_found;
    return is_usage ? kExitUsage : kExitFailed;
}

}  // namespace fathom
