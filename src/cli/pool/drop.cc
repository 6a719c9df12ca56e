#include <fmt/core.h>

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <limits>

#include "cli/commands.h"
#include "cli/pool/admin.h"
#include "cli/pool/pool_command.h"
#include "cli/stack.h"
#include "gateway/kv_sharing.h"
#include "pool/secret_file.h"

namespace fathom {
namespace {

struct DropSettings {
    std::string ns, key_file, key_dir, secret_file;
    StackOptions stack;
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
        "server served it with;\nrequests with a cache salt have namespaces of their own. No "
        "server may have the pool open: end\nit first. Without encryption the bytes of payloads "
        "stay on the disk until their segment goes.",
    .tables = {"drop"},
    .aliases = {{"--namespace", "drop.namespace"},
                {"--model", "drop.model"},
                {"-m", "drop.model"},
                {"--key-file", "drop.key_file"},
                {"--key-dir", "drop.key_dir"},
                {"--secret-file", "drop.secret_file"},
                {"--json", "drop.json"}},
    .positional_max = 1};

constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};
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
    return invalid_argument("--namespace \"{}\": expected 16 or 64 hex digits, as `stat` prints",
                            text.substr(0, 100));
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
    if (by_key == !settings.ns.empty() || by_key == settings.stack.model_dir.empty())
        return invalid_argument(
            "which tenant? give --namespace HEX, or --model DIR with --key-file FILE");
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

Result<int> drop(const std::string& directory, const DropSettings& settings, Watch& watch) {
    FATHOM_ASSIGN(const auto reader, make_pool_reader());
    FATHOM_ASSIGN(const std::vector<std::string> pools, pools_in(*reader, directory));
    FATHOM_ASSIGN(const NamespaceId ns, wanted_namespace(directory, settings));
    const std::string key_dir = settings.key_dir.empty() ? directory + "/keys" : settings.key_dir;
    const bool has_keys = ::access(key_dir.c_str(), F_OK) == 0;
    if (!settings.key_dir.empty() && !has_keys)
        return invalid_argument("--key-dir {}: is not there", key_dir);
    FATHOM_ASSIGN(const std::int64_t before, blocks_of(*reader, pools, ns, watch));
    // All of them first: nothing is erased while a server could go on with the rest.
    std::vector<std::unique_ptr<EmbeddedStore>> stores;
    for (const std::string& pool : pools) {
        OfflineOptions options;
        if (has_keys) {
            FATHOM_ASSIGN(options.keys, KeyRing::open(key_dir, real_clock()));
        }
        FATHOM_ASSIGN(auto store, open_offline(*reader, pool, std::move(options)));
        stores.push_back(std::move(store));
    }
    for (const auto& store : stores) {
        FATHOM_RETURN_IF_ERROR(await(watch, [&](std::function<void(Status)> done) {
            (void)store->drop_namespace(ns, kNever, std::move(done));
        }));
        store->close(kNever);
    }
    stores.clear();
    FATHOM_ASSIGN(const std::int64_t after, blocks_of(*reader, pools, ns, watch));
    watch.clear();
    const std::string tag = namespace_tag_text(namespace_tag(ns));
    if (settings.json) {
        const Json report = Json::object({{"namespace", tag},
                                          {"dropped_blocks", before - after},
                                          {"left_blocks", after},
                                          {"keys_erased", has_keys}});
        fmt::print("{}\n", report.dump());
    } else {
        fmt::print("namespace {}: {} blocks dropped{}\n", tag, before - after,
                   has_keys ? ", its encryption key, if it had one, is destroyed" : "");
        if (before == 0)
            fmt::print("it had no block here; `fathom pool stat {}` lists those that have\n",
                       directory);
    }
    return after == 0 ? kExitOk : kExitFailed;
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
