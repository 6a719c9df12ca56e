// The result of `fathom sim run` as tables for people, CSV (the time series), JSON, and one HTML
// file with plots that needs nothing else. Pure text.
#pragma once

#include <string>
#include <vector>

#include "sim/fleet/fleet_result.h"

namespace fathom {

std::string fleet_table(const FleetResult& result);
std::string fleet_csv(const FleetResult& result);
std::string fleet_json(const FleetResult& result);
std::string fleet_html(const FleetResult& result);

// What tables and HTML say alike: names and values in the order of reading.
struct ReportLine {
    std::string name, value;
};
std::vector<ReportLine> fleet_headline(const FleetResult& result);
struct ExpertReportRow {
    std::string name, prefill, decode;
};
// What became of the experts; nothing where moe_lb is a constant.
std::vector<ExpertReportRow> expert_rows(const FleetResult& result);
// What became of the drafts; nothing where they are a table.
std::vector<ReportLine> draft_lines(const FleetResult& result);
// Steps take their model's time times a draw around 1, so their noise may add up to less than 0.
bool is_noise_negative(const FleetResult& result);
inline constexpr const char* kNoiseMeaning =
    "noise and stalls: what steps took beyond their model; below 0 where chance made them shorter.";
inline constexpr const char* kBoundMeaning =
    "The balanced bound: the same requests on the same cards, with every step full, every rank "
    "equal, moe_lb 1 and all KV there. Efficiency is the share of all card-time that the bound "
    "needs as well.";

}  // namespace fathom
