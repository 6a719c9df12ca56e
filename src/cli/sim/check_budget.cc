#include "cli/sim/check_budget.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "base/config.h"
#include "base/input_file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/print_result.h"
#include "cli/sim/fleet_order.h"
#include "policy/verify_case.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage = "fathom sim check-budget FILE [--json]",
    .summary =
        "Decides recorded cases of verification lengths anew (one JSON object a line) and counts "
        "those\nthat come out equal. The status is 1 when one differs.",
    .tables = {"check_budget"},
    .aliases = {{"--json", "check_budget.json"}},
    .positional_max = 1};

struct Difference {
    std::int64_t line = 0;
    std::string id, text;
};

struct Report {
    std::int64_t cases = 0, equal = 0;
    std::vector<Difference> differences;
};

std::string difference_text(const std::vector<std::int32_t>& ours,
                            const std::vector<std::int32_t>& recorded) {
    if (ours.size() != recorded.size())
        return fmt::format("{} lengths are recorded for {} sequences", recorded.size(),
                           ours.size());
    for (std::size_t i = 0; i < ours.size(); ++i)
        if (ours[i] != recorded[i])
            return fmt::format("sequence {}: length {}, recorded {}", i, ours[i], recorded[i]);
    return {};
}

Result<Report> check_file(const std::string& path) {
    FATHOM_ASSIGN(const std::string text, read_input_file(path));
    Report report;
    std::int64_t line = 0;
    for (std::string_view rest = text; !rest.empty();) {
        const std::string_view row = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), row.size() + 1));
        ++line;
        if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const auto where = [&](const Status& status) {
            return status.with_context(fmt::format("{}:{}", path, line));
        };
        const Result<Json> json = parse_json(row);
        if (!json.ok()) return where(json.status());
        const Result<VerifyCase> verify_case = read_verify_case(*json);
        if (!verify_case.ok()) return where(verify_case.status());
        ++report.cases;
        const std::string difference =
            difference_text(deployed_lengths(*verify_case), verify_case->lengths);
        if (difference.empty()) {
            ++report.equal;
        } else {
            report.differences.push_back({line, verify_case->id, difference});
        }
    }
    if (report.cases == 0) return invalid_argument("{}: no cases", path);
    return report;
}

std::string report_json(const std::string& path, const Report& report) {
    Json::Array differences;
    for (const Difference& difference : report.differences)
        differences.push_back(Json::object(
            {{"line", difference.line}, {"id", difference.id}, {"difference", difference.text}}));
    const Json json = Json::object({{"file", path},
                                    {"cases", report.cases},
                                    {"equal", report.equal},
                                    {"differences", Json::array(std::move(differences))}});
    return json.dump() + "\n";
}

std::string report_text(const std::string& path, const Report& report) {
    std::string text;
    for (const Difference& difference : report.differences)
        text +=
            fmt::format("{}:{}: {}: {}\n", path, difference.line, difference.id, difference.text);
    return text + fmt::format("{}: {} of {} cases are equal\n", path, report.equal, report.cases);
}

}  // namespace

int run_sim_check_budget(const std::vector<std::string>& args) {
    bool json = false;
    ConfigSchema schema;
    schema.add("check_budget.json", &json, "JSON on standard output");
    constexpr const char* kName = "check-budget";
    const Result<CommandLine> line = parse_command_line(args, schema, kSpec);
    if (!line.ok()) return refuse_sim_command(kName, line.status());
    if (line->help || line->positional.empty()) {
        const int status = end_sim_command(kName, print_result(help_text(schema, kSpec)));
        return line->help || status != kExitOk ? status : kExitUsage;
    }
    const Result<Report> report = check_file(line->positional[0]);
    if (!report.ok()) return end_sim_command(kName, report.status());
    const std::string& path = line->positional[0];
    const Status printed =
        print_result(json ? report_json(path, *report) : report_text(path, *report));
    if (!printed.ok()) return end_sim_command(kName, printed);
    return report->equal == report->cases ? kExitOk : kExitFailed;
}

}  // namespace fathom
