#include <fmt/core.h>

#include <unistd.h>

#include "cli/commands.h"
#include "cli/pool/admin.h"
#include "cli/pool/pool_command.h"
#include "model/memory_plan.h"

namespace fathom {
namespace {

struct VerifySettings {
    std::int64_t mib_per_s = 0;
    std::string key_dir;
    bool json = false;
};

const CommandSpec kSpec = {
    .usage = "fathom pool verify DIR [options]",
    .summary =
        "Reads every block of a KV pool and checks all of it: its place, its name, the checksum of "
        "each\npage, and with its key the plain text. Changes nothing, works beside a server. Exit "
        "status 1\nwhen a block is bad or a file is none of the pool's; a server misses such "
        "blocks and computes\nthem again, so nothing is lost but time.",
    .tables = {"verify"},
    .aliases = {{"--mib-per-s", "verify.mib_per_s"},
                {"--key-dir", "verify.key_dir"},
                {"--json", "verify.json"}},
    .positional_max = 1};

struct Checked {
    std::string directory;
    PoolCheck check;
};

Json check_json(const Checked& checked) {
    Json::Array bad;
    for (const BadSlot& slot : checked.check.bad) {
        bad.push_back(Json::object({{"file", slot.path},
                                    {"slot", static_cast<std::int64_t>(slot.slot)},
                                    {"fault", slot_fault_name(slot.fault)}}));
    }
    return Json::object(
        {{"directory", checked.directory},
         {"segments", checked.check.segments},
         {"blocks", checked.check.blocks},
         {"bytes", checked.check.bytes},
         {"open_segments", checked.check.open_segments},
         {"open_blocks", checked.check.open_blocks},
         {"unbegun_segments", checked.check.unbegun_segments},
         {"held_by", checked.check.holder.empty() ? Json() : Json(checked.check.holder)},
         {"encrypted", checked.check.encrypted},
         {"opened", checked.check.opened},
         {"bad_blocks", checked.check.bad_blocks},
         {"bad", Json::array(std::move(bad))},
         {"replaced_blocks", checked.check.replaced_blocks},
         {"strange", strings_json(checked.check.strange)}});
}

void print_check(const Checked& checked) {
    const PoolCheck& check = checked.check;
    fmt::print("{}: {} blocks in {} segments read, {}; {} bad\n", checked.directory, check.blocks,
               check.segments, bytes_text(check.bytes), check.bad_blocks);
    const bool cut = check.holder.empty();
    if (check.open_segments > 0)
        fmt::print(
            "  {} of the segments are open, {}: they hold {} of the blocks{}\n",
            check.open_segments, cut ? "cut" : "being written", check.open_blocks,
            cut ? "; their process ended without closing them, who opens the pool next seals them"
                : "");
    if (check.unbegun_segments > 0)
        fmt::print("  {} files are no segments yet: {}\n", check.unbegun_segments,
                   cut ? "their process ended before the first block" : "they are being made");
    if (check.encrypted > 0)
        fmt::print("  {} are encrypted, {} of them were opened with their keys\n", check.encrypted,
                   check.opened);
    for (const BadSlot& slot : check.bad)
        fmt::print("  {} slot {}: {}\n", slot.path, slot.slot, slot_fault_name(slot.fault));
    if (check.bad_blocks > static_cast<std::int64_t>(check.bad.size()))
        fmt::print("  … and {} more\n",
                   check.bad_blocks - static_cast<std::int64_t>(check.bad.size()));
    if (check.replaced_blocks > 0)
        fmt::print(
            "  {} damaged copies are of blocks that were stored anew since; nobody reads "
            "them\n",
            check.replaced_blocks);
    for (const std::string& strange : check.strange)
        fmt::print("  not used: {}\n", strange);
    if (check.bad_blocks > 0)
        fmt::print(
            "  what to do: look at the disk; `fathom pool scrub` forgets bad blocks for "
            "good, a server\n  does when it meets them\n");
}

Result<int> verify_pools(const std::string& directory, const VerifySettings& settings,
                         Watch& watch) {
    FATHOM_ASSIGN(const auto reader, make_pool_reader());
    FATHOM_ASSIGN(const std::vector<std::string> pools, pools_in(*reader, directory));
    const std::string key_dir = settings.key_dir.empty() ? directory + "/keys" : settings.key_dir;
    std::unique_ptr<KeyRing> keys;
    if (!settings.key_dir.empty() || ::access(key_dir.c_str(), F_OK) == 0) {
        if (::access(key_dir.c_str(), F_OK) != 0)
            return invalid_argument("--key-dir {}: is not there", key_dir);
        FATHOM_ASSIGN(keys, KeyRing::open(key_dir, real_clock()));
    }
    std::vector<Checked> all;
    bool good = true;
    for (const std::string& pool : pools) {
        const PoolCheckOptions options{.bytes_per_s = settings.mib_per_s << 20,
                                       .keys = keys.get(),
                                       .progress = watch.progress("verify, bytes")};
        FATHOM_ASSIGN(PoolCheck check, check_pool(*reader, pool, real_clock(), options));
        good = good && check.bad_blocks == 0 && check.strange.empty();
        all.push_back({pool, std::move(check)});
    }
    watch.clear();
    Json::Array items;
    for (const Checked& checked : all) {
        if (settings.json) {
            items.push_back(check_json(checked));
        } else {
            print_check(checked);
        }
    }
    if (settings.json) {
        const Json report =
            Json::object({{"good", good}, {"pools", Json::array(std::move(items))}});
        fmt::print("{}\n", report.dump());
    }
    return good ? kExitOk : kExitFailed;
}

}  // namespace

int run_pool_verify(const std::vector<std::string>& args) {
    VerifySettings settings;
    const auto bind = [&](ConfigSchema& schema) {
        schema.add("verify.mib_per_s", &settings.mib_per_s, 0, 1 << 20,
                   "how fast to read, so that a server beside it is not slowed; 0: no limit");
        schema.add("verify.key_dir", &settings.key_dir,
                   "keys of encrypted blocks; empty: DIR/keys where it is there");
        schema.add("verify.json", &settings.json, "JSON on standard output");
    };
    return run_pool_command(args, {.name = "verify",
                                   .spec = kSpec,
                                   .bind = bind,
                                   .run = [&](const std::string& directory, Watch& watch) {
                                       return verify_pools(directory, settings, watch);
                                   }});
}

}  // namespace fathom
