#include <fmt/core.h>

#include <filesystem>

#include "cli/commands.h"
#include "cli/pool/admin.h"
#include "cli/pool/pool_command.h"
#include "model/memory_plan.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

const CommandSpec kSpec = {
    .usage = "fathom pool stat DIR [--json]",
    .summary =
        "What a KV pool holds: segments, blocks and bytes by traffic class and by namespace, when "
        "they\nexpire, what is unsealed or lost, and who has it open. Reads only, works beside a "
        "server. A\ndirectory that several processes share shows each.\n"
        "A namespace is one API key with one model, and as `drop` takes it.",
    .tables = {"stat"},
    .aliases = {{"--json", "stat.json"}},
    .positional_max = 1};

const char* class_name(std::size_t i) {
    return traffic_class_name(static_cast<TrafficClass>(i)).data();
}

Json class_json(const PoolSurvey::PerClass& of) {
    return Json::object({{"segments", of.segments},
                         {"unsealed", of.unsealed},
                         {"expired", of.expired},
                         {"blocks", of.blocks},
                         {"allocated_bytes", of.allocated_bytes},
                         {"oldest_unix_s", of.oldest_unix_s},
                         {"newest_unix_s", of.newest_unix_s},
                         {"first_expiry_unix_ms", of.first_expiry_unix_ms},
                         {"last_expiry_unix_ms", of.last_expiry_unix_ms}});
}

Json pool_json(const PoolSurvey& survey) {
    Json::Object classes;
    for (std::size_t i = 0; i < survey.classes.size(); ++i)
        classes.emplace_back(class_name(i), class_json(survey.classes[i]));
    Json::Array namespaces;
    for (const auto& [tag, of] : survey.namespaces) {
        namespaces.push_back(Json::object({{"namespace", tag},
                                           {"blocks", of.blocks},
                                           {"encrypted", of.encrypted},
                                           {"bytes", of.blocks * survey.pool.slot_bytes}}));
    }
    return Json::object({{"directory", survey.directory},
                         {"uuid", hex_text(survey.pool.uuid)},
                         {"block_bytes", static_cast<std::int64_t>(survey.pool.payload_bytes)},
                         {"slot_bytes", static_cast<std::int64_t>(survey.pool.slot_bytes)},
                         {"opened", survey.pool.epoch},
                         {"created_unix_ms", survey.pool.created_unix_ms},
                         {"held_by", survey.holder.empty() ? Json() : Json(survey.holder)},
                         {"classes", Json::object(std::move(classes))},
                         {"total", class_json(survey.total())},
                         {"namespaces", Json::array(std::move(namespaces))},
                         {"lost_files", survey.lost_files},
                         {"lost_bytes", survey.lost_bytes},
                         {"strange", strings_json(survey.strange)}});
}

void print_row(const char* name, const PoolSurvey::PerClass& of) {
    fmt::print("  {:<10} {:>8} {:>8} {:>8} {:>10} {:>12}  {:<16}  {:<16}  {:<16}\n", name,
               of.segments, of.unsealed, of.expired, of.blocks, bytes_text(of.allocated_bytes),
               time_text(of.oldest_unix_s * 1000), time_text(of.first_expiry_unix_ms),
               time_text(of.last_expiry_unix_ms));
}

void print_pool(const PoolSurvey& survey) {
    fmt::print("{}: blocks of {} bytes, made {}, opened {} times, {}\n", survey.directory,
               survey.pool.payload_bytes, time_text(survey.pool.created_unix_ms), survey.pool.epoch,
               survey.holder.empty() ? "nobody has it open" : "held by " + survey.holder);
    fmt::print("\n  {:<10} {:>8} {:>8} {:>8} {:>10} {:>12}  {:<16}  {:<16}  {:<16}\n", "class",
               "segments", "unsealed", "expired", "blocks", "on disk", "oldest block",
               "first expiry", "last expiry");
    for (std::size_t i = 0; i < survey.classes.size(); ++i)
        if (survey.classes[i].segments > 0) print_row(class_name(i), survey.classes[i]);
    print_row("all", survey.total());
    if (!survey.namespaces.empty())
        fmt::print("\n  {:<16} {:>10} {:>12} {:>10}\n", "namespace", "blocks", "bytes",
                   "encrypted");
    for (const auto& [tag, of] : survey.namespaces)
        fmt::print("  {:<16} {:>10} {:>12} {:>10}\n", tag, of.blocks,
                   bytes_text(of.blocks * survey.pool.slot_bytes), of.encrypted);
    if (survey.lost_files > 0)
        fmt::print(
            "\n  lost/ has {} files, {}: found in the pool and not of it; look at them, "
            "and remove them\n",
            survey.lost_files, bytes_text(survey.lost_bytes));
    for (const std::string& strange : survey.strange)
        fmt::print("\n  not used: {}\n", strange);
    fmt::print("\n");
}

Result<int> stat_pools(const std::string& directory, bool json, Watch& watch) {
    FATHOM_ASSIGN(const auto reader, make_pool_reader());
    FATHOM_ASSIGN(const std::vector<std::string> pools, pools_in(*reader, directory));
    std::vector<PoolSurvey> surveys;
    for (const std::string& pool : pools) {
        FATHOM_ASSIGN(PoolSurvey survey,
                      survey_pool(*reader, pool, real_clock(), watch.progress("stat, segments")));
        surveys.push_back(std::move(survey));
    }
    watch.clear();
    std::error_code failed;
    const fs::space_info space = fs::space(directory, failed);
    const auto bytes = [&](std::uintmax_t n) { return failed ? -1 : static_cast<std::int64_t>(n); };
    if (json) {
        Json::Array items;
        for (const PoolSurvey& survey : surveys)
            items.push_back(pool_json(survey));
        const Json report = Json::object({{"directory", directory},
                                          {"disk_bytes", bytes(space.capacity)},
                                          {"disk_free_bytes", bytes(space.available)},
                                          {"pools", Json::array(std::move(items))}});
        fmt::print("{}\n", report.dump());
        return kExitOk;
    }
    for (const PoolSurvey& survey : surveys)
        print_pool(survey);
    if (!failed)
        fmt::print("{} of {} are free on its disk\n", bytes_text(bytes(space.available)),
                   bytes_text(bytes(space.capacity)));
    return kExitOk;
}

}  // namespace

int run_pool_stat(const std::vector<std::string>& args) {
    bool json = false;
    return run_pool_command(
        args, {.name = "stat",
               .spec = kSpec,
               .bind =
                   [&](ConfigSchema& schema) {
                       schema.add("stat.json", &json, "JSON on standard output");
                   },
               .run = [&](const std::string& directory,
                          Watch& watch) { return stat_pools(directory, json, watch); }});
}

}  // namespace fathom
