#include "pool/embedded_store.h"

#include <future>
#include <limits>
#include <memory>
#include <utility>

#include "base/check.h"
#include "pool/embedded_core.h"
#include "pool/store_mailbox.h"

namespace fathom {

namespace {

using Message = std::function<void(EmbeddedCore& core)>;

constexpr std::int64_t kSegmentsMin = 8;
constexpr int kIoDepthMax = 1024;

Status check(const EmbeddedOptions& options) {
    if (options.directory.empty()) return invalid_argument("the directory of the pool is empty");
    if (options.capacity_bytes < kSegmentsMin * kSegmentBytes) {
        return invalid_argument("{}: a capacity of {} bytes; at least {} are needed",
                                options.directory, options.capacity_bytes,
                                kSegmentsMin * kSegmentBytes);
    }
    if (options.io_depth < 1 || options.io_depth > kIoDepthMax) {
        return invalid_argument("I/O depth {}: 1 to {} are possible", options.io_depth,
                                kIoDepthMax);
    }
    if (!(options.low_watermark > 0 && options.low_watermark <= options.high_watermark &&
          options.high_watermark <= 1)) {
        return invalid_argument("watermarks {} and {}: expected 0 < low <= high <= 1",
                                options.low_watermark, options.high_watermark);
    }
    if (options.encrypt && options.keys == nullptr)
        return invalid_argument("{}: to encrypt needs a directory of keys", options.directory);
    for (const ClassLife& life : options.lives) {
        if (life.ttl_ms < 1 || life.bucket_ms < 1) {
            return invalid_argument("a class that lives {} ms in buckets of {} ms; both begin at 1",
                                    life.ttl_ms, life.bucket_ms);
        }
    }
    return {};
}

}  // namespace

// What outlives the store while handles of its calls do.
struct EmbeddedStore::Front : std::enable_shared_from_this<EmbeddedStore::Front> {
    Front(std::unique_ptr<FileLayer> layer, std::int64_t payload)
        : files(std::move(layer)), mailbox([this] { files->wake(); }), payload_bytes(payload) {}

    struct Handle : StoreOp {
        Handle(std::shared_ptr<Front> of, std::shared_ptr<StoreCall> running)
            : front(std::move(of)), call(std::move(running)) {}
        void cancel() override {
            (void)front->mailbox.post([call = call](EmbeddedCore& core) { core.cancel(call); });
        }
        std::shared_ptr<Front> front;
        std::shared_ptr<StoreCall> call;
    };

    // begin(core, call) on the store's thread.
    template <typename Call, typename Begin>
    StoreOpPtr post(const std::shared_ptr<Call>& call, Deadline deadline, Begin begin) {
        call->deadline = deadline;
        const bool posted = mailbox.post(
            [call, begin = std::move(begin)](EmbeddedCore& core) { begin(core, call); });
        FATHOM_CHECK(posted, "a store was called after its end");
        return std::make_shared<Handle>(shared_from_this(), call);
    }
    // The same for a call with one answer: it does not begin when it is too late for it.
    template <typename Begin>
    StoreOpPtr post_task(std::function<void(Status)> done, Deadline deadline, Begin begin) {
        const auto call = std::make_shared<TaskCall>();
        call->done = std::move(done);
        return post(
            call, deadline,
            [begin = std::move(begin)](EmbeddedCore& core, const std::shared_ptr<TaskCall>& of) {
                Status refused = core.refusal(of->deadline);
                if (refused.ok()) return begin(core, of);
                of->finished = true;
                std::exchange(of->done, {})(std::move(refused));
            });
    }

    void run(EmbeddedCore& core) {
        std::vector<Message> messages;
        while (!core.ended()) {
            messages.clear();
            mailbox.take(messages);
            for (const Message& message : messages)
                message(core);
            core.turn();
            core.wait(!core.ended() && mailbox.begin_sleep());
            mailbox.end_sleep();
        }
    }

    std::unique_ptr<FileLayer> files;  // until the thread ends
    StoreMailbox<Message> mailbox;
    LatestValue<StoreHealth> health;
    const std::int64_t payload_bytes;
    bool close_called = false;  // by the owner
};

Result<std::unique_ptr<EmbeddedStore>> EmbeddedStore::open(EmbeddedOptions options) {
    FATHOM_RETURN_IF_ERROR(check(options));
    FATHOM_ASSIGN(const SlotGeometry geometry, slot_geometry(options.payload_bytes));
    std::unique_ptr<FileLayer> files = std::move(options.files);
    if (files == nullptr) {
        FATHOM_ASSIGN(files, make_file_layer(embedded_ring_depth(options.io_depth)));
    }
    const auto front = std::make_shared<Front>(std::move(files), options.payload_bytes);
    std::unique_ptr<EmbeddedStore> store(new EmbeddedStore(front));
    std::promise<Status> opened;
    std::future<Status> status = opened.get_future();
    const auto given = std::make_shared<EmbeddedOptions>(std::move(options));
    store->thread_ = std::thread([front, geometry, given, result = std::move(opened)]() mutable {
        {
            EmbeddedCore core(std::move(*given), geometry, *front->files, front->health);
            Status done = core.open();
            const bool good = done.ok();
            result.set_value(std::move(done));
            if (good) front->run(core);
        }
        // Cancelling a call of a store that has ended is allowed, and does nothing.
        for (std::vector<Message> late; !front->mailbox.close(); late.clear())
            front->mailbox.take(late);
        front->files.reset();
    });
    Status result = status.get();
    if (result.ok()) return store;
    front->close_called = true;
    store->thread_.join();
    return result;
}

EmbeddedStore::EmbeddedStore(std::shared_ptr<Front> front) : front_(std::move(front)) {}

EmbeddedStore::~EmbeddedStore() {
    if (!thread_.joinable()) return;
    if (!front_->close_called) close({std::numeric_limits<std::int64_t>::min()});
    (void)front_->mailbox.post([](EmbeddedCore& core) { core.end_loop(); });
    thread_.join();
}

void EmbeddedStore::close(Deadline deadline) {
    front_->close_called = true;
    std::promise<void> closed;
    (void)front_->mailbox.post([deadline, &closed](EmbeddedCore& core) {
        core.begin_close(deadline, [&closed] { closed.set_value(); });
    });
    closed.get_future().wait();
}

std::int64_t EmbeddedStore::payload_bytes() const {
    return front_->payload_bytes;
}

StoreHealth EmbeddedStore::health() const {
    return front_->health.get();
}

StoreOpPtr EmbeddedStore::exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) {
    const auto answer = std::make_shared<std::vector<bool>>(keys.size());
    return front_->post_task(
        [answer, done = std::move(done)](Status status) {
            done(std::move(*answer), std::move(status));
        },
        deadline,
        [answer, keys = std::move(keys)](EmbeddedCore& core, const auto& call) {
            *answer = core.exists(keys);
            EmbeddedCore::answer(*call);
        });
}

StoreOpPtr EmbeddedStore::longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                                         PrefixDone done) {
    const auto blocks = std::make_shared<std::size_t>(0);
    return front_->post_task(
        [blocks, done = std::move(done)](Status status) { done(*blocks, std::move(status)); },
        deadline,
        [blocks, chain = std::move(chain)](EmbeddedCore& core, const auto& call) {
            *blocks = core.longest_prefix(chain);
            EmbeddedCore::answer(*call);
        });
}

StoreOpPtr EmbeddedStore::get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) {
    const auto call = std::make_shared<GetCall>();
    call->requests = std::move(requests);
    call->calls = std::move(calls);
    return front_->post(call, deadline, [](EmbeddedCore& core, const auto& of) { core.begin(of); });
}

StoreOpPtr EmbeddedStore::put(std::vector<PutRequest> requests, const PutOptions& options,
                              Deadline deadline, PutCalls calls) {
    const auto call = std::make_shared<PutCall>();
    call->requests = std::move(requests);
    call->options = options;
    call->calls = std::move(calls);
    return front_->post(call, deadline, [](EmbeddedCore& core, const auto& of) { core.begin(of); });
}

StoreOpPtr EmbeddedStore::drop_namespace(const NamespaceId& ns, Deadline deadline,
                                         std::function<void(Status status)> done) {
    return front_->post_task(std::move(done), deadline, [ns](EmbeddedCore& core, const auto& call) {
        core.begin_drop(call, ns);
    });
}

StoreOpPtr EmbeddedStore::collect(Deadline deadline, std::function<void(Status status)> done) {
    return front_->post_task(std::move(done), deadline, [](EmbeddedCore& core, const auto& call) {
        core.begin_collect(call);
    });
}

StoreOpPtr EmbeddedStore::scrub(Deadline deadline,
                                std::function<void(ScrubReport report, Status status)> done) {
    const auto report = std::make_shared<ScrubReport>();
    return front_->post_task(
        [report, done = std::move(done)](Status status) { done(*report, std::move(status)); },
        deadline,
        [report](EmbeddedCore& core, const auto& call) { core.begin_scrub(call, report); });
}

void EmbeddedStore::set_others(const OthersUsage& others) {
    (void)front_->mailbox.post([others](EmbeddedCore& core) { core.set_others(others); });
}

StoreOpPtr EmbeddedStore::usage(Deadline deadline,
                                std::function<void(PoolUsage usage, Status status)> done) {
    const auto usage = std::make_shared<PoolUsage>();
    return front_->post_task(
        [usage, done = std::move(done)](Status status) { done(*usage, std::move(status)); },
        deadline,
        [usage](EmbeddedCore& core, const auto& call) {
            *usage = core.usage();
            EmbeddedCore::answer(*call);
        });
}

StoreOpPtr EmbeddedStore::adopt(TrafficClass traffic_class, std::int64_t bucket_start_ms,
                                std::uint64_t id, Deadline deadline,
                                std::function<void(Status status)> done) {
    return front_->post_task(std::move(done), deadline, [=](EmbeddedCore& core, const auto& call) {
        core.begin_adopt(call, traffic_class, bucket_start_ms, id);
    });
}

StoreOpPtr EmbeddedStore::restore(const BlockKey& key, std::uint64_t segment, std::uint32_t slot,
                                  Deadline deadline, std::function<void(Status status)> done) {
    return front_->post_task(std::move(done), deadline, [=](EmbeddedCore& core, const auto& call) {
        core.restore(key, segment, slot);
        EmbeddedCore::answer(*call);
    });
}

}  // namespace fathom
