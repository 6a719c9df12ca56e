#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <thread>

#include "cli/commands.h"
#include "cli/pool/admin.h"
#include "cli/pool/pool_command.h"
#include "cli/stack.h"
#include "gateway/kv_sharing.h"
#include "pool/drop_marks.h"
#include "pool/secret_file.h"

namespace fathom {
namespace {

struct DropSettings {
    std::string ns, key_file, key_dir, secret_file;
    StackOptions stack;
    std::int64_t timeout_s = 30;
    bool json = false;
};

const CommandSpec kSpec = {
    .usage =
        "fathom pool drop DIR --namespace HEX [options]\n"
        "       fathom pool drop DIR --model DIR --key-file FILE [options]",
    .summary =
        "Erases a tenant from a KV pool: its blocks can no longer be found, their names and "
        "checksums are\nwiped from the disk, and its encryption key is destroyed. The namespace is "
        "given as `stat`\nprints it, or as the API key (a file of one line) and the model that a "
        "server served it with;\nrequests with a cache salt have namespaces of their own. Servers "
        "that have the pool open are told\nand waited for; exit status 1 when one has not answered "
        "in time: it does so later, or whoever opens\nits pool next. What servers have in memory "
        "they keep until it is evicted. Without encryption the\nbytes of payloads stay on the disk "
        "until their segment goes.",
    .tables = {"drop"},
    .aliases = {{"--namespace", "drop.namespace"},
                {"--model", "drop.model"},
                {"-m", "drop.model"},
                {"--key-file", "drop.key_file"},
                {"--key-dir", "drop.key_dir"},
                {"--secret-file", "drop.secret_file"},
                {"--timeout-s", "drop.timeout_s"},
                {"--json", "drop.json"}},
    .positional_max = 1};

constexpr std::int64_t kLookMs = 100;
constexpr std::size_t kTagDigits = 16;
constexpr std::size_t kKeyBytesMax = 4096;

void bind(DropSettings& settings, ConfigSchema& schema) {
    schema.add("drop.namespace", &settings.ns, "16 hex digits of `stat`, or all 64");
    schema.add("drop.model", &settings.stack.model_dir, "the checkpoint that was served");
    schema.add("drop.key_file", &settings.key_file,
               "file with the API key; an empty file: requests without one");
    schema.add_choice("drop.numeric_mode", &settings.stack.numeric_mode, {"real", "fp32"},
                      "as it was served (numerics.mode)");
    schema.add_choice("drop.cache_storage", &settings.stack.cache_storage, {"packed", "bf16"},
                      "as it was served");
    schema.add("drop.key_dir", &settings.key_dir,
               "where encryption keys are; empty: DIR/keys where it is there");
    schema.add("drop.secret_file", &settings.secret_file,
               "the pool's secret, with --key-file; empty: DIR/SECRET");
    schema.add("drop.timeout_s", &settings.timeout_s, 0, 86'400,
               "how long servers that have the pool open are waited for");
    schema.add("drop.json", &settings.json, "JSON on standard output");
}

Result<NamespaceId> parse_namespace(const std::string& text) {
    NamespaceId ns;
    const auto digit = [](char c) {
        if (c >= '0' && c <= '9') return c - '0';
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    bool good = text.size() == kTagDigits || text.size() == 2 * ns.bytes.size();
    for (std::size_t i = 0; good && i < text.size(); ++i) {
        good = digit(text[i]) >= 0;
        if (good)
            ns.bytes[i / 2] = static_cast<std::uint8_t>(ns.bytes[i / 2] << 4 | digit(text[i]));
    }
    if (good) return ns;
    const bool upper =
        std::any_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'F'; });
    return invalid_argument(
        "--namespace \"{}\": expected 16 or 64 hex digits{}, as `stat` prints them",
        text.substr(0, 100), upper ? " in lower case" : "");
}

Result<NamespaceId> namespace_of_key(const std::string& directory, const DropSettings& settings) {
    std::ifstream file(settings.key_file, std::ios::binary);
    std::string key(kKeyBytesMax + 1, '\0');
    file.read(key.data(), static_cast<std::streamsize>(key.size()));
    if (file.bad() || (!file && file.gcount() == 0 && !file.eof()))
        return invalid_argument("--key-file {}: cannot be read", settings.key_file);
    key.resize(static_cast<std::size_t>(file.gcount()));
    while (!key.empty() && (key.back() == '\n' || key.back() == '\r'))
        key.pop_back();
    if (key.size() >= kKeyBytesMax || key.find('\n') != std::string::npos)
        return invalid_argument("--key-file {}: expected one line of at most {} bytes",
                                settings.key_file, kKeyBytesMax);
    KvSharingOptions sharing;
    FATHOM_ASSIGN(sharing.secret,
                  read_secret_file(
                      settings.secret_file.empty() ? directory + "/SECRET" : settings.secret_file,
                      "the pool's secret"));
    FATHOM_ASSIGN(const KvSharing of, kv_sharing(sharing, client_name(key), std::nullopt, {}));
    return tenant_namespace_of(settings.stack, of.group, of.secret);
}

Result<NamespaceId> wanted_namespace(const std::string& directory, const DropSettings& settings) {
    const bool by_key = !settings.key_file.empty();
    if (by_key && !settings.ns.empty())
        return invalid_argument(
            "which tenant? --namespace and --key-file both name one; give one of them");
    if (!by_key && settings.ns.empty())
        return invalid_argument(
            "which tenant? give --namespace HEX, or --model DIR with --key-file FILE");
    if (by_key == settings.stack.model_dir.empty())
        return by_key
                   ? invalid_argument(
                         "--key-file {}: --model DIR is missing, the checkpoint that was served",
                         settings.key_file)
                   : invalid_argument(
                         "--model goes with --key-file FILE; --namespace names the tenant alone");
    return by_key ? namespace_of_key(directory, settings) : parse_namespace(settings.ns);
}

// Blocks of the namespace in all pools, before and after.
Result<std::int64_t> blocks_of(PoolReader& reader, const std::vector<std::string>& pools,
                               const NamespaceId& ns, Watch& watch) {
    std::int64_t blocks = 0;
    for (const std::string& pool : pools) {
        FATHOM_ASSIGN(const PoolSurvey survey,
                      survey_pool(reader, pool, real_clock(), watch.progress("drop, segments")));
        const auto at = survey.namespaces.find(namespace_tag_text(namespace_tag(ns)));
        if (at != survey.namespaces.end()) blocks += at->second.blocks;
    }
    return blocks;
}

// Servers would not see a mark there.
Status refuse_peer(const std::string& directory) {
    if (::access((directory + "/SET").c_str(), F_OK) == 0) {
        return invalid_argument(
            "{}: is one device of a pool on several disks, whose parity would give the blocks "
            "again; nothing was dropped. Remove the tenant's key, or the whole pool",
            directory);
    }
    const std::string shared = shared_directories_of(directory).back();
    if (shared == shared_directories_of(directory).front()) return {};
    for (const char* of_a_pool : {"/POOL", "/SECRET"})
        if (::access((shared + of_a_pool).c_str(), F_OK) == 0)
            return invalid_argument("{}: is one of the pools in {}; name that directory", directory,
                                    shared);
    return {};
}

// One pool that is not rid of a marked namespace: empty when nobody has it and it is done now, else
// what it waits for.
Result<std::string> visit(PoolReader& reader, const std::string& pool, const std::string& key_dir) {
    if (const std::string holder = pool_holder(pool); !holder.empty())
        return holder + " has it open and has not answered yet";
    OfflineOptions options;
    FATHOM_ASSIGN(options.keys, keys_in(key_dir));
    const auto opened = open_offline(reader, pool, std::move(options));
    if (opened.ok()) return std::string();
    if (opened.status().code() == StatusCode::unavailable) return opened.status().message();
    return opened.status();
}

using Waiting = std::map<std::string, std::string>;  // by pool: what it waits for

// One look at all pools, those that came meanwhile included.
Result<Waiting> visit_all(PoolReader& reader, const std::string& directory, const std::string& name,
                          const std::string& key_dir) {
    Waiting waiting;
    FATHOM_ASSIGN(std::vector<DropMark> marks, list_drop_marks(reader.files(), directory));
    const auto mark = std::find_if(marks.begin(), marks.end(),
                                   [&](const DropMark& each) { return each.name == name; });
    if (mark == marks.end()) return waiting;  // a server saw that all are rid of it
    FATHOM_ASSIGN(const std::vector<std::string> pools, pools_in(reader, directory));
    for (const std::string& pool : pools) {
        const std::string rid = pool_name(directory, pool);
        if (mark->rid.contains(rid)) continue;
        FATHOM_ASSIGN(const std::string waits, visit(reader, pool, key_dir));
        if (!waits.empty()) waiting.emplace(pool, waits);
        if (waits.empty()) mark->rid.insert(rid);
    }
    // A mark that stays does no harm.
    if (waiting.empty()) (void)remove_drop_mark(reader, directory, *mark);
    return waiting;
}

// Until all pools are rid of it, or the time is up.
Result<Waiting> drop_everywhere(PoolReader& reader, const std::string& directory,
                                const NamespaceId& ns, const std::string& key_dir,
                                std::int64_t timeout_s, Watch& watch) {
    std::random_device random;
    FATHOM_ASSIGN(const std::string mark,
                  make_drop_mark(reader, directory, ns, real_clock().wall_unix_ms(),
                                 static_cast<std::uint64_t>(random()) << 32 | random()));
    const std::int64_t until_us = real_clock().now_us() + timeout_s * 1'000'000;
    // Whoever has to be waited for: what is encrypted does not open any more.
    FATHOM_ASSIGN(const std::unique_ptr<KeyRing> keys, keys_in(key_dir));
    if (keys != nullptr) FATHOM_RETURN_IF_ERROR(keys->destroy(ns));
    for (;;) {
        FATHOM_ASSIGN(Waiting waiting, visit_all(reader, directory, mark, key_dir));
        if (waiting.empty() || real_clock().now_us() >= until_us) return waiting;
        if (watch.interrupted())
            return Status(StatusCode::cancelled,
                          "interrupted; servers that have the pool open go on with it");
        std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
}

struct Dropped {
    std::string tag;
    std::int64_t before = 0, after = 0;  // blocks
    bool keys_erased = false;
    Waiting waiting;
};

void print_json(const Dropped& dropped) {
    Json::Array waiting;
    for (const auto& [pool, why] : dropped.waiting)
        waiting.push_back(Json::object({{"directory", pool}, {"waits_for", why}}));
    const Json report =
        Json::object({{"namespace", dropped.tag},
                      {"dropped_blocks", std::max<std::int64_t>(0, dropped.before - dropped.after)},
                      {"left_blocks", dropped.after},
                      {"keys_erased", dropped.keys_erased},
                      {"waiting", Json::array(std::move(waiting))}});
    fmt::print("{}\n", report.dump());
}

void print_text(const Dropped& dropped, const std::string& directory, std::int64_t timeout_s) {
    fmt::print("namespace {}: {} blocks dropped{}\n", dropped.tag,
               std::max<std::int64_t>(0, dropped.before - dropped.after),
               dropped.keys_erased ? ", its encryption key, if it had one, is destroyed" : "");
    if (dropped.before == 0)
        fmt::print("it had no block here; `fathom pool stat {}` lists those that have\n",
                   directory);
    for (const auto& [pool, why] : dropped.waiting)
        fmt::print("  not yet dropped from {}: {}\n", pool, why);
    if (!dropped.waiting.empty()) {
        fmt::print(
            "what to do: after {} s not every pool is rid of it. Each will be when its process "
            "answers, or\nwhen it is opened next; run this again to see that it is done\n",
            timeout_s);
    } else if (dropped.after > 0) {
        fmt::print("{} blocks of it were stored since, by servers that go on\n", dropped.after);
    }
}

Result<int> drop(const std::string& directory, const DropSettings& settings, Watch& watch) {
    FATHOM_RETURN_IF_ERROR(refuse_peer(directory));
    FATHOM_ASSIGN(const auto reader, make_pool_reader());
    FATHOM_ASSIGN(const std::vector<std::string> pools, pools_in(*reader, directory));
    FATHOM_ASSIGN(const NamespaceId ns, wanted_namespace(directory, settings));
    const std::string key_dir = settings.key_dir.empty() ? directory + "/keys" : settings.key_dir;
    Dropped dropped;
    dropped.tag = namespace_tag_text(namespace_tag(ns));
    dropped.keys_erased = ::access(key_dir.c_str(), F_OK) == 0;
    if (!settings.key_dir.empty() && !dropped.keys_erased)
        return invalid_argument("--key-dir {}: is not there", key_dir);
    FATHOM_ASSIGN(dropped.before, blocks_of(*reader, pools, ns, watch));
    FATHOM_ASSIGN(dropped.waiting,
                  drop_everywhere(*reader, directory, ns, key_dir, settings.timeout_s, watch));
    FATHOM_ASSIGN(const std::vector<std::string> now, pools_in(*reader, directory));
    FATHOM_ASSIGN(dropped.after, blocks_of(*reader, now, ns, watch));
    watch.clear();
    if (settings.json) {
        print_json(dropped);
    } else {
        print_text(dropped, directory, settings.timeout_s);
    }
    return dropped.waiting.empty() ? kExitOk : kExitFailed;
}

}  // namespace

int run_pool_drop(const std::vector<std::string>& args) {
    DropSettings settings;
    return run_pool_command(
        args, {.name = "drop",
               .spec = kSpec,
               .bind = [&](ConfigSchema& schema) { bind(settings, schema); },
               .run = [&](const std::string& directory,
                          Watch& watch) { return drop(directory, settings, watch); }});
}

}  // namespace fathom
