#include "cli/sim/run.h"

#include "base/output_file.h"
#include "cli/print_result.h"
#include "cli/sim/fleet_order.h"
#include "cli/sim/fleet_report.h"

namespace fathom {
namespace {

FleetOrderReader reader() {
    FleetOrderReader reader;
    reader.spec.usage =
        "fathom sim run PRESET [options]\n       fathom sim run CONFIG.toml [options]";
    reader.spec.summary =
        "Runs a fleet in virtual time under generated or recorded traffic: times to first token, "
        "use of\nthe cards and what takes the rest, hits, cost. PRESET is one-box, 16-cards, "
        "64+64, 6500-cards or\n10000-cards; a file sets any of the keys below, flags and --set "
        "KEY=VALUE win over it.\ndocs/simulator.md explains the models.";
    reader.spec.tables = {"out"};
    reader.spec.aliases = {{"--csv", "out.csv"}, {"--html", "out.html"}, {"--json", "out.json"}};
    return reader;
}

Status write_outputs(const RunKeys& run, const FleetResult& result) {
    if (!run.csv.empty()) FATHOM_RETURN_IF_ERROR(write_output_file(run.csv, fleet_csv(result)));
    if (!run.html.empty()) FATHOM_RETURN_IF_ERROR(write_output_file(run.html, fleet_html(result)));
    return print_result(run.json ? fleet_json(result) : fleet_table(result));
}

Status run_fleet_order(const FleetOrder& order) {
    const Interrupts interrupts;
    FATHOM_ASSIGN(const FleetResult result, simulate_fleet(order.config, interrupts));
    FATHOM_RETURN_IF_ERROR(write_outputs(order.keys.run, result));
    // What must hold of every run does not: a fault of this program.
    if (result.violations.empty()) return {};
    return error(StatusCode::internal, "{}", result.violations.front());
}

}  // namespace

int run_sim_run(const std::vector<std::string>& args) {
    const auto order = reader().read(args);
    if (!order.ok()) return refuse_sim_command("run", order.status());
    if (!order->help.empty()) return end_sim_command("run", print_result(order->help));
    const RunKeys& run = order->keys.run;
    const Status outputs_fit = check_sim_outputs({run.csv, run.html}, order->inputs);
    if (!outputs_fit.ok()) return refuse_sim_command("run", outputs_fit);
    return end_sim_command("run", run_fleet_order(*order));
}

}  // namespace fathom
