// Pieces of plots in SVG, for reports that need nothing but a viewer. Pure text.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fathom {

// Text as it may stand in XML and HTML.
std::string svg_escaped(std::string_view text);
// Told apart with common colour blindness as well; repeats behind the last.
inline constexpr std::size_t kSvgColours = 11;
const char* svg_colour(std::size_t index);

struct SvgLine {
    std::string name;
    std::vector<double> ys;  // one for each x; NaN is a gap
};
struct SvgLinePlot {
    std::string title, x_label, y_label;
    std::vector<double> xs;  // rising
    std::vector<SvgLine> lines;
    double y_max = 0;      // 0: of the data
    double marked_x = -1;  // a vertical line here, with `mark` beside it; < 0: none
    std::string mark;
};
std::string svg_line_plot(const SvgLinePlot& plot);
// Several, one under the other, in one file.
std::string svg_column(const std::vector<SvgLinePlot>& plots);

// Bars from left to right, each of parts that add up to its length.
struct SvgBar {
    std::string name, note;  // the note stands behind the bar
    std::vector<double> parts;
};
struct SvgBarPlot {
    std::string title;
    std::vector<std::string> parts;  // their names; one for each part of a bar
    std::vector<SvgBar> bars;
    double x_max = 0;  // 0: of the data
    std::string unit;  // of the axis
};
std::string svg_bar_plot(const SvgBarPlot& plot);

}  // namespace fathom
