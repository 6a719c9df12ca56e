// The report of a simulated fleet as one HTML file.
#include <fmt/core.h>

#include "cli/sim/figures.h"
#include "cli/sim/fleet_report.h"
#include "cli/svg.h"

namespace fathom {
namespace {

constexpr const char* kStyle =
    "body{font-family:sans-serif;max-width:900px;margin:24px auto;padding:0 12px;color:#222}"
    "table{border-collapse:collapse;margin:12px 0}td,th{padding:3px 10px;border-bottom:1px solid "
    "#ddd;text-align:left;vertical-align:top}td.n{text-align:right}svg{max-width:100%;height:auto}"
    ".measured{color:#00704a;font-weight:bold}.assumed{color:#a04000}";

SvgBarPlot percentiles(const FleetResult& result, const char* title, bool is_ttft) {
    SvgBarPlot plot;
    plot.title = title;
    plot.parts = {"p50", "p50 to p90", "p90 to p99"};
    plot.unit = is_ttft ? " s" : " ms";
    const double scale = is_ttft ? 1e-3 : 1;
    const auto add = [&](const std::string& name, const RequestFigures& figures) {
        const LogHistogram& histogram = is_ttft ? figures.ttft_ms : figures.tpot_ms;
        if (histogram.count() == 0) return;
        const double p50 = histogram.percentile(0.5) * scale;
        const double p90 = histogram.percentile(0.9) * scale;
        const double p99 = histogram.percentile(0.99) * scale;
        plot.bars.push_back({.name = name,
                             .note = fmt::format("p99 {:.3g}{}", p99, plot.unit),
                             .parts = {p50, p90 - p50, p99 - p90}});
    };
    constexpr const char* kClasses[] = {"< 16 K", "16-64 K", "64-256 K", ">= 256 K"};
    for (std::size_t i = 0; i < kPrefillClasses; ++i)
        add(kClasses[i], result.by_class[i]);
    for (std::size_t i = 0; i < kTrafficKinds; ++i)
        add(std::string(traffic_name(static_cast<Traffic>(i))), result.by_traffic[i]);
    add("all", result.all);
    return plot;
}

SvgBarPlot ledger(const FleetResult& result) {
    SvgBarPlot plot;
    plot.title = "Where the time of the cards went";
    plot.unit = " %";
    plot.x_max = 100;
    const auto add = [&](const std::string& name, const CardLedger& side) {
        SvgBar bar{.name = name, .note = "", .parts = {}};
        for (std::size_t i = 0; i < result.card_times(); ++i)
            bar.parts.push_back(100 * side.share(static_cast<CardTime>(i)));
        plot.bars.push_back(std::move(bar));
    };
    for (std::size_t i = 0; i < result.card_times(); ++i)
        plot.parts.emplace_back(card_time_name(static_cast<CardTime>(i)));
    add("prefill", result.prefill);
    add("decode", result.decode);
    CardLedger both = result.prefill;
    both.add(result.decode);
    add("both", both);
    return plot;
}

struct SeriesLine {
    const char* name;
    Figure (*value)(const FleetSample& sample);
};

std::string series_plot(const FleetResult& result, const char* title, const char* y_label,
                        const std::vector<SeriesLine>& lines, double y_max) {
    SvgLinePlot plot;
    plot.title = title;
    plot.x_label = "simulated seconds";
    plot.y_label = y_label;
    plot.y_max = y_max;
    plot.marked_x = result.config.warmup_s;
    plot.mark = "counted from here";
    for (const FleetSample& sample : result.series)
        plot.xs.push_back(sample.at_s);
    for (const auto& [name, value] : lines) {
        SvgLine line{.name = name, .ys = {}};
        for (const FleetSample& sample : result.series)
            line.ys.push_back(figure_y(value(sample)));
        plot.lines.push_back(std::move(line));
    }
    return svg_line_plot(plot);
}

std::string counts_plot(const FleetResult& result) {
    SvgLinePlot plot;
    plot.title = "Requests";
    plot.x_label = "simulated seconds";
    plot.y_label = "requests";
    plot.marked_x = result.config.warmup_s;
    SvgLine waiting{.name = "waiting", .ys = {}}, decoding{.name = "decoding", .ys = {}};
    for (const FleetSample& sample : result.series) {
        plot.xs.push_back(sample.at_s);
        waiting.ys.push_back(static_cast<double>(sample.waiting));
        decoding.ys.push_back(static_cast<double>(sample.decoding));
    }
    plot.lines = {std::move(waiting), std::move(decoding)};
    return svg_line_plot(plot);
}

std::string ledger_rows(const FleetResult& result) {
    std::string out = "<table><tr><th>card-time, %</th><th>prefill</th><th>decode</th></tr>\n";
    double prefill = 0, decode = 0;
    for (std::size_t i = 0; i < result.card_times(); ++i) {
        const auto kind = static_cast<CardTime>(i);
        const double p = 100 * result.prefill.share(kind), d = 100 * result.decode.share(kind);
        prefill += p;
        decode += d;
        out += fmt::format(
            "<tr><td>{}</td><td class=\"n\">{:.2f}</td><td class=\"n\">{:.2f}</td>"
            "</tr>\n",
            svg_escaped(card_time_name(kind)), p, d);
    }
    return out + fmt::format(
                     "<tr><th>sum</th><td class=\"n\">{:.2f}</td><td class=\"n\">{:.2f}"
                     "</td></tr></table>\n",
                     prefill, decode);
}

std::string expert_part(const FleetResult& result) {
    const std::vector<ExpertReportRow> rows = expert_rows(result);
    if (rows.empty()) return "";
    std::string out =
        "<h2>Experts</h2>\n<table><tr><th></th><th>prefill</th><th>decode</th></tr>\n";
    for (const ExpertReportRow& row : rows)
        out += fmt::format("<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
                           svg_escaped(row.name), row.prefill, row.decode);
    SvgLinePlot plot;
    plot.title = "moe_lb as it came about, behind the warm-up";
    plot.x_label = "simulated seconds";
    plot.y_label = "slowest expert rank over the mean, less 1, %";
    SvgLine prefill{.name = "prefill", .ys = {}}, decode{.name = "decode", .ys = {}};
    // The first plan ends an imbalance beside which nothing later would be seen.
    for (const FleetSample& sample : result.series) {
        if (sample.at_s < result.config.warmup_s) continue;
        plot.xs.push_back(sample.at_s);
        prefill.ys.push_back(100 * (sample.moe_balance[0] - 1));
        decode.ys.push_back(100 * (sample.moe_balance[1] - 1));
    }
    plot.lines = {std::move(prefill), std::move(decode)};
    return out + "</table>\n" + (plot.xs.empty() ? "" : svg_line_plot(plot));
}

std::string draft_part(const FleetResult& result) {
    const std::vector<ReportLine> lines = draft_lines(result);
    if (lines.empty()) return "";
    std::string out = "<h2>Drafts</h2>\n<table>\n";
    for (const ReportLine& line : lines)
        out += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", svg_escaped(line.name),
                           svg_escaped(line.value));
    using Sample = const FleetSample&;
    return out + "</table>\n" +
           series_plot(
               result, "Rows and accepted tokens of a sequence and step", "",
               {{"rows", [](Sample s) { return figure_if(s.draft_rows > 0, s.draft_rows); }},
                {"accepted", [](Sample s) { return figure_if(s.draft_rows > 0, s.draft_tokens); }}},
               0);
}

std::string changes_table(const FleetConfig& config) {
    std::string out = fmt::format("<h2>Changed against {}</h2>\n", svg_escaped(config.preset));
    if (config.changes.empty()) return out + "<p>Nothing.</p>\n";
    out += "<table><tr><th>key</th><th>value</th><th>preset</th><th>source</th></tr>\n";
    for (const FleetChange& change : config.changes)
        out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                           svg_escaped(change.key), svg_escaped(change.value),
                           svg_escaped(change.usual), svg_escaped(change.source));
    return out + "</table>\n";
}

}  // namespace

std::string fleet_html(const FleetResult& result) {
    const std::string title = "Simulated fleet: " + svg_escaped(result.config.preset);
    std::string out = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
        "<style>{1}</style></head><body>\n<h1>{0}</h1>\n<table>\n",
        title, kStyle);
    for (const ReportLine& line : fleet_headline(result))
        out += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", svg_escaped(line.name),
                           svg_escaped(line.value));
    out += fmt::format("</table>\n<p>{}</p>\n", svg_escaped(kBoundMeaning));
    for (const std::string& violation : result.violations)
        out += fmt::format("<p><b>Violated:</b> {}</p>\n", svg_escaped(violation));
    out += svg_bar_plot(ledger(result)) + ledger_rows(result);
    if (is_noise_negative(result)) out += fmt::format("<p>{}</p>\n", svg_escaped(kNoiseMeaning));
    out += svg_bar_plot(percentiles(result, "Time to first token", true));
    out += svg_bar_plot(percentiles(result, "Time of an output token", false));
    using Sample = const FleetSample&;
    out += series_plot(result, "Cards that are in a step", "%",
                       {{"prefill", [](Sample s) { return Figure(100 * s.prefill_use); }},
                        {"decode", [](Sample s) { return Figure(100 * s.decode_use); }}},
                       100);
    out += series_plot(
        result, "Time to first token over the run", "ms",
        {{"p50", [](Sample s) { return figure_if(s.first_tokens > 0, s.ttft_p50_ms); }},
         {"p99", [](Sample s) { return figure_if(s.first_tokens > 0, s.ttft_p99_ms); }}},
        0);
    out += series_plot(
        result, "Input tokens found in the pool", "%",
        {{"hits", [](Sample s) { return figure_if(s.input_tokens > 0, 100 * s.hit_share); }}}, 100);
    // Answers are a twentieth of prompts: not on one axis.
    out += series_plot(result, "Input tokens", "thousand tokens/s",
                       {{"input", [](Sample s) { return Figure(s.tokens_in_s / 1000); }}}, 0);
    out += series_plot(result, "Output tokens", "thousand tokens/s",
                       {{"output", [](Sample s) { return Figure(s.tokens_out_s / 1000); }}}, 0);
    out += counts_plot(result);
    out += expert_part(result);
    out += draft_part(result);
    out += changes_table(result.config);
    out += "<h2>What these figures rest on</h2>\n<table>\n";
    for (const Assumption& a : fleet_assumptions(result.config))
        out +=
            fmt::format("<tr><td class=\"{0}\">{0}</td><td>{1}</td><td>{2}</td><td>{3}</td></tr>\n",
                        a.is_measured ? "measured" : "assumed", svg_escaped(a.what),
                        svg_escaped(a.value), svg_escaped(a.source));
    out += fmt::format("</table>\n<p>Seed {}, {} events, hash {:016x}.</p>\n</body></html>\n",
                       result.config.seed, result.totals.events, result.hash);
    return out;
}

}  // namespace fathom
