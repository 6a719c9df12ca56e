// Limits of what one tenant may put into a store (kvpool.md 10): bytes at a time, and bytes a
// second. A namespace belongs to one share group, so namespaces are what is counted. Blocks beyond
// a limit are answered with `quota` and never reach the store; reads pass untouched.
//
// What a namespace holds is counted from what the store answered and forgotten when it expires by
// its class, or when the namespace is dropped. What the store evicts earlier is counted until
// then; a put that came too late for its answer and got there all the same is not. set_usage
// corrects the count by what was measured, and says after a restart what is there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/clock.h"
#include "base/metrics.h"
#include "pool/block_store.h"

namespace fathom {

struct QuotaLimits {
    std::int64_t bytes_max = 0;        // of payloads of one namespace; 0: no limit
    std::int64_t put_bytes_per_s = 0;  // 0: no limit
    std::int64_t put_burst_bytes = 0;  // what may be put at once after a pause; at least one block
};

using BytesByExpiry = std::map<std::int64_t, std::int64_t>;  // of payloads, by unix_ms

struct QuotaOptions {
    QuotaLimits limits;
    MetricsRegistry* metrics = nullptr;  // kvpool_quota_refused_blocks_total
};

class QuotaStore : public BlockStore {
  public:
    // The clock and the registry outlive the store.
    QuotaStore(std::unique_ptr<BlockStore> store, const QuotaOptions& options, const Clock& clock);
    ~QuotaStore() override;

    std::int64_t payload_bytes() const override { return store_->payload_bytes(); }
    StoreOpPtr exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) override {
        return store_->exists(std::move(keys), deadline, std::move(done));
    }
    StoreOpPtr longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                              PrefixDone done) override {
        return store_->longest_prefix(std::move(chain), deadline, std::move(done));
    }
    StoreOpPtr get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) override {
        return store_->get(std::move(requests), deadline, std::move(calls));
    }
    StoreOpPtr put(std::vector<PutRequest> requests, const PutOptions& options, Deadline deadline,
                   PutCalls calls) override;
    StoreOpPtr drop_namespace(const NamespaceId& ns, Deadline deadline,
                              std::function<void(Status status)> done) override;
    StoreHealth health() const override { return store_->health(); }
    void close(Deadline deadline) override;

    // Any thread: what the namespace of this tag (segment.h) holds now.
    void set_usage(std::uint64_t ns_tag, BytesByExpiry usage);
    // Waits until every put that was called is with the store or answered.
    void settle();

  private:
    class Core;
    std::unique_ptr<BlockStore> store_;
    std::shared_ptr<Core> core_;  // shared with handles of calls, which may outlive the store
};

}  // namespace fathom
