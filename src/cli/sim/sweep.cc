#include "cli/sim/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "base/output_file.h"
#include "cli/print_result.h"
#include "cli/sim/figures.h"
#include "cli/sim/fleet_order.h"
#include "cli/sim/row_assumptions.h"
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

Figure within_slo(const FleetResult& result) {
    return share_of(result.all.within_slo, result.all.finished);
}

Figure hit_share(const FleetResult& result) {
    return share_of(result.counted.hit_tokens, result.counted.input_tokens);
}

Figure usd_per_million(const FleetResult& result) {
    return figure_if(result.served.output_tokens > 0, result.cost_per_million());
}

template <int kPercent>
Figure ttft_ms(const FleetResult& result) {
    return percentile_of(result.all.ttft_ms, kPercent / 100.0);
}

template <int kPercent>
Figure tpot_ms(const FleetResult& result) {
    return percentile_of(result.all.tpot_ms, kPercent / 100.0);
}

template <CardTime kKind>
Figure prefill_share(const FleetResult& result) {
    return figure_if(result.prefill.total_ns > 0, result.prefill.share(kKind));
}

template <CardTime kKind>
Figure decode_share(const FleetResult& result) {
    return figure_if(result.decode.total_ns > 0, result.decode.share(kKind));
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

// A sequence and step's, where drafts are modelled.
template <double (DraftFigures::*kFigure)() const>
Figure drafted(const FleetResult& result) {
    return figure_if(result.drafts.sequence_steps > 0, (result.drafts.*kFigure)());
}
Figure output_tokens_s(const FleetResult& result) {
    return figure_if(result.measured_s > 0, static_cast<double>(result.served.output_tokens) /
                                                std::max(result.measured_s, 1e-9));
}

struct Column {
    const char* name;
    Figure (*value)(const FleetResult& result);
};
constexpr Column kColumns[] = {
    {"cards", [](const FleetResult& r) { return Figure(static_cast<double>(r.config.cards())); }},
    {"requests_s", [](const FleetResult& r) { return Figure(r.rate); }},
    {"efficiency", [](const FleetResult& r) { return Figure(r.efficiency()); }},
    {"prefill_work", prefill_share<CardTime::work>},
    {"prefill_idle", prefill_share<CardTime::idle>},
    {"decode_work", decode_share<CardTime::work>},
    {"decode_idle", decode_share<CardTime::idle>},
    {"hit_share", hit_share},
    {"ttft_p50_ms", ttft_ms<50>},
    {"ttft_p99_ms", ttft_ms<99>},
    {"tpot_p50_ms", tpot_ms<50>},
    {"tpot_p99_ms", tpot_ms<99>},
    {"within_slo", within_slo},
    {"prefill_moe_lb", [](const FleetResult& r) { return Figure(moe_balance(r, 0)); }},
    {"decode_moe_lb", [](const FleetResult& r) { return Figure(moe_balance(r, 1)); }},
    {"prefill_moved_gb", [](const FleetResult& r) { return Figure(experts_moved_gb(r, 0)); }},
    {"decode_moved_gb", [](const FleetResult& r) { return Figure(experts_moved_gb(r, 1)); }},
    {"output_tokens_s", output_tokens_s},
    {"draft_rows", drafted<&DraftFigures::rows_each>},
    {"draft_tokens", drafted<&DraftFigures::tokens_each>},
    {"usd_per_million", usd_per_million},
};

FleetOrderReader reader() {
    FleetOrderReader reader;
    reader.spec.usage =
        "fathom sim sweep PRESET|CONFIG.toml --vary KEY=VALUES [--vary KEY=VALUES] [options]";
    reader.spec.summary =
        "Runs a fleet once for each value of a key, or each combination of several, and prints a "
        "row each.\nVALUES are A,B,C or FROM..TO..STEP. All runs have the same seed. Interrupted, "
        "it writes what is\nfinished.";
    reader.spec.tables = {"sweep"};
    reader.spec.aliases = {{"--vary", "sweep.vary"},
                           {"--csv", "sweep.csv"},
                           {"--svg", "sweep.svg"},
                           {"--json", "sweep.json"}};
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

Result<std::vector<SweepAxis>> read_axes(const SweepKeys& sweep, const FleetOrderReader& orders) {
    if (sweep.vary.empty()) return invalid_argument("--vary: missing; it is KEY=VALUES");
    std::vector<SweepAxis> axes;
    std::size_t runs = 1;
    for (const std::string& text : sweep.vary) {
        FATHOM_ASSIGN(SweepAxis axis, parse_sweep_axis(text));
        axis.key = orders.key_of(axis.key);
        for (const SweepAxis& other : axes)
            if (other.key == axis.key)
                return invalid_argument("--vary: {} is given twice; name all its values at once",
                                        axis.key);
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
    return text + "derived,hash\n";
}

std::string row(const FleetOrderReader::Values& values, const FleetResult& result) {
    std::string text;
    for (const auto& [key, value] : values)
        text += value + ",";
    for (const Column& column : kColumns)
        text += figure_csv(column.value(result)) + ",";
    return text + fmt::format("{},{:016x}\n", fmt::join(result.config.derived, "+"), result.hash);
}

// One line of the table for people: the keys and what is asked for first.
std::string table_row(const FleetOrderReader::Values& values, const FleetResult& result) {
    std::string text;
    for (const auto& [key, value] : values)
        text += fmt::format("{:>{}}", value, key.size() + 2);
    const auto cell = [&](Figure figure, int width, int digits, double scale = 1) {
        text +=
            figure_cell(figure_if(figure.has_value(), scale * figure.value_or(0)), width, digits);
    };
    cell(result.rate, 12, 2);
    cell(result.efficiency(), 8, 1, 100);
    cell(prefill_share<CardTime::work>(result), 9, 1, 100);
    cell(decode_share<CardTime::work>(result), 9, 1, 100);
    cell(hit_share(result), 9, 2, 100);
    cell(ttft_ms<50>(result), 10, 0);
    cell(ttft_ms<99>(result), 10, 0);
    cell(tpot_ms<99>(result), 10, 1);
    cell(within_slo(result), 8, 1, 100);
    cell(output_tokens_s(result), 10, 0);
    cell(usd_per_million(result), 11, 4);
    return text + "\n";
}

std::string table_header(const std::vector<SweepAxis>& axes) {
    std::string text;
    for (const SweepAxis& axis : axes)
        text += "  " + axis.key;
    return text + fmt::format("{:>12}{:>8}{:>9}{:>9}{:>9}{:>10}{:>10}{:>10}{:>8}{:>10}{:>11}\n",
                              "requests/s", "work %", "prefill", "decode", "hits %", "TTFT p50",
                              "p99 ms", "TPOT p99", "SLO %", "out tok/s", "USD/M tok");
}

struct Run {
    FleetOrderReader::Values values;
    FleetResult result;
};

// Over the first key (its place where it is no number), a line for each combination of the others.
// Of a sweep that was interrupted the lines end earlier.
std::string plots(const std::vector<SweepAxis>& axes, const std::vector<Run>& runs) {
    std::vector<double> xs;
    for (const std::string& value : axes[0].values)
        xs.push_back(fleet_number(value).value_or(static_cast<double>(xs.size())));
    std::size_t lines = 1;
    for (std::size_t a = 1; a < axes.size(); ++a)
        lines *= axes[a].values.size();
    const auto plot = [&](const char* title, const char* unit, auto value) {
        SvgLinePlot lines_plot;
        lines_plot.title = title;
        lines_plot.x_label = axes[0].key;
        lines_plot.y_label = unit;
        lines_plot.xs = xs;
        for (std::size_t l = 0; l < std::min(lines, runs.size()); ++l) {
            SvgLine line{.name = lines == 1 ? title : "", .ys = {}};
            for (std::size_t a = 1; a < axes.size(); ++a)
                line.name += (a > 1 ? " " : "") + runs[l].values[a].second;
            for (std::size_t r = l; r < runs.size(); r += lines)
                line.ys.push_back(figure_y(value(runs[r].result)));
            lines_plot.lines.push_back(std::move(line));
        }
        return lines_plot;
    };
    const auto percent = [](Figure share) {
        return figure_if(share.has_value(), 100 * share.value_or(0));
    };
    return svg_column({plot("work, part of all card-time", "%",
                            [](const FleetResult& r) { return Figure(100 * r.efficiency()); }),
                       plot("time to first token, p99", "ms", ttft_ms<99>),
                       plot("time of an output token, p99", "ms", tpot_ms<99>),
                       plot("within SLO", "% of requests",
                            [&](const FleetResult& r) { return percent(within_slo(r)); }),
                       plot("cost of a million tokens", "USD", usd_per_million)});
}

struct Sweep {
    SweepKeys keys;
    std::vector<SweepAxis> axes;
    std::vector<FleetOrderReader::Values> combinations;
    FleetConfig base;  // without the values
    std::vector<FleetConfig> configs;
    std::vector<Run> runs;  // that are finished
};

std::span<const FleetConfig> finished(const Sweep& sweep) {
    return std::span(sweep.configs).first(sweep.runs.size());
}

std::string values_text(const FleetOrderReader::Values& values) {
    std::string text;
    for (const auto& [key, value] : values)
        text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
    return text;
}

std::string json(const Sweep& sweep) {
    Json rows = Json::array();
    for (const Run& run : sweep.runs) {
        Json values = Json::object(), row = Json::object();
        for (const auto& [key, value] : run.values)
            values.set(key, value);
        row.set("values", std::move(values));
        for (const Column& column : kColumns)
            row.set(column.name, figure_json(column.value(run.result)));
        row.set("hash", fmt::format("{:016x}", run.result.hash));
        row.set("changes", changes_json(run.result.config));
        rows.push_back(std::move(row));
    }
    return Json::object({{"preset", sweep.base.preset},
                         {"seed", static_cast<std::int64_t>(sweep.base.seed)},
                         {"runs", static_cast<std::int64_t>(sweep.configs.size())},
                         {"finished", static_cast<std::int64_t>(sweep.runs.size())},
                         {"changes", changes_json(sweep.base)},
                         {"rows", std::move(rows)},
                         {"assumptions", row_assumptions_json(finished(sweep))}})
               .dump() +
           "\n";
}

// Behind the table: of all rows, and which of them have engines of other sizes.
std::string notes(const Sweep& sweep) {
    std::string text = "\n" + changes_text(sweep.base);
    for (const Run& run : sweep.runs) {
        if (run.result.config.derived.empty()) continue;
        text += fmt::format(
            "  {}: costs and memory of {} derived from [hardware] for engines of "
            "{} and groups of {} cards\n",
            values_text(run.values), fmt::join(run.result.config.derived, " and "),
            run.result.config.prefill.ranks, run.result.config.decode.ranks);
    }
    std::vector<std::string> names;
    for (const Run& run : sweep.runs)
        names.push_back(values_text(run.values));
    return text + "\n" + row_assumptions_text(finished(sweep), names);
}

Status write_files(const Sweep& sweep) {
    std::string rows = header(sweep.axes);
    for (const Run& run : sweep.runs)
        rows += row(run.values, run.result);
    const SweepKeys& keys = sweep.keys;
    if (!keys.csv.empty()) FATHOM_RETURN_IF_ERROR(write_output_file(keys.csv, rows));
    if (!keys.svg.empty())
        FATHOM_RETURN_IF_ERROR(write_output_file(keys.svg, plots(sweep.axes, sweep.runs)));
    return print_result(keys.json ? json(sweep) : notes(sweep));
}

// All combinations are checked before the first takes its time.
Result<Sweep> read_sweep(const std::vector<std::string>& args, const FleetOrderReader& orders,
                         const FleetOrder& first) {
    Sweep sweep;
    sweep.keys = first.keys.sweep;
    sweep.base = first.config;
    FATHOM_ASSIGN(sweep.axes, read_axes(sweep.keys, orders));
    sweep.combinations = combinations(sweep.axes);
    for (const FleetOrderReader::Values& values : sweep.combinations) {
        FATHOM_ASSIGN(FleetOrder order, orders.read(args, values));
        FATHOM_RETURN_IF_ERROR(check_sim_outputs({sweep.keys.csv, sweep.keys.svg}, order.inputs));
        sweep.configs.push_back(std::move(order.config));
    }
    return sweep;
}

Status run_rows(Sweep& sweep) {
    const Interrupts interrupts;
    if (!sweep.keys.json) FATHOM_RETURN_IF_ERROR(print_result(table_header(sweep.axes)));
    for (std::size_t i = 0; i < sweep.configs.size(); ++i) {
        FATHOM_ASSIGN(FleetResult result, simulate_fleet(sweep.configs[i], interrupts));
        if (!result.violations.empty())
            return error(StatusCode::internal, "{}", result.violations.front());
        if (!sweep.keys.json)
            FATHOM_RETURN_IF_ERROR(print_result(table_row(sweep.combinations[i], result)));
        result.series.clear();
        sweep.runs.push_back({sweep.combinations[i], std::move(result)});
    }
    return {};
}

Status run_sweep(Sweep& sweep) {
    const Status ran = run_rows(sweep);
    // However it ended: what is finished took its time.
    const Status written = sweep.runs.empty() ? Status() : write_files(sweep);
    return ran.ok() ? written : ran;
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
    const FleetOrderReader orders = reader();
    const auto first = orders.read(args);
    if (!first.ok()) return refuse_sim_command("sweep", first.status());
    if (!first->help.empty()) return end_sim_command("sweep", print_result(first->help));
    auto sweep = read_sweep(args, orders, *first);
    if (!sweep.ok()) return refuse_sim_command("sweep", sweep.status());
    return end_sim_command("sweep", run_sweep(*sweep));
}

}  // namespace fathom
