#include "cli/sim/sweep.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <string_view>

#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/sim/fleet_order.h"
#include "cli/svg.h"

namespace fathom {
namespace {

constexpr std::size_t kValuesMax = 1'000, kRunsMax = 10'000;

// The numbers of "8..64..8"; nothing when it is no such text.
Result<std::vector<std::string>> range_values(const std::string& key, std::string_view text) {
    const std::size_t first = text.find("..");
    const std::size_t second = first == std::string_view::npos ? first : text.find("..", first + 2);
    if (second == std::string_view::npos) return std::vector<std::string>();
    const auto from = fleet_number(text.substr(0, first));
    const auto to = fleet_number(text.substr(first + 2, second - first - 2));
    const auto step = fleet_number(text.substr(second + 2));
    if (!from || !to || !step || *step <= 0 || *to < *from)
        return invalid_argument("--vary {}: \"{}\", expected FROM..TO..STEP with a step above 0",
                                key, text);
    if ((*to - *from) / *step >= static_cast<double>(kValuesMax))
        return invalid_argument("--vary {}: \"{}\" has more than {} values", key, text, kValuesMax);
    std::vector<std::string> values;
    const auto last = static_cast<std::int64_t>(std::floor((*to - *from) / *step + 1e-9));
    for (std::int64_t i = 0; i <= last; ++i)
        values.push_back(fmt::format("{:.10g}", *from + *step * static_cast<double>(i)));
    return values;
}

struct Sweep {
    std::vector<std::string> vary;
    std::string csv, svg;
};

double within_slo(const FleetResult& result) {
    return result.all.finished > 0 ? static_cast<double>(result.all.within_slo) /
                                         static_cast<double>(result.all.finished)
                                   : 0;
}

// That steps had: a constant, or what came of popularities and placements.
double moe_balance(const FleetResult& result, std::size_t role) {
    if (result.config.experts.is_process) return result.experts[role].realised.ratio();
    return role == 0 ? result.config.prefill.policy.costs[0].moe_balance
                     : result.config.decode.policy.cost.moe_balance;
}
double experts_moved_gb(const FleetResult& result, std::size_t role) {
    return static_cast<double>(result.experts[role].switches.fetched) *
           static_cast<double>(result.config.experts.expert_bytes) / 1e9;
}

struct Column {
    const char* name;
    double (*value)(const FleetResult& result);
};
constexpr Column kColumns[] = {
    {"cards", [](const FleetResult& r) { return static_cast<double>(r.config.cards()); }},
    {"requests_s", [](const FleetResult& r) { return r.rate; }},
    {"efficiency", [](const FleetResult& r) { return r.efficiency(); }},
    {"prefill_work", [](const FleetResult& r) { return r.prefill.share(CardTime::work); }},
    {"prefill_idle", [](const FleetResult& r) { return r.prefill.share(CardTime::idle); }},
    {"decode_work", [](const FleetResult& r) { return r.decode.share(CardTime::work); }},
    {"decode_idle", [](const FleetResult& r) { return r.decode.share(CardTime::idle); }},
    {"hit_share", [](const FleetResult& r) { return r.hit_share(); }},
    {"ttft_p50_ms", [](const FleetResult& r) { return r.all.ttft_ms.percentile(0.5); }},
    {"ttft_p99_ms", [](const FleetResult& r) { return r.all.ttft_ms.percentile(0.99); }},
    {"tpot_p50_ms", [](const FleetResult& r) { return r.all.tpot_ms.percentile(0.5); }},
    {"tpot_p99_ms", [](const FleetResult& r) { return r.all.tpot_ms.percentile(0.99); }},
    {"within_slo", within_slo},
    {"prefill_moe_lb", [](const FleetResult& r) { return moe_balance(r, 0); }},
    {"decode_moe_lb", [](const FleetResult& r) { return moe_balance(r, 1); }},
    {"prefill_moved_gb", [](const FleetResult& r) { return experts_moved_gb(r, 0); }},
    {"decode_moved_gb", [](const FleetResult& r) { return experts_moved_gb(r, 1); }},
    {"usd_per_million", [](const FleetResult& r) { return r.cost_per_million(); }},
};

FleetOrderReader reader(Sweep& sweep) {
    FleetOrderReader reader;
    reader.spec.usage =
        "fathom sim sweep PRESET|CONFIG.toml --vary KEY=VALUES [--vary KEY=VALUES] [options]";
    reader.spec.summary =
        "Runs a fleet once for each value of a key, or each combination of several, and prints a "
        "row each.\nVALUES are A,B,C or FROM..TO..STEP. All runs have the same seed.";
    reader.spec.tables = {"sweep"};
    reader.spec.aliases = {
        {"--vary", "sweep.vary"}, {"--csv", "sweep.csv"}, {"--svg", "sweep.svg"}};
    reader.bind_own = [&sweep](ConfigSchema& schema) {
        sweep = {};
        schema.add("sweep.vary", &sweep.vary, "KEY=VALUES; repeated for several keys");
        schema.add("sweep.csv", &sweep.csv, "file for the rows with all figures");
        schema.add("sweep.svg", &sweep.svg, "file for plots over the first key");
    };
    return reader;
}

// The combinations in the order of counting, the last axis fastest.
std::vector<FleetOrderReader::Values> combinations(const std::vector<SweepAxis>& axes) {
    std::vector<FleetOrderReader::Values> all = {{}};
    for (const SweepAxis& axis : axes) {
        std::vector<FleetOrderReader::Values> longer;
        for (const FleetOrderReader::Values& values : all) {
            for (const std::string& value : axis.values) {
                longer.push_back(values);
                longer.back().emplace_back(axis.key, value);
            }
        }
        all = std::move(longer);
    }
    return all;
}

Result<std::vector<SweepAxis>> read_axes(const Sweep& sweep) {
    if (sweep.vary.empty()) return invalid_argument("--vary: missing; it is KEY=VALUES");
    std::vector<SweepAxis> axes;
    std::size_t runs = 1;
    for (const std::string& text : sweep.vary) {
        FATHOM_ASSIGN(SweepAxis axis, parse_sweep_axis(text));
        runs *= axis.values.size();
        if (runs > kRunsMax) return invalid_argument("--vary: more than {} combinations", kRunsMax);
        axes.push_back(std::move(axis));
    }
    return axes;
}

std::string header(const std::vector<SweepAxis>& axes) {
    std::string text;
    for (const SweepAxis& axis : axes)
        text += axis.key + ",";
    for (const Column& column : kColumns)
        text += fmt::format("{},", column.name);
    return text + "hash\n";
}

std::string row(const FleetOrderReader::Values& values, const FleetResult& result) {
    std::string text;
    for (const auto& [key, value] : values)
        text += value + ",";
    for (const Column& column : kColumns)
        text += fmt::format("{:.6g},", column.value(result));
    return text + fmt::format("{:016x}\n", result.hash);
}

// One line of the table for people: the keys and what is asked for first.
std::string table_row(const FleetOrderReader::Values& values, const FleetResult& result) {
    std::string text;
    for (const auto& [key, value] : values)
        text += fmt::format("{:>{}}", value, key.size() + 2);
    return text + fmt::format(
                      "{:>12.2f}{:>8.1f}{:>9.1f}{:>9.1f}{:>9.2f}{:>10.0f}{:>10.0f}{:>10.1f}"
                      "{:>8.1f}{:>11.4f}\n",
                      result.rate, 100 * result.efficiency(),
                      100 * result.prefill.share(CardTime::work),
                      100 * result.decode.share(CardTime::work), 100 * result.hit_share(),
                      result.all.ttft_ms.percentile(0.5), result.all.ttft_ms.percentile(0.99),
                      result.all.tpot_ms.percentile(0.99), 100 * within_slo(result),
                      result.cost_per_million());
}

std::string table_header(const std::vector<SweepAxis>& axes) {
    std::string text;
    for (const SweepAxis& axis : axes)
        text += "  " + axis.key;
    return text + fmt::format("{:>12}{:>8}{:>9}{:>9}{:>9}{:>10}{:>10}{:>10}{:>8}{:>11}\n",
                              "requests/s", "work %", "prefill", "decode", "hits %", "TTFT p50",
                              "p99 ms", "TPOT p99", "SLO %", "USD/M tok");
}

struct Run {
    FleetOrderReader::Values values;
    FleetResult result;
};

// Over the first key (its place where it is no number), a line for each combination of the others.
std::string plots(const std::vector<SweepAxis>& axes, const std::vector<Run>& runs) {
    std::vector<double> xs;
    for (const std::string& value : axes[0].values)
        xs.push_back(fleet_number(value).value_or(static_cast<double>(xs.size())));
    const std::size_t lines = runs.size() / xs.size();
    const auto plot = [&](const char* title, const char* unit, auto value) {
        SvgLinePlot lines_plot;
        lines_plot.title = title;
        lines_plot.x_label = axes[0].key;
        lines_plot.y_label = unit;
        lines_plot.xs = xs;
        for (std::size_t l = 0; l < lines; ++l) {
            SvgLine line{.name = lines == 1 ? title : "", .ys = {}};
            for (std::size_t a = 1; a < axes.size(); ++a)
                line.name += (a > 1 ? " " : "") + runs[l].values[a].second;
            for (std::size_t x = 0; x < xs.size(); ++x)
                line.ys.push_back(value(runs[x * lines + l].result));
            lines_plot.lines.push_back(std::move(line));
        }
        return lines_plot;
    };
    return svg_column({plot("work, part of all card-time", "%",
                            [](const FleetResult& r) { return 100 * r.efficiency(); }),
                       plot("time to first token, p99", "ms",
                            [](const FleetResult& r) { return r.all.ttft_ms.percentile(0.99); }),
                       plot("time of an output token, p99", "ms",
                            [](const FleetResult& r) { return r.all.tpot_ms.percentile(0.99); }),
                       plot("within SLO", "% of requests",
                            [](const FleetResult& r) { return 100 * within_slo(r); }),
                       plot("cost of a million tokens", "USD",
                            [](const FleetResult& r) { return r.cost_per_million(); })});
}

Status write_files(const Sweep& sweep, const std::vector<SweepAxis>& axes,
                   const std::vector<Run>& runs) {
    std::string rows = header(axes);
    for (const Run& run : runs)
        rows += row(run.values, run.result);
    if (!sweep.csv.empty()) FATHOM_RETURN_IF_ERROR(write_output_file(sweep.csv, rows));
    if (!sweep.svg.empty()) FATHOM_RETURN_IF_ERROR(write_output_file(sweep.svg, plots(axes, runs)));
    return {};
}

Status run_all(const std::vector<std::string>& args, const FleetOrderReader& orders,
               const Sweep& given) {
    FATHOM_ASSIGN(const std::vector<SweepAxis> axes, read_axes(given));
    const Sweep sweep = given;  // reading orders binds it anew
    // All of them are checked before the first takes its time.
    std::vector<FleetConfig> configs;
    const auto all = combinations(axes);
    for (const FleetOrderReader::Values& values : all) {
        FATHOM_ASSIGN(FleetOrder order, orders.read(args, values));
        FATHOM_RETURN_IF_ERROR(check_sim_outputs({sweep.csv, sweep.svg}, order.inputs));
        configs.push_back(std::move(order.config));
    }
    fmt::print("{}", table_header(axes));
    std::vector<Run> runs;
    for (std::size_t i = 0; i < all.size(); ++i) {
        FATHOM_ASSIGN(FleetResult result, simulate_fleet(configs[i]));
        if (!result.violations.empty())
            return error(StatusCode::internal, "{}", result.violations.front());
        fmt::print("{}", table_row(all[i], result));
        std::fflush(stdout);
        result.series.clear();
        runs.push_back({all[i], std::move(result)});
    }
    return write_files(sweep, axes, runs);
}

}  // namespace

Result<SweepAxis> parse_sweep_axis(const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
        return invalid_argument("--vary: \"{}\", expected KEY=VALUES", text);
    SweepAxis axis{.key = text.substr(0, equals), .values = {}};
    std::string_view rest = std::string_view(text).substr(equals + 1);
    FATHOM_ASSIGN(axis.values, range_values(axis.key, rest));
    if (!axis.values.empty()) return axis;
    while (true) {
        const std::size_t comma = rest.find(',');
        axis.values.emplace_back(rest.substr(0, comma));
        if (axis.values.back().empty() || axis.values.size() > kValuesMax)
            return invalid_argument("--vary: \"{}\", expected 1 to {} values with commas between",
                                    text, kValuesMax);
        if (comma == std::string_view::npos) return axis;
        rest = rest.substr(comma + 1);
    }
}

int run_sim_sweep(const std::vector<std::string>& args) {
    Sweep sweep;
    const FleetOrderReader orders = reader(sweep);
    const auto first = orders.read(args);
    if (!first.ok()) return fail_sim_command("sweep", first.status());
    if (first->help) return kExitOk;
    const Status status = run_all(args, orders, sweep);
    return status.ok() ? kExitOk : fail_sim_command("sweep", status);
}

}  // namespace fathom
