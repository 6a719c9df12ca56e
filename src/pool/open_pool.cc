#include "pool/open_pool.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/queue.h"
#include "pool/breaker_store.h"
#include "pool/drop_marks.h"
#include "pool/embedded_store.h"
#include "pool/key_ring.h"
#include "pool/open_ec.h"
#include "pool/pool_files.h"
#include "pool/rados_store.h"
#include "pool/secret_file.h"
#include "pool/shared_store.h"

namespace fathom {

namespace {

constexpr std::int64_t kCapacityMax = std::int64_t{1} << 40;
constexpr std::int64_t kCapacityMin = 8 * kSegmentBytes;  // of an embedded store
constexpr std::int64_t kStoreStagedUs = 10'000'000;
constexpr std::int64_t kCloseUs = 10'000'000;
constexpr std::int64_t kUsageUs = 10'000'000;
// What even a slow disk under load does not reach: 22 MiB/s, after a second in its queue.
constexpr std::int64_t kSlowUs = 1'000'000, kSlowUsPerBlock = 5'000;

// What lies below the directory takes of its file system.
std::uintmax_t taken_bytes(const std::string& directory) {
    std::uintmax_t bytes = 0;
    std::error_code failed;
    std::filesystem::recursive_directory_iterator at(directory, failed), end;
    while (!failed && at != end) {
        struct stat facts {};
        if (::lstat(at->path().c_str(), &facts) == 0 && S_ISREG(facts.st_mode))
            bytes += static_cast<std::uintmax_t>(facts.st_blocks) * 512;
        at.increment(failed);
    }
    return bytes;
}

Result<std::int64_t> free_share(const std::string& directory) {
    std::error_code failed;
    const std::filesystem::space_info space = std::filesystem::space(directory, failed);
    if (failed)
        return error(StatusCode::unavailable, "{}: {}; give pool.capacity_mib", directory,
                     failed.message());
    return share_of_disk(directory, space.available, taken_bytes(directory));
}

// With `encrypt` the ring is made; without it what is encrypted is read where the keys are.
Result<std::unique_ptr<KeyRing>> open_keys(const OpenPoolOptions& options, const Clock& clock) {
    const std::string path =
        options.key_directory.empty() ? options.directory + "/keys" : options.key_directory;
    if (!options.encrypt && ::access(path.c_str(), F_OK) != 0) return nullptr;
    return KeyRing::open(path, clock);
}

// What each namespace holds already counts towards its quota.
void count_usage(const std::vector<EmbeddedStore*>& stores, QuotaStore& quota, const Clock& clock) {
    std::map<std::uint64_t, BytesByExpiry> held;
    for (EmbeddedStore* store : stores) {
        const auto answer = std::make_shared<BoundedQueue<PoolUsage>>(1);
        (void)store->usage(
            Deadline{clock.now_us() + kUsageUs},
            [answer](PoolUsage usage, const Status&) { (void)answer->try_push(std::move(usage)); });
        const std::optional<PoolUsage> usage = answer->pop(2 * kUsageUs);
        if (!usage) continue;
        for (const auto& [ns_tag, blocks] : usage->opened_with)
            for (const auto& [expiry_ms, count] : blocks)
                held[ns_tag][expiry_ms] += count * store->payload_bytes();
    }
    for (auto& [ns_tag, bytes] : held)
        quota.set_usage(ns_tag, std::move(bytes));
}

// What may lie where a pool is before its first POOL is written: what it makes itself, what its
// user may put there, and the file system's own.
bool belongs_to_a_pool(const std::string& directory, const std::string& name,
                       const OpenPoolOptions& options) {
    constexpr std::array<std::string_view, 10> kKnown = {
        "POOL", "LOCK", "seg", "lost", "peers", "drops", "windows", "keys", "SECRET", "lost+found"};
    if (std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) return true;
    if (name.starts_with("SECRET.")) return true;  // a draft of it
    const std::filesystem::path path = std::filesystem::path(directory) / name;
    std::error_code failed;
    const auto is = [&](const std::string& named) {
        return !named.empty() && std::filesystem::equivalent(path, named, failed);
    };
    return is(options.key_directory) || is(options.secret_file);
}

// A directory of something else stays as it is.
Status refuse_foreign_directory(const OpenPoolOptions& options) {
    const std::string& directory = options.directory;
    const std::unique_ptr<FileLayer> files = make_thread_file_layer(1);
    const auto pools = pool_directories(*files, directory);
    if (!pools.ok() || !pools->empty()) return pools.status();
    FATHOM_ASSIGN(const std::vector<FileName> names, files->list(directory));
    for (const FileName& name : names) {
        if (!belongs_to_a_pool(directory, name.name, options))
            return invalid_argument(
                "pool.dir \"{}\": holds no pool, and something else: \"{}\"; name an empty or new "
                "directory, for a pool fills and empties its own",
                directory, name.name);
    }
    return {};
}

// The smallest, so that all devices fill alike.
std::int64_t free_share_of_all(const std::vector<std::string>& directories) {
    std::int64_t least = kCapacityMax;
    for (const std::string& directory : directories) {
        const auto share = free_share(directory);
        const bool small = share.status().code() == StatusCode::resource_exhausted;
        if (share.ok() || small) least = std::min(least, small ? kCapacityMin : *share);
    }
    return least;
}

}  // namespace

Result<std::int64_t> share_of_disk(const std::string& directory, std::uint64_t available_bytes,
                                   std::uint64_t taken_bytes) {
    const std::uint64_t share =
        std::min((available_bytes + taken_bytes) / 2, static_cast<std::uint64_t>(kCapacityMax));
    if (share >= static_cast<std::uint64_t>(kCapacityMin)) return static_cast<std::int64_t>(share);
    return error(StatusCode::resource_exhausted,
                 "{}: its file system has {} MiB free and the pool takes {} MiB; half of that is "
                 "the pool's unless pool.capacity_mib says otherwise, and {} MiB is too little: "
                 "free some space, name another directory, or set pool.capacity_mib (at least {})",
                 directory, available_bytes >> 20, taken_bytes >> 20, share >> 20,
                 kCapacityMin >> 20);
}

Status check_pool_path(const std::string& path) {
    if (path.empty())
        return invalid_argument("the name of the directory is empty; name the one of the pool");
    std::error_code failed;
    if (!std::filesystem::is_symlink(path, failed) || std::filesystem::exists(path, failed))
        return {};
    return error(StatusCode::not_found,
                 "{}: is a link to {}, which is not there; is its disk mounted?", path,
                 std::filesystem::read_symlink(path, failed).string());
}

Result<std::string> read_or_make_secret(const std::string& path) {
    constexpr std::string_view kWhat = "the pool's secret";
    if (::access(path.c_str(), F_OK) != 0) FATHOM_RETURN_IF_ERROR(make_secret_file(path, kWhat));
    return read_secret_file(path, kWhat);
}

namespace {

struct OpenedStore {
    std::unique_ptr<BlockStore> store;
    std::vector<EmbeddedStore*> own = {};  // what this process writes to, inside
};

Result<OpenedStore> open_directory(const OpenPoolOptions& options, const Clock& clock,
                                   MetricsRegistry& metrics) {
    std::int64_t capacity_bytes = options.capacity_bytes;
    if (capacity_bytes == 0) {
        FATHOM_ASSIGN(capacity_bytes, free_share(options.directory));
    }
    if (capacity_bytes < kCapacityMin)
        return invalid_argument("pool.capacity_mib is {}, a pool needs at least {}",
                                capacity_bytes >> 20, kCapacityMin >> 20);
    const auto make_embedded = [options, capacity_bytes, &clock,
                                &metrics]() -> Result<EmbeddedOptions> {
        EmbeddedOptions embedded;
        embedded.directory = options.directory;
        embedded.payload_bytes = options.payload_bytes;
        embedded.capacity_bytes = capacity_bytes;
        embedded.clock = &clock;
        embedded.metrics = &metrics;
        embedded.encrypt = options.encrypt;
        FATHOM_ASSIGN(embedded.keys, open_keys(options, clock));
        return embedded;
    };
    if (options.store == "embedded") {
        FATHOM_ASSIGN(EmbeddedOptions embedded, make_embedded());
        FATHOM_ASSIGN(const std::unique_ptr<FileLayer> files, make_file_layer(1));
        FATHOM_ASSIGN(auto store, open_rid_of_drops(std::move(embedded), *files));
        EmbeddedStore* own = store.get();
        return OpenedStore{std::move(store), {own}};
    }
    SharedOptions shared;
    shared.make_embedded = make_embedded;
    shared.writer = options.writer;
    FATHOM_ASSIGN(auto store, SharedStore::open(std::move(shared)));
    EmbeddedStore* own = &store->own();
    return OpenedStore{std::move(store), {own}};
}

Result<std::unique_ptr<RadosStore>> open_cluster(const OpenPoolOptions& options, const Clock& clock,
                                                 MetricsRegistry& metrics) {
    RadosOptions rados;
    rados.cluster = options.rados;
    rados.payload_bytes = options.payload_bytes;
    rados.clock = &clock;
    rados.metrics = &metrics;
    rados.encrypt = options.encrypt;
    if (!options.key_directory.empty()) {
        FATHOM_ASSIGN(rados.keys, open_keys(options, clock));
    }
    return RadosStore::open(std::move(rados));
}

// Of one process, none may make its own: those that share a pool would not find each other's
// blocks.
Result<std::string> secret_of_cluster(const OpenPoolOptions& options) {
    constexpr const char* kHow = "head -c 32 /dev/urandom > FILE; chmod 600 FILE";
    if (!options.directory.empty())
        return invalid_argument(
            "pool.dir \"{}\" and pool.store = \"rados\": a pool is in a directory or in a cluster",
            options.directory);
    if (options.secret_file.empty())
        return invalid_argument(
            "pool.store = \"rados\" needs pool.secret_file, the same 32 bytes for all who share "
            "the "
            "pool; make it with: {}",
            kHow);
    auto secret = read_secret_file(options.secret_file, "the pool's secret");
    if (!secret.ok() && secret.status().code() == StatusCode::not_found)
        return error(StatusCode::not_found, "{}; make it once for all who share the pool: {}",
                     secret.status().message(), kHow);
    return secret;
}

Result<std::string> secret_of_directory(const OpenPoolOptions& options) {
    FATHOM_RETURN_IF_ERROR(check_pool_path(options.directory));
    std::error_code failed;
    std::filesystem::create_directories(options.directory, failed);
    if (failed)
        return invalid_argument("pool.dir \"{}\": {}; name a directory that can be written",
                                options.directory, failed.message());
    FATHOM_RETURN_IF_ERROR(refuse_foreign_directory(options));
    const std::string path =
        options.secret_file.empty() ? options.directory + "/SECRET" : options.secret_file;
    const bool lost = ::access(path.c_str(), F_OK) != 0 &&
                      ::access((options.directory + "/POOL").c_str(), F_OK) == 0;
    FATHOM_ASSIGN(std::string secret, read_or_make_secret(path));
    if (lost)
        log_warning(
            "pool: {}: was not there and is made anew; blocks stored under another secret are not "
            "found: put that one back if you have it",
            path);
    return secret;
}

}  // namespace

Result<std::unique_ptr<OpenPool>> OpenPool::open(const OpenPoolOptions& options, const Clock& clock,
                                                 MetricsRegistry& metrics) {
    const bool rados = options.store == "rados";
    std::unique_ptr<OpenPool> pool(new OpenPool(clock));
    OpenedStore opened;
    if (options.several()) {
        FATHOM_ASSIGN(OpenedEc ec,
                      open_ec(options, free_share_of_all(options.directories), clock, metrics));
        pool->secret_ = std::move(ec.secret);
        opened.own = ec.parts();
        opened.store = std::move(ec.store);
    } else if (rados) {
        FATHOM_ASSIGN(pool->secret_, secret_of_cluster(options));
        FATHOM_ASSIGN(opened.store, open_cluster(options, clock, metrics));
    } else {
        FATHOM_ASSIGN(pool->secret_, secret_of_directory(options));
        FATHOM_ASSIGN(opened, open_directory(options, clock, metrics));
    }
    auto breaker = std::make_unique<BreakerStore>(
        std::move(opened.store),
        BreakerOptions{
            .slow_us = kSlowUs, .slow_us_per_block = kSlowUsPerBlock, .metrics = &metrics},
        clock);
    auto quota = std::make_unique<QuotaStore>(
        std::move(breaker), QuotaOptions{.limits = options.quota, .metrics = &metrics}, clock);
    count_usage(opened.own, *quota, clock);
    pool->store_ = std::move(quota);
    pool->tier_ = std::make_unique<PoolTier>(*pool->store_, options.tier, clock, metrics);
    pool->health_ = std::make_unique<HealthWatch>(*pool->store_, metrics);
    return pool;
}

OpenPool::~OpenPool() {
    health_.reset();
    if (tier_) tier_->close(Deadline{clock_.now_us() + kStoreStagedUs});
    if (store_) store_->close(Deadline{clock_.now_us() + kCloseUs});
}

}  // namespace fathom
