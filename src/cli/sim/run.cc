#include "cli/sim/run.h"

#include <fmt/core.h>

#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/sim/fleet_order.h"
#include "cli/sim/fleet_report.h"

namespace fathom {
namespace {

struct Outputs {
    std::string csv, html;
    bool json = false;
};

FleetOrderReader reader(Outputs& outputs) {
    FleetOrderReader reader;
    reader.spec.usage =
        "fathom sim run PRESET [options]\n       fathom sim run CONFIG.toml [options]";
    reader.spec.summary =
        "Runs a fleet in virtual time under generated or recorded traffic: times to first token, "
        "use of\nthe cards and what takes the rest, hits, cost. PRESET is one-box, 16-cards, "
        "64+64, 6500-cards or\n10000-cards; a file sets any of the keys below, flags win over it. "
        "docs/simulator.md explains\nthe models.";
    reader.spec.tables = {"out"};
    reader.spec.aliases = {{"--csv", "out.csv"}, {"--html", "out.html"}, {"--json", "out.json"}};
    reader.bind_own = [&outputs](ConfigSchema& schema) {
        outputs = {};
        schema.add("out.csv", &outputs.csv, "file for the figures over time");
        schema.add("out.html", &outputs.html, "file for a report with plots");
        schema.add("out.json", &outputs.json, "JSON on standard output instead of tables");
    };
    return reader;
}

Status write_outputs(const Outputs& outputs, const FleetResult& result) {
    if (!outputs.csv.empty())
        FATHOM_RETURN_IF_ERROR(write_output_file(outputs.csv, fleet_csv(result)));
    if (!outputs.html.empty())
        FATHOM_RETURN_IF_ERROR(write_output_file(outputs.html, fleet_html(result)));
    fmt::print("{}", outputs.json ? fleet_json(result) : fleet_table(result));
    return {};
}

}  // namespace

int run_sim_run(const std::vector<std::string>& args) {
    Outputs outputs;
    const auto order = reader(outputs).read(args);
    if (!order.ok()) return fail_sim_command("run", order.status());
    if (order->help) return kExitOk;
    const Status outputs_fit = check_sim_outputs({outputs.csv, outputs.html}, order->inputs);
    if (!outputs_fit.ok()) return fail_sim_command("run", outputs_fit);
    const auto result = simulate_fleet(order->config);
    if (!result.ok()) return fail_sim_command("run", result.status());
    if (const Status status = write_outputs(outputs, *result); !status.ok())
        return fail_sim_command("run", status);
    // What must hold of every run does not: a fault of this program.
    return result->violations.empty() ? kExitOk : kExitFailed;
}

}  // namespace fathom
