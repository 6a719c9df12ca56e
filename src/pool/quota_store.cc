#include "pool/quota_store.h"

#include <atomic>
#include <utility>

#include "pool/call_end.h"
#include "pool/class_life.h"
#include "pool/quota_ledger.h"
#include "pool/store_thread.h"

namespace fathom {

namespace {

// A put whose admitted part is with the store.
struct QuotaPut {
    std::vector<PutRequest> requests;
    PutOptions options;
    Deadline deadline;
    BlockStore::PutCalls calls;
    std::atomic<bool> cancelled{false};
    // The thread's.
    StoreOpPtr op;                      // in the store
    std::vector<std::size_t> admitted;  // indices of requests
    PutResult result;
};
using QuotaPutPtr = std::shared_ptr<QuotaPut>;

}  // namespace

class QuotaStore::Core {
  public:
    Core(BlockStore& store, const QuotaOptions& options, const Clock& clock)
        : store_(store),
          clock_(clock),
          ledger_(options.limits, store.payload_bytes()),
          thread_(clock) {
        MetricsRegistry& registry = options.metrics != nullptr ? *options.metrics : own_registry_;
        refused_ = &registry.counter("kvpool_quota_refused_blocks_total",
                                     "Blocks not stored because their share group's quota is used");
    }

    StoreThread& thread() { return thread_; }
    QuotaLedger& ledger() { return ledger_; }  // on the thread

    // The rest runs on the thread.
    void start(const QuotaPutPtr& put) {
        const std::size_t count = put->requests.size();
        put->result.blocks.resize(count, PutOutcome::quota);
        std::vector<PutRequest> admitted;
        for (std::size_t i = 0; i < count; ++i) {
            const PutRequest& request = put->requests[i];
            if (!ledger_.reserve(request.name.ns, clock_.now_us(), clock_.wall_unix_ms())) continue;
            put->admitted.push_back(i);
            admitted.push_back(request);
        }
        refused_->add(count - admitted.size());
        if (admitted.empty() && count > 0) {
            put->calls.done(std::move(put->result));
            if (put->calls.released) put->calls.released();
            return;
        }
        put->op = store_.put(
            std::move(admitted), put->options, put->deadline,
            {.done =
                 [this, put](PutResult result) {
                     const auto shared = std::make_shared<PutResult>(std::move(result));
                     thread_.post([this, put, shared] { finish(*put, std::move(*shared)); });
                 },
             .released =
                 [this, put] {
                     thread_.post([put] {
                         put->op.reset();
                         if (put->calls.released) put->calls.released();
                     });
                 }});
        if (put->cancelled.load()) put->op->cancel();
    }

    void finish(QuotaPut& put, PutResult result) {
        const ClassLife& life = class_life(put.options.traffic_class);
        const std::int64_t expiry_ms =
            bucket_expiry_ms(life, bucket_start_ms(life, clock_.wall_unix_ms()));
        for (std::size_t i = 0; i < put.admitted.size(); ++i) {
            const std::size_t index = put.admitted[i];
            const PutOutcome outcome = result.blocks[i];
            const NamespaceId& ns = put.requests[index].name.ns;
            if (outcome == PutOutcome::stored || outcome == PutOutcome::renewed) {
                ledger_.stored(ns, expiry_ms);
            } else {
                ledger_.not_stored(ns);
            }
            put.result.blocks[index] = outcome;
        }
        put.result.status = std::move(result.status);
        put.calls.done(std::move(put.result));
    }

  private:
    BlockStore& store_;
    const Clock& clock_;
    MetricsRegistry own_registry_;
    Counter* refused_ = nullptr;
    QuotaLedger ledger_;
    StoreThread thread_;  // last: the first to go
};

namespace {

template <typename Core>
class QuotaOp final : public StoreOp {
  public:
    QuotaOp(QuotaPutPtr put, std::weak_ptr<Core> core)
        : put_(std::move(put)), core_(std::move(core)) {}
    void cancel() override {
        if (put_->cancelled.exchange(true)) return;
        const std::shared_ptr<Core> core = core_.lock();
        if (core == nullptr) return;
        core->thread().post([put = put_] {
            if (put->op != nullptr) put->op->cancel();
        });
    }

  private:
    const QuotaPutPtr put_;
    const std::weak_ptr<Core> core_;
};

}  // namespace

QuotaStore::QuotaStore(std::unique_ptr<BlockStore> store, const QuotaOptions& options,
                       const Clock& clock)
    : store_(std::move(store)), core_(std::make_shared<Core>(*store_, options, clock)) {}

QuotaStore::~QuotaStore() {
    core_->thread().drain();  // what is not with the store yet
    store_.reset();
    core_->thread().stop();
}

void QuotaStore::settle() {
    core_->thread().drain();
}

StoreOpPtr QuotaStore::put(std::vector<PutRequest> requests, const PutOptions& options,
                           Deadline deadline, PutCalls calls) {
    const auto put = std::make_shared<QuotaPut>();
    put->requests = std::move(requests);
    put->options = options;
    put->deadline = deadline;
    put->calls = std::move(calls);
    core_->thread().post([core = core_.get(), put] { core->start(put); });
    return std::make_shared<QuotaOp<Core>>(put, core_);
}

StoreOpPtr QuotaStore::drop_namespace(const NamespaceId& ns, Deadline deadline,
                                      std::function<void(Status status)> done) {
    return store_->drop_namespace(ns, deadline, [core = core_.get(), ns, done](Status status) {
        core->thread().post([core, ns, done, status] {
            if (status.ok()) core->ledger().dropped(ns);
            done(status);
        });
    });
}

void QuotaStore::close(Deadline deadline) {
    core_->thread().drain();
    store_->close(deadline);
    core_->thread().drain();
}

void QuotaStore::set_usage(std::uint64_t ns_tag, BytesByExpiry usage) {
    core_->thread().post([core = core_.get(), ns_tag, usage = std::move(usage)] {
        core->ledger().set_usage(ns_tag, usage);
    });
}

}  // namespace fathom
