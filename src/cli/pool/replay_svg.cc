// The plot of `fathom pool replay`. One panel a trace, below each other; x is logarithmic.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "cli/pool/replay_plan.h"
#include "cli/pool/replay_report.h"
#include "cli/svg.h"
#include "model/memory_plan.h"

namespace fathom {
namespace {

constexpr double kWidth = 880, kPanelHeight = 400;
constexpr double kLeft = 64, kRight = 250, kTop = 44, kBottom = 56;
constexpr const char* kDashes[] = {"", "7 4", "2 3"};

struct Line {
    std::string name;
    std::vector<std::pair<double, double>> points;  // x, share
    bool is_level = false;                          // holds for every x
};

struct Panel {
    bool by_capacity = false;
    std::vector<Line> lines;
    std::set<double> xs;
    double x_low = 1, x_high = 10, y_low = 0, y_high = 1;
};

std::string line_name(const CachePolicy& policy, bool by_capacity, bool has_pages) {
    std::string name(expiry_name(policy.expiry));
    if (policy.expiry == Expiry::renew) name += fmt::format(" at {:g}", policy.renew_share);
    if (by_capacity && policy.expiry != Expiry::unlimited)
        name += " " + duration_text(policy.ttl_us);
    if (policy.eviction != Eviction::none) {
        name += fmt::format(", {}", eviction_name(policy.eviction));
        if (!by_capacity) name += " " + bytes_text(policy.capacity_bytes);
    }
    if (has_pages) name += fmt::format(", page {}", policy.page_tokens);
    return name;
}

Panel make_panel(const ReplayResult& result) {
    Panel panel;
    std::set<std::int64_t> capacities, pages;
    for (const ReplayRow& row : result.rows) {
        if (row.policy.eviction != Eviction::none) capacities.insert(row.policy.capacity_bytes);
        pages.insert(row.policy.page_tokens);
    }
    panel.by_capacity = capacities.size() > 1;
    std::map<std::string, std::size_t> known;
    double low = 1;
    for (const ReplayRow& row : result.rows) {
        const CachePolicy& policy = row.policy;
        const std::string name = line_name(policy, panel.by_capacity, pages.size() > 1);
        const auto [at, is_new] = known.try_emplace(name, panel.lines.size());
        if (is_new) panel.lines.push_back({name, {}, false});
        Line& line = panel.lines[at->second];
        line.is_level = panel.by_capacity ? policy.eviction == Eviction::none
                                          : policy.expiry == Expiry::unlimited;
        const double x =
            static_cast<double>(panel.by_capacity ? policy.capacity_bytes : policy.ttl_us);
        line.points.emplace_back(x, row.counts.hit_share());
        low = std::min(low, row.counts.hit_share());
        if (!line.is_level && x > 0) panel.xs.insert(x);
    }
    for (Line& line : panel.lines)
        std::sort(line.points.begin(), line.points.end());
    // The rates of a good trace lie close together: the axis begins below the lowest.
    panel.y_low = low > 0.5 ? std::floor(low * 10) / 10 : 0;
    if (panel.y_low >= 1) panel.y_low = 0.9;
    if (!panel.xs.empty()) {
        panel.x_low = *panel.xs.begin();
        panel.x_high = std::max(*panel.xs.rbegin(), panel.x_low * 1.01);
    }
    return panel;
}

class PanelPlot {
  public:
    PanelPlot(const Panel& panel, double top) : panel_(panel), top_(top) {}

    std::string draw(const std::string& title) const {
        std::string out = fmt::format("<text x=\"{}\" y=\"{}\" class=\"title\">{}</text>\n", kLeft,
                                      top_ + 24, svg_escaped(title));
        draw_axes(out);
        for (std::size_t i = 0; i < panel_.lines.size(); ++i)
            draw_line(out, panel_.lines[i], i);
        return out;
    }

  private:
    double x_of(double value) const {
        const double share =
            std::log(value / panel_.x_low) / std::log(panel_.x_high / panel_.x_low);
        return kLeft + share * (kWidth - kLeft - kRight);
    }
    double y_of(double share) const {
        const double height = kPanelHeight - kTop - kBottom;
        return top_ + kTop + (panel_.y_high - share) / (panel_.y_high - panel_.y_low) * height;
    }

    void draw_axes(std::string& out) const {
        const double right = kWidth - kRight, bottom = y_of(panel_.y_low);
        const double step = panel_.y_high - panel_.y_low > 0.5 ? 0.2 : 0.1;
        const int steps = static_cast<int>(std::lround((panel_.y_high - panel_.y_low) / step));
        for (int i = 0; i <= steps; ++i) {
            const double share = panel_.y_low + step * i, y = y_of(share);
            out += fmt::format(
                "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" class=\"grid\"/>\n"
                "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.0f} %</text>\n",
                kLeft, right, y, kLeft - 8, y + 4, share * 100);
        }
        for (const double value : panel_.xs) {
            const auto whole = static_cast<std::int64_t>(value);
            out += fmt::format(
                "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" "
                "class=\"grid\"/>\n<text x=\"{0:.1f}\" y=\"{3:.1f}\" "
                "text-anchor=\"middle\">{4}</text>\n",
                x_of(value), y_of(panel_.y_high), bottom, bottom + 18,
                panel_.by_capacity ? bytes_text(whole) : duration_text(whole));
        }
        out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                           (kLeft + right) / 2, bottom + 40,
                           panel_.by_capacity ? "capacity" : "time to live");
    }

    void draw_line(std::string& out, const Line& line, std::size_t index) const {
        const char* const colour = svg_colour(index);
        const char* const dash = kDashes[index / kSvgColours % std::size(kDashes)];
        const double right = kWidth - kRight;
        std::string points, dots;
        if (line.is_level) {
            const double y = y_of(line.points.front().second);
            points = fmt::format("{},{:.1f} {},{:.1f}", kLeft, y, right, y);
        } else {
            for (const auto& [value, share] : line.points) {
                points += fmt::format("{:.1f},{:.1f} ", x_of(value), y_of(share));
                dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                                    x_of(value), y_of(share), colour);
            }
        }
        out += fmt::format(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" "
            "stroke-dasharray=\"{}\"/>\n{}",
            points, colour, dash, dots);
        const double y = top_ + kTop + 10 + 18 * static_cast<double>(index);
        out += fmt::format(
            "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
            "stroke-width=\"2\" stroke-dasharray=\"{}\"/>\n"
            "<text x=\"{}\" y=\"{:.1f}\">{}</text>\n",
            right + 14, right + 38, y, y, colour, dash, right + 44, y + 4, svg_escaped(line.name));
    }

    const Panel& panel_;
    double top_;
};

}  // namespace

std::string replay_svg(const std::vector<TraceReport>& reports) {
    std::string body;
    double top = 0;
    for (const TraceReport& report : reports) {
        const Panel panel = make_panel(report.result);
        const std::size_t slash = report.trace.find_last_of('/');
        const std::string name = report.trace.substr(slash == std::string::npos ? 0 : slash + 1);
        body += PanelPlot(panel, top).draw("Share of input tokens found: " + name);
        const double legend = kTop + 18 * static_cast<double>(panel.lines.size()) + 20;
        top += std::max(kPanelHeight, legend);
    }
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<style>.grid{{stroke:#ddd}}.title{{font-size:15px}}text{{fill:#222}}</style>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}</svg>\n",
        kWidth, top, body);
}

}  // namespace fathom
