#include "cli/sim/fleet_order.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "base/clock.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/sim/calibration.h"
#include "cli/sim/prefill_costs.h"
#include "sim/fleet/fleet.h"

namespace fathom {
namespace {

constexpr const char* kByFlag = "flag";

bool holds(const std::vector<std::string>& words, std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_preset(const std::string& word) {
    return holds(fleet_preset_names(), word);
}

std::string table_of(const std::string& key) {
    return key.substr(0, key.find('.'));
}

// --- words

struct Words {
    std::vector<std::string> plain;
    FleetOrderReader::Values sets;  // of --set, in their order
};

std::string named_key(const std::string& name, const CommandSpec& spec) {
    for (const FlagAlias& alias : spec.aliases)
        if (alias.flag == "--" + name) return alias.key;
    return name;
}

Result<std::pair<std::string, std::string>> read_set(const std::string& pair,
                                                     const CommandSpec& spec) {
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos)
        return invalid_argument("--set: \"{}\", expected KEY=VALUE", pair);
    return std::pair(named_key(pair.substr(0, equals), spec), pair.substr(equals + 1));
}

Result<Words> split_sets(const std::vector<std::string>& args, const CommandSpec& spec) {
    Words words;
    for (std::size_t i = 0; i < args.size(); ++i) {
        if (args[i] == "--") {
            words.plain.insert(words.plain.end(), args.begin() + static_cast<std::ptrdiff_t>(i),
                               args.end());
            break;
        }
        const bool is_joined = args[i].starts_with("--set=");
        if (args[i] != "--set" && !is_joined) {
            words.plain.push_back(args[i]);
            continue;
        }
        const std::string pair = is_joined             ? args[i].substr(6)
                                 : i + 1 < args.size() ? args[++i]
                                                       : std::string();
        FATHOM_ASSIGN(auto set, read_set(pair, spec));
        words.sets.push_back(std::move(set));
    }
    return words;
}

// `from`: "--set" or "--vary". An empty value is one: it sets a text, and no flag.
Status set_key(ConfigSchema& schema, const std::vector<std::string>& tables, const char* from,
               const std::pair<std::string, std::string>& set) {
    const auto& [key, value] = set;
    for (const ConfigSchema::Option& option : schema.options()) {
        if (option.key != key) continue;
        if (!holds(tables, table_of(key)))
            return invalid_argument("{}: {} is not a key of this command", from, key);
        if (option.is_bool && value.empty())
            return invalid_argument("{}: {} must be true or false, got \"\"", from, key);
    }
    return schema.set_flag(key, value, from);
}

// --- where all values begin. It is itself told by values: those win over what they begin with.

struct Beginning {
    std::string preset, calibration, prefill_costs, model;
    bool is_engines_given = false;  // prefill.engines, beside measured prefill costs
    // Engines of another size, which follow from the rest; 0: the preset's.
    std::int64_t prefill_ranks = 0, decode_ranks = 0;
    HardwareConfig hardware;
    std::int64_t token_bytes = 0, context_tokens_max = 0;
    bool operator==(const Beginning&) const = default;
};

Status derive(const Beginning& begin, FleetConfig& config) {
    if (begin.prefill_ranks == 0 && begin.decode_ranks == 0) return {};
    config.hardware = begin.hardware;
    config.network.token_bytes = begin.token_bytes;
    config.workload.context_tokens_max = begin.context_tokens_max;
    const auto side = [&](const char* name, std::int64_t ranks, auto set_ranks) -> Status {
        if (ranks == 0) return {};
        const Status status = set_ranks(config, ranks);
        if (!status.ok())
            return error(status.code(),
                         "{}; give [hardware] of the card, or {}.step_us and the other costs of "
                         "such an engine with {}.blocks_per_rank",
                         status.message(), name, name);
        config.derived.emplace_back(name);
        return {};
    };
    FATHOM_RETURN_IF_ERROR(side("prefill", begin.prefill_ranks, set_prefill_ranks));
    return side("decode", begin.decode_ranks, set_decode_ranks);
}

Result<FleetConfig> config_of(const Beginning& begin) {
    FATHOM_ASSIGN(FleetConfig config, fleet_preset(begin.preset));
    if (!begin.calibration.empty())
        FATHOM_RETURN_IF_ERROR(apply_calibration(begin.calibration, begin.model, config));
    if (!begin.prefill_costs.empty())
        FATHOM_RETURN_IF_ERROR(
            apply_prefill_costs(begin.prefill_costs, begin.model, begin.is_engines_given, config));
    FATHOM_RETURN_IF_ERROR(derive(begin, config));
    return config;
}

bool is_cost(const std::string& key) {
    return key != "prefill.stall_us" && !key.starts_with("drafts.") &&
           (key.ends_with("_us") || key.find(".moe_") != std::string::npos);
}

bool is_given(const ConfigSchema& schema, std::string_view key) {
    for (const ConfigSchema::Origin& one : schema.effective())
        if (one.key == key && one.origin != "default") return true;
    return false;
}

// The sides of which a cost was given.
std::vector<std::string> sides_with_costs(const ConfigSchema& schema) {
    std::vector<std::string> sides;
    for (const ConfigSchema::Origin& one : schema.effective())
        if (one.origin != "default" && is_cost(one.key)) sides.push_back(table_of(one.key));
    return sides;
}

Result<Beginning> named_beginning(FleetSettings& settings, const Beginning& begin) {
    Beginning named;
    named.preset = settings.preset();
    named.calibration = settings.calibration();
    named.prefill_costs = settings.prefill_costs();
    named.model = settings.model();
    named.is_engines_given =
        !named.prefill_costs.empty() && is_given(settings.schema(), "prefill.engines");
    if (!named.calibration.empty()) return named;
    // What another preset does not say is not this one's either.
    if (named.preset != begin.preset || !begin.calibration.empty() ||
        named.prefill_costs != begin.prefill_costs)
        return named;
    FATHOM_ASSIGN(const FleetConfig preset, fleet_preset(named.preset));
    const FleetConfig& values = settings.values();
    const std::vector<std::string> given = sides_with_costs(settings.schema());
    const auto derived = [&](const char* side, std::int64_t ranks, std::int64_t usual) {
        const bool is_other =
            ranks != usual && !holds(values.measured, side) && !holds(given, side);
        return is_other ? ranks : 0;
    };
    if (named.prefill_costs.empty())
        named.prefill_ranks = derived("prefill", values.prefill.ranks, preset.prefill.ranks);
    named.decode_ranks = derived("decode", values.decode.ranks, preset.decode.ranks);
    if (named.prefill_ranks == 0 && named.decode_ranks == 0) return named;
    named.hardware = values.hardware;
    named.token_bytes = values.network.token_bytes;
    named.context_tokens_max = values.workload.context_tokens_max;
    return named;
}

// A step curve that somebody changed is not the one that was measured, unless they say so.
void tell_what_was_changed(const ConfigSchema& schema, FleetConfig& config) {
    if (is_given(schema, "sim.measured")) return;
    const std::vector<std::string> changed = sides_with_costs(schema);
    std::erase_if(config.measured, [&](const std::string& table) { return holds(changed, table); });
}

// Of a value that nobody gave by its key.
std::string source_of(const std::string& key, const Beginning& begin, const FleetConfig& preset,
                      const FleetConfig& values) {
    const bool is_measured = key == "sim.measured" && begin.calibration.empty();
    if ((key.starts_with("prefill.") || is_measured) && !begin.prefill_costs.empty()) {
        const PrefillCosts& costs = values.prefill.policy.costs;
        const std::string file = "sim.prefill_costs " + begin.prefill_costs;
        // Engines of another size may make fewer cards than the preset has, or more.
        if (key == "prefill.ranks" && values.prefill_cards() != preset.prefill_cards())
            return fmt::format("{}; prefill cards: {} -> {}", file, preset.prefill_cards(),
                               values.prefill_cards());
        if (!is_cost(key)) return file;
        return file + (!is_same_for_all(costs) ? ", of prompts below 16 K; longer ones have others"
                       : costs[0].table        ? ", beside a table of slices"
                                               : "");
    }
    return begin.calibration.empty() ? "derived from [hardware] and the preset's costs"
                                     : "sim.calibration " + begin.calibration;
}

// Why a key does nothing in this configuration; empty when it may do something.
std::string_view idle_reason(std::string_view key, const FleetConfig& config) {
    const WorkloadSource source = config.workload.source;
    const struct {
        std::string_view keys, but;  // keys that begin like this, except one
        bool is_idle;
        std::string_view reason;
    } rules[] = {
        {"scaling.", "scaling.enabled", !config.scaling.is_enabled, "scaling.enabled is false"},
        {"drafts.", "", !config.decode.drafts.is_modelled(), "decode.verification is table"},
        {"experts.", "experts.process", !config.experts.is_process, "experts.process is false"},
        {"drain.", "", config.drain.at_s <= 0 && !config.scaling.is_enabled, "drain.at_s is 0"},
        {"workload.trace", "", source != WorkloadSource::trace, "workload.source is not trace"},
        {"workload.clients", "", source != WorkloadSource::clients,
         "workload.source is not clients"},
    };
    for (const auto& rule : rules)
        if (rule.is_idle && key.starts_with(rule.keys) && key != rule.but) return rule.reason;
    return {};
}

Result<std::vector<FleetChange>> changes_of(FleetSettings& settings, const Beginning& begin,
                                            const FleetConfig& config) {
    FATHOM_ASSIGN(const FleetConfig preset, fleet_preset(begin.preset));
    FleetSettings usual_settings(preset);
    const auto usual = usual_settings.schema().effective();
    const auto values = settings.schema().effective();
    std::vector<FleetChange> changes;
    for (std::size_t i = 0; i < usual.size(); ++i) {  // fleet keys come first in both
        const ConfigSchema::Origin& one = values[i];
        if (one.value == usual[i].value) continue;
        std::string source = one.origin;
        if (source == kByFlag) source = "flag --" + one.key;
        if (source == "default") source = source_of(one.key, begin, preset, settings.values());
        if (const std::string_view reason = idle_reason(one.key, config); !reason.empty())
            source += fmt::format("; without effect: {}", reason);
        changes.push_back({one.key, one.value, usual[i].value, std::move(source)});
    }
    return changes;
}

// --- reading

struct Reading {
    const CommandSpec& spec;
    const Words& words;
    const FleetOrderReader::Values& values;
};

Status read_positional(const std::string& word, ConfigSchema& schema) {
    if (!is_preset(word)) {
        if (word.find_first_of("./") == std::string::npos)
            return fleet_preset(word).status();  // no file's name
        return schema.load_file(word);
    }
    for (const ConfigSchema::Origin& one : schema.effective()) {
        const bool is_told = one.key == "sim.preset" && one.origin == kByFlag;
        if (is_told && one.value != "\"" + word + "\"")
            return invalid_argument("two presets, {} and --preset {}; name one", word, one.value);
    }
    return schema.set_flag("sim.preset", word);
}

std::vector<std::string> inputs_of(const FleetSettings& settings, const CommandLine& line,
                                   const std::vector<std::string>& args) {
    std::vector<std::string> inputs = line.positional;
    inputs.insert(inputs.end(), {settings.calibration(), settings.prefill_costs(),
                                 settings.values().workload.trace});
    for (std::size_t i = 0; i < args.size(); ++i) {
        if (args[i] == "--config" && i + 1 < args.size()) inputs.push_back(args[i + 1]);
        if (args[i].starts_with("--config=")) inputs.push_back(args[i].substr(9));
    }
    std::erase_if(inputs, [](const std::string& path) { return path.empty(); });
    return inputs;
}

Result<FleetOrder> read_over(const Beginning& begin, const Reading& reading) {
    FleetOrder order;
    FATHOM_ASSIGN(const FleetConfig config, config_of(begin));
    FleetSettings settings(config);
    ConfigSchema& schema = settings.schema();
    bind_command_keys(order.keys, schema);
    FATHOM_ASSIGN(const CommandLine line,
                  parse_command_line(reading.words.plain, schema, reading.spec));
    if (line.help) {
        order.help = help_text(schema, reading.spec);
        return order;
    }
    for (const auto& set : reading.words.sets)
        FATHOM_RETURN_IF_ERROR(set_key(schema, reading.spec.tables, "--set", set));
    if (!line.positional.empty())
        FATHOM_RETURN_IF_ERROR(read_positional(line.positional[0], schema));
    for (const auto& value : reading.values)
        FATHOM_RETURN_IF_ERROR(set_key(schema, FleetSettings::tables(), "--vary", value));
    FATHOM_ASSIGN(const Beginning named, named_beginning(settings, begin));
    if (named != begin) return read_over(named, reading);
    FATHOM_ASSIGN(order.config, settings.config());
    FATHOM_ASSIGN(order.config.changes, changes_of(settings, begin, order.config));
    order.inputs = inputs_of(settings, line, reading.words.plain);
    if (!begin.calibration.empty() || !begin.prefill_costs.empty())
        tell_what_was_changed(schema, order.config);
    return order;
}

CommandSpec with_fleet_keys(const CommandSpec& spec) {
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
    return whole;
}

}  // namespace

std::string FleetOrderReader::key_of(const std::string& name) const {
    return named_key(name, with_fleet_keys(spec));
}

Result<FleetOrder> FleetOrderReader::read(const std::vector<std::string>& args,
                                          const Values& values) const {
    const CommandSpec whole = with_fleet_keys(spec);
    FATHOM_ASSIGN(const Words words, split_sets(args, whole));
    Beginning begin;
    begin.preset = fleet_preset_names().front();
    return read_over(begin, {.spec = whole, .words = words, .values = values});
}

Status check_sim_outputs(const std::vector<std::string>& outputs,
                         const std::vector<std::string>& inputs) {
    for (const std::string& path : outputs) {
        if (path.empty()) continue;
        FATHOM_RETURN_IF_ERROR(check_output_path(path));
        FATHOM_RETURN_IF_ERROR(check_output_is_no_input(path, inputs));
    }
    return check_outputs_differ(outputs);
}

Result<FleetResult> simulate_fleet(const FleetConfig& config, const Interrupts& interrupts) {
    Progress progress("simulated seconds", static_cast<std::int64_t>(config.duration_s),
                      real_clock());
    const FleetHooks hooks = {.progress = [&](double done_s, double) {
        progress.update(static_cast<std::int64_t>(done_s));
        return !interrupts.pending();
    }};
    return within_memory([&] { return run_fleet(config, hooks); });
}

int refuse_sim_command(const char* command, const Status& status) {
    fmt::print(stderr, "fathom sim {}: {}\n", command, status.message());
    return kExitUsage;
}

int end_sim_command(const char* command, const Status& status) {
    if (status.ok()) return kExitOk;
    if (status.code() == StatusCode::cancelled) return kExitInterrupted;
    fmt::print(stderr, "fathom sim {}: {}\n", command, status.message());
    return kExitFailed;
}

}  // namespace fathom
