#include "pool/ec_store.h"

#include <chrono>
#include <future>
#include <limits>
#include <utility>

#include "base/check.h"
#include "pool/ec_core.h"
#include "pool/ec_watcher.h"
#include "pool/prefix_search.h"

namespace fathom {

namespace {

constexpr int kWaitMs = 2;

Status check(const EcOptions& options) {
    const EcShape& shape = options.shape;
    if (shape.k < 1 || shape.k > kEcDataMax || shape.m < 1 || shape.m > kEcParityMax) {
        return invalid_argument("ec {}+{}: 1 to {} and 1 to {} are possible", shape.k, shape.m,
                                kEcDataMax, kEcParityMax);
    }
    const auto devices = static_cast<std::int64_t>(options.directories.size());
    if (devices < shape.shards() || devices > kEcDevicesMax) {
        return invalid_argument("ec {}+{} over {} directories; it needs {} to {}", shape.k, shape.m,
                                devices, shape.shards(), kEcDevicesMax);
    }
    for (const std::string& directory : options.directories)
        if (directory.empty()) return invalid_argument("a directory of the pool is empty");
    return {};
}

}  // namespace

EcCore::EcCore(EcOptions options, const SlotGeometry& geometry)
    : options_(std::move(options)),
      geometry_(geometry),
      clock_(options_.clock != nullptr ? *options_.clock : real_clock()),
      code_(options_.shape),
      lives_(options_.device ? options_.device().lives : kClassLives),
      own_registry_(options_.metrics == nullptr ? std::make_unique<MetricsRegistry>() : nullptr),
      metrics_(options_.metrics == nullptr ? *own_registry_ : *options_.metrics),
      encrypted_only_(options_.encrypt),
      pace_(clock_, options_.work_bytes_per_s),
      reader_(clock_),
      worker_(clock_),
      thread_(clock_) {}

EcCore::~EcCore() {
    stop();
}

// First the calls, then the devices, which seal what is open, then stripes of what was sealed.
void EcCore::close(Deadline deadline) {
    close_called_ = true;
    std::promise<void> ended;
    thread_.post([this, deadline, &ended] {
        closing_ = true;
        if (calls_.empty()) return ended.set_value();
        on_calls_ended_ = [&ended] { ended.set_value(); };
        const auto give_up = [this] {
            while (!calls_.empty()) {
                const std::shared_ptr<EcCall> call = calls_.begin()->second;
                for (const StoreOpPtr& op : call->ops)
                    op->cancel();
                call->give_up(*this, true);
            }
        };
        if (deadline.at_us <= clock_.now_us()) return give_up();
        (void)thread_.at(deadline.at_us, give_up);
    });
    ended.get_future().wait();
    for (Device& device : devices_)
        if (device.store != nullptr) device.store->close(deadline);
    thread_.drain();
    if (clock_.now_us() >= deadline.at_us) return pace_.stop();
    const auto protected_all = std::make_shared<std::promise<void>>();
    thread_.post([this, protected_all] {
        close_buckets_ = true;
        on_protected_ = [protected_all] { protected_all->set_value(); };
        naps_.try_push(true);
    });
    pace_.hurry();
    const auto future = protected_all->get_future();
    while (future.wait_for(std::chrono::milliseconds(kWaitMs)) != std::future_status::ready)
        if (clock_.now_us() >= deadline.at_us) return pace_.stop();
}

void EcCore::stop() {
    thread_.post([this] { stopped_ = true; });
    pace_.stop();
    naps_.try_push(true);
    worker_.stop();
    reader_.stop();
    if (!thread_ended_) thread_.drain();
    for (Device& device : devices_)
        device.store.reset();
    thread_.stop();
    thread_ended_ = true;
    // Handles of calls may live on; what others may want does not.
    keeper_.reset();
    keeper_disk_.reset();
    reader_disk_.reset();
    reader_keys_.reset();
    locks_.reset();
}

StoreHealth EcCore::health() const {
    StoreHealth health;
    const auto add = [&](const std::string& reason) {
        health.state = StoreHealth::State::degraded;
        health.reason += (health.reason.empty() ? "" : "; ") + reason;
    };
    for (const Device& device : devices_) {
        if (!device.trouble.empty()) add(device.trouble);
        if (device.store == nullptr) continue;
        const StoreHealth of = device.store->health();
        if (of.state != StoreHealth::State::ok) add(of.reason);
    }
    const EcUsage usage = usage_.get();
    if (usage.repairs_left > 0)
        add(fmt::format("{} files and rows are being rebuilt", usage.repairs_left));
    return health;
}

Result<std::unique_ptr<EcStore>> EcStore::open(EcOptions options) {
    FATHOM_RETURN_IF_ERROR(check(options));
    FATHOM_ASSIGN(const SlotGeometry geometry, slot_geometry(options.payload_bytes));
    const auto core = std::make_shared<EcCore>(std::move(options), geometry);
    Status opened = core->open();
    if (!opened.ok()) {
        core->stop();
        return opened;
    }
    return std::unique_ptr<EcStore>(new EcStore(core));
}

EcStore::EcStore(std::shared_ptr<EcCore> core) : core_(std::move(core)) {}

EcStore::~EcStore() {
    if (!core_->close_called()) close({std::numeric_limits<std::int64_t>::min()});
    core_->stop();
}

std::int64_t EcStore::payload_bytes() const {
    return core_->payload_bytes();
}

StoreOpPtr EcStore::exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) {
    return core_->begin_exists(std::move(keys), deadline, std::move(done));
}

StoreOpPtr EcStore::longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                                   PrefixDone done) {
    return core_->begin_exists(
        std::move(chain), deadline,
        [done = std::move(done)](const std::vector<bool>& present, Status status) {
            done(search_prefix(present.size(), [&](std::size_t i) -> bool { return present[i]; }),
                 std::move(status));
        });
}

StoreOpPtr EcStore::get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) {
    const auto call = std::make_shared<EcGet>();
    call->requests = std::move(requests);
    call->done = std::move(calls.done);
    call->released = std::move(calls.released);
    return core_->begin(call, deadline);
}

StoreOpPtr EcStore::put(std::vector<PutRequest> requests, const PutOptions& options,
                        Deadline deadline, PutCalls calls) {
    const auto call = std::make_shared<EcPut>();
    call->requests = std::move(requests);
    call->options = options;
    call->done = std::move(calls.done);
    call->released = std::move(calls.released);
    return core_->begin(call, deadline);
}

StoreOpPtr EcStore::drop_namespace(const NamespaceId& ns, Deadline deadline,
                                   std::function<void(Status status)> done) {
    return core_->begin_drop(ns, deadline, std::move(done));
}

StoreHealth EcStore::health() const {
    return core_->health();
}

void EcStore::close(Deadline deadline) {
    core_->close(deadline);
}

StoreOpPtr EcStore::scrub(Deadline deadline, std::function<void(Status status)> done) {
    return core_->begin_scrub(deadline, std::move(done));
}

StoreOpPtr EcStore::settle(Deadline deadline, std::function<void(Status status)> done) {
    return core_->begin_settle(deadline, std::move(done));
}

EcUsage EcStore::usage() const {
    return core_->usage();
}

std::int64_t EcStore::degraded_reads() const {
    return core_->degraded_reads();
}

std::size_t EcStore::devices() const {
    return core_->devices();
}

EmbeddedStore* EcStore::device(std::size_t position) {
    return core_->device(position);
}

}  // namespace fathom
