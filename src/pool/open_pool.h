// A pool as a process uses it: the store that its options name, the tier over it for engines, and
// the secret of its namespaces.
//
//   engine ─ PoolTier ─ QuotaStore ─ BreakerStore ─ SharedStore | EmbeddedStore | RadosStore
//
// The secret is what keeps names of blocks from being computed by who can ask the store (kvpool.md
// 10). It lies in a file, by default SECRET in the pool's directory, made when it is absent and
// readable by its owner alone. Who keeps the pool on a shared disk keeps it elsewhere
// (secret_file). A cluster is told no secret: its pools need a secret_file that is there already,
// the same for all who share them. Losing it loses no data but every block's name: the pool starts
// anew.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/result.h"
#include "pool/block_store.h"
#include "pool/health_watch.h"
#include "pool/pool_tier.h"
#include "pool/quota_store.h"
#include "pool/rados_cluster.h"

namespace fathom {

struct OpenPoolOptions {
    // "shared": other processes may have the directory too; "embedded": this one alone; or "rados".
    std::string store = "shared";
    std::string directory;
    // Instead of it, for this process alone: directories on several devices, and the code over
    // them (ec_store.h), as "4+2". Each has a copy of the secret.
    std::vector<std::string> directories = {};
    std::string ec = {};
    std::string writer;  // of a shared one: SharedOptions::writer
    RadosClusterOptions rados{.conf = {},
                              .user = "admin",
                              .keyring = {},
                              .pool = "fathom",
                              .index_pool = "fathom_lists",
                              .rados_namespace = {}};
    std::string secret_file;  // empty: directory/SECRET
    std::int64_t payload_bytes = 0;
    // 0: half of what is free or the pool's, at most 1 TiB; of `directories`: in each.
    std::int64_t capacity_bytes = 0;
    // Slots are encrypted, each under its namespace's key (key_ring.h). A pool that holds encrypted
    // slots reads them without this as well, where the keys are.
    bool encrypt = false;
    std::string key_directory;  // empty: directory/keys; needed with `directories`
    QuotaLimits quota;          // of one namespace, which is one API key's unless all share
    PoolTierOptions tier;

    bool named() const { return store == "rados" || !directory.empty() || several(); }
    bool several() const { return !directories.empty() || !ec.empty(); }
};

class OpenPool {
  public:
    // Errors name path, cause and remedy. Clock and registry outlive the pool.
    static Result<std::unique_ptr<OpenPool>> open(const OpenPoolOptions& options,
                                                  const Clock& clock, MetricsRegistry& metrics);
    ~OpenPool();  // stores what is staged, for some seconds, and closes; no engine uses it any more

    BlockStore& store() { return *store_; }
    PoolTier& tier() { return *tier_; }
    const std::string& secret() const { return secret_; }
    StoreHealth health() const { return health_->seen(); }  // a second old at most; any thread

  private:
    explicit OpenPool(const Clock& clock) : clock_(clock) {}

    const Clock& clock_;
    std::string secret_;
    std::unique_ptr<BlockStore> store_;
    std::unique_ptr<PoolTier> tier_;
    std::unique_ptr<HealthWatch> health_;
};

// The capacity of a pool that was given none: half of what its file system has free (`available`)
// and its own files take (`taken`), so that it stays the same from one life to the next; at most
// 1 TiB. resource_exhausted, with these figures, when that is too little for a pool.
Result<std::int64_t> share_of_disk(const std::string& directory, std::uint64_t available_bytes,
                                   std::uint64_t taken_bytes);

// Whether a pool can be at a path that somebody named: it is refused when it is empty
// (invalid_argument) or a link to what is not there (not_found).
Status check_pool_path(const std::string& path);

// The bytes of the file; made of random ones when it is absent. Errors: a file of another size, or
// one that others may read.
Result<std::string> read_or_make_secret(const std::string& path);

}  // namespace fathom
