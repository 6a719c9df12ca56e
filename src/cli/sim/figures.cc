#include "cli/sim/figures.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

namespace fathom {

Figure share_of(std::int64_t part, std::int64_t whole) {
    return figure_if(whole > 0, static_cast<double>(part) / static_cast<double>(whole));
}

std::string figure_cell(Figure figure, int width, int digits) {
    return figure ? fmt::format("{:>{}.{}f}", *figure, width, digits)
                  : fmt::format("{:>{}}", "-", width);
}

std::string figure_text(Figure figure, int digits, const char* unit) {
    return figure ? fmt::format("{:.{}f}{}", *figure, digits, unit) : "-";
}

std::string signed_text(double value, int digits) {
    const std::string text = fmt::format("{:+.{}f}", value, digits);
    const bool is_zero = text.find_first_of("123456789") == std::string::npos;
    return is_zero && std::isfinite(value) ? text.substr(1) : text;
}

std::string figure_csv(Figure figure) {
    return figure ? fmt::format("{:.6g}", *figure) : "";
}

Json figure_json(Figure figure) {
    return figure ? Json(*figure) : Json();
}

double figure_y(Figure figure) {
    return figure.value_or(std::numeric_limits<double>::quiet_NaN());
}

std::string changes_text(const FleetConfig& config) {
    if (config.changes.empty()) return fmt::format("changed against {}: nothing\n", config.preset);
    std::string text = fmt::format("changed against {}\n", config.preset);
    for (const FleetChange& change : config.changes)
        text += fmt::format("  {} = {} (was {}; {})\n", change.key, change.value, change.usual,
                            change.source);
    return text;
}

Json changes_json(const FleetConfig& config) {
    Json list = Json::array();
    for (const FleetChange& change : config.changes)
        list.push_back(Json::object({{"key", change.key},
                                     {"value", change.value},
                                     {"preset_value", change.usual},
                                     {"source", change.source}}));
    return list;
}

std::string assumptions_text(const FleetConfig& config) {
    std::string text;
    for (const Assumption& assumption : fleet_assumptions(config))
        text += fmt::format("{:<9} {}: {} ({})\n", assumption.is_measured ? "measured" : "assumed",
                            assumption.what, assumption.value, assumption.source);
    return text;
}

Json assumption_json(const Assumption& assumption) {
    return Json::object({{"what", assumption.what},
                         {"value", assumption.value},
                         {"source", assumption.source},
                         {"measured", assumption.is_measured}});
}

Json assumptions_json(const FleetConfig& config) {
    Json list = Json::array();
    for (const Assumption& assumption : fleet_assumptions(config))
        list.push_back(assumption_json(assumption));
    return list;
}

}  // namespace fathom
