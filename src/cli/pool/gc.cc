#include <fmt/core.h>

#include <limits>

#include "cli/commands.h"
#include "cli/pool/admin.h"
#include "cli/pool/pool_command.h"
#include "model/memory_plan.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage = "fathom pool gc DIR [options]",
    .summary =
        "Removes from a KV pool that no server has open what is expired and, with --capacity-mib, "
        "the\nsegments that expire first, when above 90 % of that, down to 85 %. A server does "
        "this by "
        "itself. Of a\ndirectory that several processes share, pools whose process ended are "
        "cleaned and those in use\nare left to theirs.",
    .tables = {"gc"},
    .aliases = {{"--capacity-mib", "gc.capacity_mib"}, {"--json", "gc.json"}},
    .positional_max = 1};

constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};

struct Collected {
    PoolSurvey::PerClass before, after;
};

Result<Collected> collect_one(PoolReader& reader, const std::string& pool,
                              std::int64_t capacity_bytes, Watch& watch) {
    const auto look = [&]() -> Result<PoolSurvey::PerClass> {
        FATHOM_ASSIGN(const PoolSurvey survey,
                      survey_pool(reader, pool, real_clock(), watch.progress("gc, segments")));
        return survey.total();
    };
    Collected collected;
    FATHOM_ASSIGN(collected.before, look());
    {
        FATHOM_ASSIGN(const auto store,
                      open_offline(reader, pool, {.capacity_bytes = capacity_bytes}));
        const Status status = await(watch, [&](std::function<void(Status)> done) {
            (void)store->collect(kNever, std::move(done));
        });
        store->close(kNever);
        if (!status.ok()) return status;
    }
    FATHOM_ASSIGN(collected.after, look());
    return collected;
}

Result<int> collect_pools(const std::string& directory, std::int64_t capacity_mib, bool json,
                          Watch& watch) {
    FATHOM_ASSIGN(const auto reader, make_pool_reader());
    FATHOM_ASSIGN(const std::vector<std::string> pools, pools_in(*reader, directory));
    Json::Array items;
    bool any = false;
    for (const std::string& pool : pools) {
        const auto done = collect_one(*reader, pool, capacity_mib << 20, watch);
        if (!done.ok() && (pools.size() == 1 || done.status().code() == StatusCode::cancelled))
            return done.status();
        watch.clear();
        any = any || done.ok();
        if (!done.ok()) {
            fmt::print(stderr, "fathom pool gc: {}\n", done.status().message());
            continue;
        }
        const std::int64_t segments = done->before.segments - done->after.segments;
        const std::int64_t bytes = done->before.allocated_bytes - done->after.allocated_bytes;
        if (json) {
            items.push_back(Json::object({{"directory", pool},
                                          {"removed_segments", segments},
                                          {"removed_bytes", bytes},
                                          {"segments", done->after.segments},
                                          {"bytes", done->after.allocated_bytes}}));
        } else {
            fmt::print("{}: {} segments removed, {}; {} are left, {}\n", pool, segments,
                       bytes_text(bytes), done->after.segments,
                       bytes_text(done->after.allocated_bytes));
        }
    }
    if (json) fmt::print("{}\n", Json::object({{"pools", Json::array(std::move(items))}}).dump());
    return any ? kExitOk : kExitFailed;
}

}  // namespace

int run_pool_gc(const std::vector<std::string>& args) {
    std::int64_t capacity_mib = 0;
    bool json = false;
    const auto bind = [&](ConfigSchema& schema) {
        schema.add("gc.capacity_mib", &capacity_mib, 0, std::int64_t{1} << 40,
                   "room for each pool, at least 512; 0: only what is expired goes");
        schema.add("gc.json", &json, "JSON on standard output");
    };
    return run_pool_command(args, {.name = "gc",
                                   .spec = kSpec,
                                   .bind = bind,
                                   .run = [&](const std::string& directory, Watch& watch) {
                                       return collect_pools(directory, capacity_mib, json, watch);
                                   }});
}

}  // namespace fathom
