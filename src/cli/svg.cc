#include "cli/svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

constexpr double kWidth = 860, kHeight = 300;
constexpr double kLeft = 70, kRight = 150, kTop = 38, kBottom = 48;
constexpr const char* kColours[kSvgColours] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                               "#56b4e9", "#e69f00", "#444444", "#999933",
                                               "#882255", "#117733", "#bbbbbb"};
constexpr int kTicks = 5;

// The next number of 1, 2, 2.5, 5 times a power of ten: what an axis can end at.
double rounded_up(double value) {
    if (!(value > 0)) return 1;
    const double power = std::pow(10, std::floor(std::log10(value)));
    for (const double step : {1.0, 2.0, 2.5, 5.0, 10.0})
        if (value <= step * power * (1 + 1e-9)) return step * power;
    return 10 * power;
}

std::string begin(const std::string& title, double height) {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
        "<text x=\"{2}\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{3}</text>\n",
        kWidth, height, kLeft, svg_escaped(title));
}

std::string legend_row(double x, double y, std::size_t index, const std::string& name) {
    return fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        x, y - 10, svg_colour(index), x + 17, y, svg_escaped(name));
}

}  // namespace

std::string svg_escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '&':
                out += "&amp;";
                break;
            case '"':
                out += "&quot;";
                break;
            default:
                out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
        }
    }
    return out;
}

const char* svg_colour(std::size_t index) {
    return kColours[index % kSvgColours];
}

std::string svg_line_plot(const SvgLinePlot& plot) {
    std::string out = begin(plot.title, kHeight);
    if (plot.xs.empty()) return out + "</svg>\n";
    double y_max = plot.y_max;
    if (y_max <= 0) {
        for (const SvgLine& line : plot.lines)
            for (const double y : line.ys)
                y_max = std::max(y_max, y);
        y_max = rounded_up(y_max);
    }
    const double x_low = plot.xs.front(), x_high = std::max(plot.xs.back(), x_low + 1e-9);
    const double right = kWidth - kRight, bottom = kHeight - kBottom;
    const auto x_of = [&](double x) {
        return kLeft + (x - x_low) / (x_high - x_low) * (right - kLeft);
    };
    const auto y_of = [&](double y) {
        return bottom - std::clamp(y / y_max, 0.0, 1.0) * (bottom - kTop);
    };
    for (int i = 0; i <= kTicks; ++i) {
        const double y = y_max * i / kTicks;
        out += fmt::format(
            "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>"
            "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.4g}</text>\n",
            kLeft, right, y_of(y), kLeft - 8, y_of(y) + 4, y);
    }
    const double x_step = rounded_up((x_high - x_low) / kTicks);
    for (double x = std::ceil(x_low / x_step) * x_step; x <= x_high; x += x_step)
        out += fmt::format(
            "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#ddd\"/>"
            "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:.6g}</text>\n",
            x_of(x), bottom, bottom + 5, bottom + 18, x);
    out += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>"
        "<text x=\"14\" y=\"{:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {:.1f})\">{}"
        "</text>\n",
        (kLeft + right) / 2, bottom + 38, svg_escaped(plot.x_label), (kTop + bottom) / 2,
        (kTop + bottom) / 2, svg_escaped(plot.y_label));
    if (plot.marked_x >= x_low && plot.marked_x <= x_high) {
        // On the side that has room.
        const double x = x_of(plot.marked_x);
        const bool is_left = x > (kLeft + right) / 2;
        out += fmt::format(
            "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#888\" "
            "stroke-dasharray=\"4 3\"/><text x=\"{3:.1f}\" y=\"{4}\" fill=\"#666\" "
            "text-anchor=\"{5}\">{6}</text>\n",
            x, kTop, bottom, is_left ? x - 4 : x + 4, kTop + 10, is_left ? "end" : "start",
            svg_escaped(plot.mark));
    }
    for (std::size_t i = 0; i < plot.lines.size(); ++i) {
        const std::vector<double>& ys = plot.lines[i].ys;
        std::string points;
        const std::size_t count = std::min(plot.xs.size(), ys.size());
        for (std::size_t k = 0; k <= count; ++k) {
            if (k < count && !std::isnan(ys[k])) {
                const std::string point =
                    fmt::format("{:.1f},{:.1f} ", x_of(plot.xs[k]), y_of(ys[k]));
                points += points.empty() ? point + point : point;  // alone it is a dot
            } else if (!points.empty()) {
                out += fmt::format(
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" "
                    "stroke-linecap=\"round\"/>\n",
                    points, svg_colour(i));
                points.clear();
            }
        }
        out +=
            legend_row(right + 14, kTop + 14 + 18 * static_cast<double>(i), i, plot.lines[i].name);
    }
    return out + "</svg>\n";
}

std::string svg_column(const std::vector<SvgLinePlot>& plots) {
    const double height = kHeight * static_cast<double>(plots.size());
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\">\n",
        kWidth, height);
    for (std::size_t i = 0; i < plots.size(); ++i)
        out += fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n",
                           kHeight * static_cast<double>(i), svg_line_plot(plots[i]));
    return out + "</svg>\n";
}

std::string svg_bar_plot(const SvgBarPlot& plot) {
    constexpr double kRow = 34, kBar = 22, kLegendColumns = 5;
    const double left = 120, right = kWidth - 110;
    const double rows = static_cast<double>(plot.bars.size());
    const double bottom = kTop + rows * kRow;
    const double legend_rows = std::ceil(static_cast<double>(plot.parts.size()) / kLegendColumns);
    std::string out = begin(plot.title, bottom + 34 + 20 * legend_rows);
    double x_max = plot.x_max;
    if (x_max <= 0) {
        for (const SvgBar& bar : plot.bars) {
            double sum = 0;
            for (const double part : bar.parts)
                sum += std::max(0.0, part);
            x_max = std::max(x_max, sum);
        }
        x_max = rounded_up(x_max);
    }
    const auto length_of = [&](double x) { return x / x_max * (right - left); };
    for (int i = 0; i <= kTicks; ++i) {
        const double x = x_max * i / kTicks;
        out += fmt::format(
            "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>"
            "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4:.4g}{5}</text>\n",
            left + length_of(x), kTop - 6, bottom, bottom + 14, x, svg_escaped(plot.unit));
    }
    for (std::size_t b = 0; b < plot.bars.size(); ++b) {
        const SvgBar& bar = plot.bars[b];
        const double y = kTop + kRow * static_cast<double>(b);
        double x = left;
        out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", left - 8,
                           y + kBar * 0.7, svg_escaped(bar.name));
        for (std::size_t i = 0; i < bar.parts.size(); ++i) {
            const double length = length_of(std::max(0.0, bar.parts[i]));
            const std::string part = i < plot.parts.size() ? plot.parts[i] : "";
            out += fmt::format(
                "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\">"
                "<title>{}: {:.4g}{}</title></rect>",
                x, y, length, kBar, svg_colour(i), svg_escaped(part), bar.parts[i],
                svg_escaped(plot.unit));
            x += length;
        }
        out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x + 8, y + kBar * 0.7,
                           svg_escaped(bar.note));
    }
    for (std::size_t i = 0; i < plot.parts.size(); ++i) {
        const auto column = static_cast<double>(i % static_cast<std::size_t>(kLegendColumns));
        const auto row = static_cast<double>(i / static_cast<std::size_t>(kLegendColumns));
        out += legend_row(20 + column * 166, bottom + 40 + 20 * row, i, plot.parts[i]);
    }
    return out + "</svg>\n";
}

}  // namespace fathom
