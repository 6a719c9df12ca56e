// fathom verify DIR... [--json] [--mode real|fp32|both] [--threads N] [--all]
//
// Runs golden cases through the shipped engine and prints, per tensor, the worst error beside its
// tolerance. Exit status 1 when anything misses.
#include <fmt/core.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/verify/suite.h"

namespace fathom {

namespace {

struct VerifyFlags {
    bool json = false;
    bool all = false;
    std::string mode = "both";
    std::string backend = "auto";
    std::int64_t threads = 1;
};

Json check_to_json(const verify::Check& check) {
    Json json = Json::object();
    json.set("what", check.what);
    if (check.skipped) {
        json.set("skipped", check.note);
        return json;
    }
    json.set("worst", check.worst);  // an infinity becomes null
    json.set("tolerance", check.tolerance);
    json.set("pass", check.pass);
    if (!check.note.empty()) json.set("note", check.note);
    return json;
}

void print_check(const verify::Check& check) {
    if (check.skipped) {
        fmt::print("  skip  {:<52} {}\n", check.what, check.note);
        return;
    }
    fmt::print("  {}  {:<52} {:>9.2e}  <= {:>7.1e}  {}\n", check.pass ? "ok  " : "MISS", check.what,
               check.worst, check.tolerance, check.note);
}

struct Totals {
    std::size_t checks = 0, misses = 0, skipped = 0;
};

Status verify_mode(const verify::GoldenCase& c, NumericMode mode, const VerifyFlags& flags,
                   Json& report, Totals& totals) {
    Progress line(c.name, 0, real_clock());
    std::int64_t done = 0;
    const verify::SuiteOptions options{
        .mode = mode,
        .threads = static_cast<int>(flags.threads),
        .backend = flags.backend,
        .progress = [&](const std::string& what) { line.update(++done, what); }};
    Result<std::vector<verify::Check>> checks = verify::run_suite(c, options);
    line.clear();
    FATHOM_RETURN_IF_ERROR(checks.status());
    const char* mode_name = mode == NumericMode::fp32 ? "fp32" : "real";
    Json entry = Json::object();
    entry.set("case", c.name);
    entry.set("mode", mode_name);
    Json list = Json::array();
    std::size_t misses = 0, skipped = 0;
    for (const verify::Check& check : *checks) {
        misses += check.pass ? 0 : 1;
        skipped += check.skipped ? 1 : 0;
        list.push_back(check_to_json(check));
    }
    entry.set("pass", misses == 0);
    entry.set("tensors", std::move(list));
    report.push_back(std::move(entry));
    totals.checks += checks->size() - skipped;
    totals.misses += misses;
    totals.skipped += skipped;
    if (flags.json) return {};
    fmt::print("{} ({}): {} of {} pass, {} skipped\n", c.name, mode_name,
               checks->size() - skipped - misses, checks->size() - skipped, skipped);
    for (const verify::Check& check : *checks)
        if (flags.all || !check.pass) print_check(check);
    return {};
}

int verify_all(const std::vector<std::string>& dirs, const VerifyFlags& flags) {
    Json cases = Json::array();
    Totals totals;
    for (const std::string& dir : dirs) {
        Result<verify::GoldenCase> c = verify::load_case(dir);
        Status status = c.status();
        for (const NumericMode mode : {NumericMode::real, NumericMode::fp32}) {
            const bool asked =
                flags.mode == "both" || (flags.mode == "fp32") == (mode == NumericMode::fp32);
            if (!status.ok() || !asked || !c->has_mode(mode)) continue;
            status = verify_mode(*c, mode, flags, cases, totals);
        }
        if (!status.ok()) {
            fmt::print(stderr, "fathom verify: {}: {}\n", dir, status.message());
            return kExitFailed;
        }
    }
    if (flags.json) {
        Json report = Json::object();
        report.set("pass", totals.misses == 0);
        report.set("cases", std::move(cases));
        fmt::print("{}\n", report.dump());
    } else {
        fmt::print("{}: {} checks, {} missed, {} skipped\n", totals.misses == 0 ? "pass" : "MISS",
                   totals.checks, totals.misses, totals.skipped);
    }
    return totals.misses == 0 ? kExitOk : kExitFailed;
}

}  // namespace

int run_verify(const std::vector<std::string>& args) {
    VerifyFlags flags;
    ConfigSchema schema;
    schema.add("verify.json", &flags.json, "print one JSON object instead of text");
    schema.add("verify.all", &flags.all, "list every check, not only the misses");
    schema.add_choice("verify.mode", &flags.mode, {"real", "fp32", "both"},
                      "numeric mode: the release's arithmetic, no rounding at all, or both");
    schema.add("verify.backend", &flags.backend, "back end by name");
    schema.add("verify.threads", &flags.threads, 1, 1024, "compute threads");
    const CommandSpec spec{
        .usage = "fathom verify DIR... [options]",
        .summary = "Runs golden cases through the engine and compares every tensor.",
        .tables = {"verify"},
        .aliases = {{"--json", "verify.json"},
                    {"--all", "verify.all"},
                    {"--mode", "verify.mode"},
                    {"--backend", "verify.backend"},
                    {"--threads", "verify.threads"}},
        .positional_max = 1000};
    const Result<CommandLine> line = parse_command_line(args, schema, spec);
    if (!line.ok()) {
        fmt::print(stderr, "fathom verify: {}\n", line.status().message());
        return kExitUsage;
    }
    if (line->help) {
        fmt::print("{}", help_text(schema, spec));
        return kExitOk;
    }
    if (line->positional.empty()) {
        fmt::print(stderr, "fathom verify: name at least one case folder\n");
        return kExitUsage;
    }
    return verify_all(line->positional, flags);
}

}  // namespace fathom
