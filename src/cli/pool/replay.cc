#include "cli/pool/replay.h"

#include <fmt/core.h>

#include <array>

#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/pool/pool_command.h"
#include "cli/pool/replay_plan.h"
#include "cli/pool/replay_report.h"
#include "cli/pool/replay_studies.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage =
        "fathom pool replay TRACE… [options]\n"
        "       fathom pool replay --study NAME FOLDER [options]",
    .summary =
        "What a KV pool would have found of the prompts of recorded traffic: token hit rates, "
        "misses "
        "by\ncause, bytes read and written. TRACE is a JSONL file of Mooncake's, the agentic or "
        "the "
        "LMCache\nformat, plain or compressed with zstd. Lists make a row of each combination.\n"
        "docs/pool_replay.md explains the models and the studies.",
    .tables = {"replay"},
    .aliases = {{"--policy", "replay.policy"},
                {"--ttl", "replay.ttl"},
                {"--bucket", "replay.bucket"},
                {"--renew-at", "replay.renew_at"},
                {"--rewrite", "replay.rewrite"},
                {"--capacity", "replay.capacity"},
                {"--eviction", "replay.eviction"},
                {"--page", "replay.page"},
                {"--output", "replay.output"},
                {"--tail", "replay.tail"},
                {"--spread", "replay.spread"},
                {"--token-bytes", "replay.token_bytes"},
                {"--nodes", "replay.nodes"},
                {"--window-ttl", "replay.window_ttl"},
                {"--seed", "replay.seed"},
                {"--study", "replay.study"},
                {"--csv", "replay.csv"},
                {"--svg", "replay.svg"},
                {"--json", "replay.json"}},
    .positional_max = 100};

void bind(ReplaySettings& settings, ConfigSchema& schema) {
    schema.add("replay.policy", &settings.policy,
               "list of unlimited, refresh (TTL from the last use), fixed (from the write), renew "
               "(fixed, written anew near its end)");
    schema.add("replay.ttl", &settings.ttl, "list of times to live");
    schema.add("replay.bucket", &settings.bucket,
               "fixed, renew: expiry is the end of a bucket of this length plus TTL; 0s: exact");
    schema.add("replay.renew_at", &settings.renew_at, 0.0, 1.0,
               "renew: the share of the TTL that is left when a use writes a page anew");
    schema.add_choice("replay.rewrite", &settings.rewrite, {"miss", "never"},
                      "who writes a page again that had expired: the request that lacks it, or "
                      "nobody");
    schema.add("replay.capacity", &settings.capacity,
               "list of sizes, such as 4GiB; empty: unlimited space");
    schema.add("replay.eviction", &settings.eviction,
               "with a capacity: list of lru, s3-fifo, earliest (whole segments of 64 MiB)");
    schema.add("replay.page", &settings.page, "list of page sizes in tokens; empty: the trace's");
    schema.add_choice("replay.output", &settings.output, {"drop", "persist"},
                      "whether outputs are written as well; agentic traces only");
    schema.add_choice(
        "replay.tail", &settings.tail, {"keep", "drop"},
        "whether a partial last block counts as a page, as published figures have it");
    schema.add(
        "replay.spread", &settings.spread,
        "agentic traces: conversations begin at random within this time and share one cache; "
        "0s: one after another, each for itself");
    schema.add("replay.token_bytes", &settings.token_bytes, 1, 1 << 20, "KV of a token");
    schema.add("replay.nodes", &settings.nodes, 0, 65'536,
               "prefill nodes, to study the window cache; 0: not");
    schema.add("replay.window_ttl", &settings.window_ttl, "life of a window from its last use");
    schema.add("replay.seed", &settings.seed, 0, std::int64_t{1} << 62,
               "of random beginnings and nodes");
    schema.add_choice("replay.study", &settings.study,
                      {"none", "trace-figures", "renewal", "capacity", "chat-ttl"},
                      "a prepared question, on the traces of FOLDER");
    schema.add("replay.csv", &settings.csv, "file for the rows");
    schema.add("replay.svg", &settings.svg, "file for a plot");
    schema.add("replay.json", &settings.json, "JSON on standard output instead of the table");
}

Status check_words(const ReplaySettings& settings, const std::vector<std::string>& words) {
    if (settings.study != "none") {
        if (words.size() != 1)
            return invalid_argument("--study takes one folder of traces, {} words were given",
                                    words.size());
        if (!settings.csv.empty() || !settings.svg.empty())
            return invalid_argument("a study has no --csv and no --svg; --json has its figures");
    }
    for (const std::string* path : {&settings.csv, &settings.svg}) {
        if (path->empty()) continue;
        FATHOM_RETURN_IF_ERROR(check_output_path(*path));
        FATHOM_RETURN_IF_ERROR(check_output_is_no_input(*path, words));
    }
    return check_outputs_differ(std::array{settings.csv, settings.svg});
}

Result<int> study(const ReplaySettings& settings, const std::string& folder, Watch& watch) {
    ReplayOptions options;
    options.progress = watch.progress("replay, bytes of the trace");
    const Result<StudyResult> result = run_study(settings.study, folder, options);
    if (!result.ok()) return result.status();
    fmt::print("{}", settings.json ? result->json.dump() + "\n" : result->text);
    return result->passed ? kExitOk : kExitFailed;
}

Result<int> replay(const ReplaySettings& settings, const ReplayPlan& plan,
                   const std::vector<std::string>& paths, Watch& watch) {
    std::vector<TraceReport> reports;
    ReplayOptions options = plan.options;
    for (const std::string& path : paths) {
        options.progress = watch.progress("replay, bytes of the trace");
        FATHOM_ASSIGN(ReplayResult result, replay_trace(path, plan.policies, options));
        reports.push_back({path, std::move(result)});
    }
    if (plan.left_out > 0)
        fmt::print(stderr,
                   "fathom pool replay: {} combinations of refresh and earliest were left out: "
                   "segments have an expiry fixed at write\n",
                   plan.left_out);
    fmt::print("{}", settings.json ? replay_json(reports) : replay_table(reports));
    if (!settings.csv.empty())
        FATHOM_RETURN_IF_ERROR(write_output_file(settings.csv, replay_csv(reports)));
    if (!settings.svg.empty())
        FATHOM_RETURN_IF_ERROR(write_output_file(settings.svg, replay_svg(reports)));
    return kExitOk;
}

}  // namespace

int run_pool_replay(const std::vector<std::string>& args) {
    ReplaySettings settings;
    ConfigSchema schema;
    bind(settings, schema);
    const auto refuse = [](const Status& status, int exit_status) {
        fmt::print(stderr, "fathom pool replay: {}\n", status.message());
        return exit_status;
    };
    const Result<CommandLine> line = parse_command_line(args, schema, kSpec);
    if (!line.ok()) return refuse(line.status(), kExitUsage);
    if (line->help || line->positional.empty()) {
        fmt::print("{}", help_text(schema, kSpec));
        return line->help ? kExitOk : kExitUsage;
    }
    if (const Status status = check_words(settings, line->positional); !status.ok())
        return refuse(status, kExitUsage);
    const Result<ReplayPlan> plan = make_replay_plan(settings);
    if (!plan.ok()) return refuse(plan.status(), kExitUsage);
    Result<int> status = kExitOk;
    {
        Watch watch;  // its progress line is gone before errors are printed
        status = settings.study != "none" ? study(settings, line->positional[0], watch)
                                          : replay(settings, *plan, line->positional, watch);
    }
    if (status.ok()) return *status;
    return refuse(status.status(),
                  status.status().code() == StatusCode::cancelled ? kExitInterrupted : kExitFailed);
}

}  // namespace fathom
