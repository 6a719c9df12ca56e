// The page of a bench run: tables and SVG made here, no script, no other file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "cli/bench/report.h"
#include "cli/svg.h"

namespace fathom {
namespace {

constexpr double kWidth = 560, kHeight = 360;
constexpr double kLeft = 64, kRight = 20, kTop = 16, kBottom = 48;

constexpr const char* kStyle =
    "body{font:14px/1.5 system-ui,sans-serif;color:#1c2430;background:#fff;margin:32px auto;"
    "max-width:1240px;padding:0 24px}h1{font-size:22px;margin:0 0 "
    "4px}h2{font-size:16px;margin:32px "
    "0 8px}p{margin:4px 0;color:#566}.plots{display:flex;flex-wrap:wrap;gap:24px}figure{margin:0}"
    "figcaption{font-weight:600;margin:0 0 4px}svg text{font:12px system-ui,sans-serif;fill:#566}"
    "svg "
    ".label{fill:#1c2430;paint-order:stroke;stroke:#fff;stroke-width:3px}table{border-collapse:"
    "collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:4px 10px;text-align:right;border-bottom:1px solid #e4e8ee}th{color:#566;"
    "font-weight:600;border-bottom:2px solid #ccd3dc}.scroll{overflow-x:auto}.key{display:flex;"
    "flex-wrap:wrap;gap:16px;margin:8px 0}.key i{display:inline-block;width:12px;height:12px;"
    "border-radius:6px;margin-right:6px;vertical-align:-1px}";

std::string short_number(double value) {
    if (value >= 10'000) return fmt::format("{:.0f}k", value / 1000);
    if (value >= 1000) return fmt::format("{:.1f}k", value / 1000);
    if (value >= 100) return fmt::format("{:.0f}", value);
    return fmt::format("{:.3g}", value);
}

// A scale from values to pixels. Logarithmic where values span more than a factor of 20.
class Axis {
  public:
    Axis(double low, double high, double from, double to) : from_(from), to_(to) {
        is_log_ = low > 0 && high / low > 20;
        if (is_log_) {
            low_ = round_number(low, false);
            high_ = round_number(high, true);
            return;
        }
        step_ = round_number(std::max(high, 1e-9) / 5, true);
        high_ = std::ceil(std::max(high, 1e-9) / step_ + 0.2) * step_;
    }
    double at(double value) const {
        const double share = is_log_ ? std::log(value / low_) / std::log(high_ / low_)
                                     : (value - low_) / (high_ - low_);
        return from_ + share * (to_ - from_);
    }
    std::vector<double> ticks() const {
        std::vector<double> list;
        if (!is_log_) {
            for (int i = 0; i * step_ <= high_ * (1 + kSlack); ++i)
                list.push_back(i * step_);
            return list;
        }
        const bool few = high_ / low_ < 1001;
        const double first = std::pow(10, std::floor(std::log10(low_) + kSlack));
        for (double decade = first; decade <= high_ * (1 + kSlack); decade *= 10) {
            for (const double factor : {1.0, 2.0, 5.0}) {
                const double tick = decade * factor;
                if ((few || factor == 1) && tick >= low_ * (1 - kSlack) &&
                    tick <= high_ * (1 + kSlack))
                    list.push_back(tick);
            }
        }
        return list;
    }

  private:
    static constexpr double kSlack = 1e-6;

    // The next of 1, 2 and 5 times a power of ten, at or above the value or at or below it.
    static double round_number(double value, bool up) {
        const double decade = std::pow(10, std::floor(std::log10(value)));
        double below = decade;
        for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
            const double number = factor * decade;
            if (number >= value * (1 - kSlack)) return up || number <= value ? number : below;
            below = number;
        }
        return below;
    }

    double from_, to_;
    bool is_log_ = false;
    double low_ = 0, high_ = 1, step_ = 1;
};

struct Spot {
    double x = 0, y = 0;
    std::string label, hint;
};
struct Series {
    std::string name;
    std::vector<Spot> spots;
};

using Measure = std::function<double(const LoadSummary&)>;

// One series for each pair of lengths, one spot for each concurrency.
std::vector<Series> series_of(const BenchReport& report, const Measure& x) {
    std::vector<Series> all;
    for (const BenchPoint& point : report.points) {
        if (point.summary.completed == 0 || x(point.summary) <= 0) continue;
        const std::string name =
            point.input_len > 0 ? fmt::format("{} in, {} out", point.input_len, point.output_len)
                                : report.dataset;
        auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Series& series) { return series.name == name; });
        if (found == all.end()) found = all.insert(all.end(), Series{name, {}});
        const double rate = point.summary.output_throughput;
        found->spots.push_back({x(point.summary), rate, fmt::format("{}", point.concurrency),
                                fmt::format("{}, concurrency {}: {:.2f} tokens/s at {:.2f} ms",
                                            name, point.concurrency, rate, x(point.summary))});
    }
    return all;
}

// The spots that no other of the series beats in both directions, by ascending x.
std::vector<Spot> front_of(std::vector<Spot> spots) {
    std::stable_sort(spots.begin(), spots.end(),
                     [](const Spot& a, const Spot& b) { return a.x < b.x; });
    std::vector<Spot> front;
    for (const Spot& spot : spots)
        if (front.empty() || spot.y > front.back().y) front.push_back(spot);
    return front;
}

std::string frame(const Axis& x, const Axis& y, const char* x_name) {
    std::string svg;
    for (const double tick : y.ticks())
        svg += fmt::format(
            "<line x1='{0}' x2='{1}' y1='{2:.1f}' y2='{2:.1f}' stroke='#e4e8ee'/><text x='{3}' "
            "y='{4:.1f}' text-anchor='end'>{5}</text>",
            kLeft, kWidth - kRight, y.at(tick), kLeft - 8, y.at(tick) + 4, short_number(tick));
    for (const double tick : x.ticks())
        svg += fmt::format(
            "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' stroke='#eef1f5'/><text x='{0:.1f}' "
            "y='{3}' text-anchor='middle'>{4}</text>",
            x.at(tick), kTop, kHeight - kBottom, kHeight - kBottom + 18, short_number(tick));
    svg += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>",
                       (kLeft + kWidth - kRight) / 2, kHeight - 8, x_name);
    svg += fmt::format(
        "<text transform='translate(14 {}) rotate(-90)' text-anchor='middle'>output "
        "tokens/s</text>",
        (kTop + kHeight - kBottom) / 2);
    return svg;
}

std::string plot(const BenchReport& report, const char* caption, const char* x_name,
                 const Measure& measure) {
    const std::vector<Series> all = series_of(report, measure);
    if (all.empty()) return {};
    double x_low = std::numeric_limits<double>::max(), x_high = 0;
    double y_low = std::numeric_limits<double>::max(), y_high = 0;
    for (const Series& series : all) {
        for (const Spot& spot : series.spots) {
            x_low = std::min(x_low, spot.x);
            x_high = std::max(x_high, spot.x);
            y_low = std::min(y_low, spot.y);
            y_high = std::max(y_high, spot.y);
        }
    }
    const Axis x(x_low, x_high, kLeft, kWidth - kRight);
    const Axis y(y_low, y_high, kHeight - kBottom, kTop);
    std::string svg = frame(x, y, x_name);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const char* colour = svg_colour(i);
        std::string points;
        for (const Spot& spot : front_of(all[i].spots))
            points += fmt::format("{:.1f},{:.1f} ", x.at(spot.x), y.at(spot.y));
        svg += fmt::format(
            "<polyline points='{}' fill='none' stroke='{}' stroke-width='2' opacity='.55'/>",
            points, colour);
        for (const Spot& spot : all[i].spots)
            svg += fmt::format(
                "<circle cx='{0:.1f}' cy='{1:.1f}' r='4.5' fill='{2}'><title>{3}</title></circle>"
                "<text class='label' x='{4:.1f}' y='{5:.1f}'>{6}</text>",
                x.at(spot.x), y.at(spot.y), colour, svg_escaped(spot.hint), x.at(spot.x) + 7,
                y.at(spot.y) - 6, svg_escaped(spot.label));
    }
    return fmt::format(
        "<figure><figcaption>{}</figcaption><svg width='{}' height='{}' viewBox='0 0 {} {}' "
        "role='img'>{}</svg></figure>",
        caption, kWidth, kHeight, kWidth, kHeight, svg);
}

std::string key(const BenchReport& report) {
    const std::vector<Series> all =
        series_of(report, [](const LoadSummary& s) { return s.e2el_ms.mean; });
    std::string html = "<div class=key>";
    for (std::size_t i = 0; i < all.size(); ++i)
        html += fmt::format("<span><i style='background:{}'></i>{}</span>", svg_colour(i),
                            svg_escaped(all[i].name));
    return html + "<span>numbers: concurrency; line: Pareto front</span></div>";
}

std::string row(std::initializer_list<std::string> cells, const char* tag = "td") {
    std::string html = "<tr>";
    for (const std::string& cell : cells)
        html += fmt::format("<{0}>{1}</{0}>", tag, cell);
    return html + "</tr>";
}

std::string points_table(const BenchReport& report) {
    std::string html = "<div class=scroll><table>";
    html += row(
        {"concurrency", "in",        "out",     "done",    "failed", "req/s",     "output tok/s",
         "total tok/s", "TTFT mean", "p50",     "p90",     "p99",    "TPOT mean", "p50",
         "p90",         "p99",       "ITL p99", "E2E p50", "p99",    "goodput"},
        "th");
    const auto number = [](double value) { return fmt::format("{:.2f}", value); };
    for (const BenchPoint& point : report.points) {
        const LoadSummary& s = point.summary;
        html += row({fmt::format("{}", point.concurrency),
                     fmt::format("{}", point.input_len),
                     fmt::format("{}", point.output_len),
                     fmt::format("{}", s.completed),
                     fmt::format("{}", s.failed),
                     fmt::format("{:.3f}", s.request_throughput),
                     number(s.output_throughput),
                     number(s.total_throughput),
                     number(s.ttft_ms.mean),
                     number(s.ttft_ms.median),
                     number(s.ttft_ms.p90),
                     number(s.ttft_ms.p99),
                     number(s.tpot_ms.mean),
                     number(s.tpot_ms.median),
                     number(s.tpot_ms.p90),
                     number(s.tpot_ms.p99),
                     number(s.itl_ms.p99),
                     number(s.e2el_ms.median),
                     number(s.e2el_ms.p99),
                     s.goodput ? fmt::format("{:.3f}", *s.goodput) : "–"});
    }
    return html + "</table></div><p>Times in milliseconds, throughput and goodput a second.</p>";
}

std::string mixed_section(const MixedResult& mixed) {
    std::string html = fmt::format("<h2>Short requests beside a prompt of {} tokens</h2><table>",
                                   mixed.long_prompt_tokens);
    html += row({"", "done", "TTFT mean", "p50", "p99", "TPOT p50", "p99"}, "th");
    for (const auto& [name, s] :
         {std::pair{"alone", &mixed.alone}, std::pair{"beside the long prompt", &mixed.beside}})
        html +=
            row({name, fmt::format("{}", s->completed), fmt::format("{:.1f}", s->ttft_ms.mean),
                 fmt::format("{:.1f}", s->ttft_ms.median), fmt::format("{:.1f}", s->ttft_ms.p99),
                 fmt::format("{:.2f}", s->tpot_ms.median), fmt::format("{:.2f}", s->tpot_ms.p99)});
    return html + fmt::format("</table><p>p99 TTFT ratio {:.2f}</p>", mixed.ttft_p99_ratio());
}

}  // namespace

std::string report_html(const BenchReport& report) {
    std::string html = fmt::format(
        "<!doctype html><html lang=en><meta charset=utf-8><title>{0}: fathom bench</title>"
        "<style>{1}</style><h1>{0}</h1><p>{2} · {3} · {4}</p>",
        svg_escaped(report.model_id), kStyle, svg_escaped(report.target),
        svg_escaped(report.dataset), svg_escaped(report.date));
    if (report.machine) {
        const BenchMachine& m = *report.machine;
        html += fmt::format(
            "<p>{}, {}, {} threads; measured beside the run: reads {:.1f} GB/s, {} peak {:.0f} "
            "GFLOP/s. A token decoded alone reads {:.2f} GB of weights.</p>",
            svg_escaped(m.cpu), svg_escaped(m.isa), m.threads, m.read_bytes_per_s / 1e9,
            m.peak_name, m.peak_flops / 1e9, static_cast<double>(m.active_weight_bytes) / 1e9);
    }
    if (!report.points.empty()) {
        html += "<h2>Throughput against latency</h2>" + key(report) + "<div class=plots>";
        html += plot(report, "TTFT, median", "TTFT p50, ms",
                     [](const LoadSummary& s) { return s.ttft_ms.median; });
        html += plot(report, "TTFT, 99th percentile", "TTFT p99, ms",
                     [](const LoadSummary& s) { return s.ttft_ms.p99; });
        html += plot(report, "TPOT, median", "TPOT p50, ms",
                     [](const LoadSummary& s) { return s.tpot_ms.median; });
        html += plot(report, "TPOT, 99th percentile", "TPOT p99, ms",
                     [](const LoadSummary& s) { return s.tpot_ms.p99; });
        html += "</div><h2>All figures</h2>" + points_table(report);
    }
    if (report.mixed) html += mixed_section(*report.mixed);
    return html + "</html>\n";
}

}  // namespace fathom
