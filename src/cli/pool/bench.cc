#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/pool/admin.h"
#include "cli/pool/pool_command.h"
#include "pool/bench/disk_bench.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage = "fathom pool bench DIR [options]",
    .summary =
        "How fast a KV pool would be on the disk of DIR: gets and puts of one block, 1, 8 and 32 "
        "at a\ntime, beside what io_uring gets from the disk itself in the same minute. Needs 3 "
        "GiB there and\nremoves what it made. Other work on the disk lowers both.",
    .tables = {"bench"},
    .aliases = {{"--rounds", "bench.rounds"}, {"--json", "bench.json"}},
    .positional_max = 1};

Result<int> bench_directory(const std::string& directory, std::int64_t rounds, bool json,
                            Watch& watch) {
    FATHOM_ASSIGN(const std::vector<PoolBenchRow> rows,
                  bench_pool({.directory = directory,
                              .rounds = rounds,
                              .progress = watch.progress("bench, rounds")}));
    watch.clear();
    Json::Array items;
    if (!json)
        fmt::print("{:<22} {:>12} {:<9} {:>12} {:>7}\n", "what", "pool", "", "disk", "ratio");
    for (const PoolBenchRow& row : rows) {
        const double ratio = row.limit ? row.value / *row.limit : 0;
        if (json) {
            items.push_back(Json::object({{"what", row.what},
                                          {"value", row.value},
                                          {"unit", row.unit},
                                          {"limit", row.limit ? Json(*row.limit) : Json()},
                                          {"ratio", row.limit ? Json(ratio) : Json()}}));
        } else if (row.limit) {
            fmt::print("{:<22} {:>12.0f} {:<9} {:>12.0f} {:>7.2f}\n", row.what, row.value, row.unit,
                       *row.limit, ratio);
        } else {
            fmt::print("{:<22} {:>12.1f} {:<9}\n", row.what, row.value, row.unit);
        }
    }
    const Json report =
        Json::object({{"directory", directory}, {"rows", Json::array(std::move(items))}});
    if (json) fmt::print("{}\n", report.dump());
    return kExitOk;
}

}  // namespace

int run_pool_bench(const std::vector<std::string>& args) {
    std::int64_t rounds = 9;
    bool json = false;
    const auto bind = [&](ConfigSchema& schema) {
        schema.add("bench.rounds", &rounds, 1, 15, "of each depth; their median counts");
        schema.add("bench.json", &json, "JSON on standard output");
    };
    return run_pool_command(args, {.name = "bench",
                                   .spec = kSpec,
                                   .bind = bind,
                                   .run = [&](const std::string& directory, Watch& watch) {
                                       return bench_directory(directory, rounds, json, watch);
                                   }});
}

}  // namespace fathom
