#include <fmt/core.h>

#include <limits>

#include "cli/commands.h"
#include "cli/pool/admin.h"
#include "cli/pool/pool_command.h"
#include "model/memory_plan.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage = "fathom pool scrub DIR [--json]",
    .summary =
        "Reads and checks every block of a KV pool that no server has open, and forgets bad ones "
        "for\ngood: their slots are no longer found. Seals what a process that ended left "
        "unsealed. A server\nscrubs its own pool in the background; `verify` only looks.",
    .tables = {"scrub"},
    .aliases = {{"--json", "scrub.json"}},
    .positional_max = 1};

constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};

Result<ScrubReport> scrub_one(PoolReader& reader, const std::string& pool, Watch& watch) {
    MetricsRegistry metrics;
    FATHOM_ASSIGN(const auto store, open_offline(reader, pool, {.metrics = &metrics}));
    FATHOM_ASSIGN(const PoolUsage usage, usage_of(*store, watch));
    const Counter& done = metrics.counter(
        "kvpool_scrub_blocks_total", "Blocks checked where they lie.", {{"backend", "embedded"}});
    const SurveyProgress progress = watch.progress("scrub, blocks");
    const auto found = std::make_shared<ScrubReport>();
    const Status status = await(
        watch,
        [&](std::function<void(Status)> answer) {
            (void)store->scrub(kNever, [found, answer](ScrubReport report, Status ended) {
                *found = report;
                answer(std::move(ended));
            });
        },
        [&] { (void)progress(static_cast<std::int64_t>(done.value()), usage.blocks); });
    store->close(kNever);
    if (!status.ok()) return status;
    return *found;
}

Result<int> scrub_pools(const std::string& directory, bool json, Watch& watch) {
    FATHOM_ASSIGN(const auto reader, make_pool_reader());
    FATHOM_ASSIGN(const std::vector<std::string> pools, pools_in(*reader, directory));
    Json::Array items;
    bool good = true;
    for (const std::string& pool : pools) {
        const auto report = scrub_one(*reader, pool, watch);
        if (!report.ok() && (pools.size() == 1 || report.status().code() == StatusCode::cancelled))
            return report.status();
        watch.clear();
        good = good && report.ok();
        if (!report.ok()) {
            fmt::print(stderr, "fathom pool scrub: {}\n", report.status().message());
        } else if (json) {
            items.push_back(Json::object({{"directory", pool},
                                          {"segments", report->segments},
                                          {"blocks", report->blocks},
                                          {"bytes", report->bytes},
                                          {"forgotten_blocks", report->bad_blocks}}));
        } else {
            fmt::print("{}: {} blocks in {} segments checked, {}; {} bad ones forgotten\n", pool,
                       report->blocks, report->segments, bytes_text(report->bytes),
                       report->bad_blocks);
        }
    }
    if (json) fmt::print("{}\n", Json::object({{"pools", Json::array(std::move(items))}}).dump());
    return good ? kExitOk : kExitFailed;
}

}  // namespace

int run_pool_scrub(const std::vector<std::string>& args) {
    bool json = false;
    return run_pool_command(
        args, {.name = "scrub",
               .spec = kSpec,
               .bind =
                   [&](ConfigSchema& schema) {
                       schema.add("scrub.json", &json, "JSON on standard output");
                   },
               .run = [&](const std::string& directory,
                          Watch& watch) { return scrub_pools(directory, json, watch); }});
}

}  // namespace fathom
