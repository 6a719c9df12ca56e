#include "pool/rados_store.h"

#include <algorithm>
#include <future>
#include <limits>
#include <utility>

#include "base/check.h"
#include "pool/rados_core.h"

namespace fathom {

namespace {

constexpr int kDepthMax = 256;  // librados makes callers wait beyond 1024 operations or 100 MiB

Status check(const RadosOptions& options) {
    for (const auto& [name, value] :
         {std::pair("pool.rados_pool", options.cluster.pool),
          std::pair("pool.rados_index_pool", options.cluster.index_pool),
          std::pair("pool.rados_user", options.cluster.user)})
        if (value.empty()) return invalid_argument("{} is empty; name what the cluster has", name);
    if (options.encrypt && options.keys == nullptr)
        return invalid_argument("to encrypt needs a directory of keys; give pool.key_dir");
    for (const int depth : {options.io_depth, options.stat_depth})
        if (depth < 1 || depth > kDepthMax)
            return invalid_argument("depth {}: 1 to {} are possible", depth, kDepthMax);
    if (options.cluster.timeout_s < 1)
        return invalid_argument("a time-out of {} s; it begins at 1", options.cluster.timeout_s);
    if (options.sweep_interval_us < 1 || options.beat_us < 1 || !(options.sweep_blocks_per_s > 0))
        return invalid_argument("intervals and rates of upkeep must be positive");
    for (const ClassLife& life : options.lives) {
        if (life.ttl_ms < 1 || life.bucket_ms < 1)
            return invalid_argument("a class that lives {} ms in buckets of {} ms; both begin at 1",
                                    life.ttl_ms, life.bucket_ms);
    }
    return {};
}

}  // namespace

// What outlives the store while handles of its calls do.
struct RadosStore::Front : std::enable_shared_from_this<RadosStore::Front> {
    Front(const Clock& clock, std::int64_t payload) : thread(clock), payload_bytes(payload) {}

    struct Handle : StoreOp {
        Handle(std::shared_ptr<Front> of, RadosCallPtr running)
            : front(std::move(of)), call(std::move(running)) {}
        void cancel() override {
            // Once the store has ended this is posted to nobody.
            Front& to = *front;
            to.thread.post([&to, call = call] { to.core->cancel(call); });
        }
        std::shared_ptr<Front> front;
        RadosCallPtr call;
    };

    template <typename Call, typename Begin>
    StoreOpPtr start(std::shared_ptr<Call> call, Deadline deadline, Begin begin) {
        call->deadline = deadline;
        thread.post([this, call, begin = std::move(begin)] { begin(*core, call); });
        return std::make_shared<Handle>(shared_from_this(), std::move(call));
    }
    template <typename Call>
    StoreOpPtr start(std::shared_ptr<Call> call, Deadline deadline) {
        return start(std::move(call), deadline,
                     [](RadosCore& to, const std::shared_ptr<Call>& of) { to.begin(of); });
    }

    StoreThread thread;
    LatestValue<StoreHealth> health;
    const std::int64_t payload_bytes;
    std::unique_ptr<RadosCore> core;  // the thread's, from open() until the thread has ended
    bool close_called = false;        // by the owner
};

Result<std::unique_ptr<RadosStore>> RadosStore::open(RadosOptions options) {
    FATHOM_RETURN_IF_ERROR(check(options));
    FATHOM_ASSIGN(const SlotGeometry geometry, slot_geometry(options.payload_bytes));
    const Clock& clock = options.clock != nullptr ? *options.clock : real_clock();
    const auto front = std::make_shared<Front>(clock, options.payload_bytes);
    StoreThread& thread = front->thread;
    FATHOM_ASSIGN(std::unique_ptr<RadosCluster> cluster,
                  connect_rados(options.cluster, [&thread](std::function<void()> task) {
                      thread.post(std::move(task));
                  }));
    front->core = std::make_unique<RadosCore>(std::move(options), geometry, thread, front->health,
                                              std::move(cluster));
    std::unique_ptr<RadosStore> store(new RadosStore(front));
    std::promise<Status> opened;
    thread.post([&core = *front->core, &opened] {
        core.open([&opened](Status status) { opened.set_value(std::move(status)); });
    });
    FATHOM_RETURN_IF_ERROR(opened.get_future().get());
    return store;
}

RadosStore::RadosStore(std::shared_ptr<Front> front) : front_(std::move(front)) {}

RadosStore::~RadosStore() {
    if (!front_->close_called) close({std::numeric_limits<std::int64_t>::min()});
    front_->thread.stop();
    front_->core.reset();
}

void RadosStore::close(Deadline deadline) {
    front_->close_called = true;
    std::promise<void> closed;
    front_->thread.post([&core = *front_->core, deadline, &closed] {
        core.begin_close(deadline, [&closed] { closed.set_value(); });
    });
    closed.get_future().wait();
}

std::int64_t RadosStore::payload_bytes() const {
    return front_->payload_bytes;
}

StoreHealth RadosStore::health() const {
    return front_->health.get();
}

StoreOpPtr RadosStore::exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) {
    auto call = std::make_shared<RadosExists>();
    call->keys = std::move(keys);
    call->done = std::move(done);
    return front_->start(std::move(call), deadline);
}

StoreOpPtr RadosStore::longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                                      PrefixDone done) {
    auto call = std::make_shared<RadosPrefix>();
    call->chain = std::move(chain);
    call->done = std::move(done);
    return front_->start(std::move(call), deadline);
}

StoreOpPtr RadosStore::get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) {
    auto call = std::make_shared<RadosGet>();
    call->requests = std::move(requests);
    call->calls = std::move(calls);
    return front_->start(std::move(call), deadline);
}

StoreOpPtr RadosStore::put(std::vector<PutRequest> requests, const PutOptions& options,
                           Deadline deadline, PutCalls calls) {
    auto call = std::make_shared<RadosPut>();
    call->requests = std::move(requests);
    call->options = options;
    call->calls = std::move(calls);
    return front_->start(std::move(call), deadline);
}

StoreOpPtr RadosStore::drop_namespace(const NamespaceId& ns, Deadline deadline,
                                      std::function<void(Status status)> done) {
    auto call = std::make_shared<RadosTask>();
    call->done = std::move(done);
    return front_->start(
        std::move(call), deadline,
        [ns](RadosCore& core, const std::shared_ptr<RadosTask>& of) { core.begin_drop(of, ns); });
}

StoreOpPtr RadosStore::collect(Deadline deadline, std::function<void(Status status)> done) {
    auto call = std::make_shared<RadosTask>();
    call->done = std::move(done);
    return front_->start(
        std::move(call), deadline,
        [](RadosCore& core, const std::shared_ptr<RadosTask>& of) { core.begin_collect(of); });
}

}  // namespace fathom
