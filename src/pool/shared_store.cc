#include "pool/shared_store.h"

#include <algorithm>
#include <future>
#include <limits>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "pool/peer_looks.h"
#include "pool/prefix_search.h"
#include "pool/shared_core.h"

namespace fathom {

namespace {

using Message = std::function<void(SharedCore&)>;

constexpr int kPeersMax = 1024;
constexpr int kLookDepth = 32;
constexpr std::size_t kWriterCharsMax = 64;

struct OwnPool {
    std::string directory;
    std::unique_ptr<EmbeddedStore> store;
};

Status check_writer(const std::string& writer) {
    const bool good = writer.size() <= kWriterCharsMax && writer[0] != '.' &&
                      std::all_of(writer.begin(), writer.end(), [](char c) {
                          return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                 (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
                      });
    if (good) return {};
    return invalid_argument("the pool's writer \"{}\": 1 to {} letters, digits, - _ and . name it",
                            writer, kWriterCharsMax);
}

// Of the directory, when its lock is free. `taken`: it is not.
Result<std::unique_ptr<EmbeddedStore>> open_pool(const SharedOptions& options,
                                                 const std::string& directory, bool& taken) {
    FATHOM_ASSIGN(EmbeddedOptions embedded, options.make_embedded());
    FATHOM_ASSIGN(embedded.files, options.make_files(embedded_ring_depth(embedded.io_depth)));
    FATHOM_RETURN_IF_ERROR(embedded.files->make_directory(directory));
    const Status locked = embedded.files->lock(directory + "/LOCK");
    taken = locked.code() == StatusCode::unavailable;
    if (!locked.ok()) return locked;
    embedded.directory = directory;
    return EmbeddedStore::open(std::move(embedded));
}

// Names that a process must not write behind: above all links, which lead out of the pool.
std::set<std::string> not_directories(FileLayer& files, const std::string& path) {
    std::set<std::string> found;
    const auto names = files.list(path);
    if (!names.ok()) return found;
    for (const FileName& name : *names)
        if (!name.directory) found.insert(name.name);
    return found;
}

// The first pool that nobody has, or the writer's.
Result<OwnPool> open_own(const SharedOptions& options, const std::string& shared) {
    OwnPool own{shared, nullptr};
    bool taken = false;
    if (options.writer.empty()) {
        auto root = open_pool(options, shared, taken);
        if (!root.ok() && !taken) return root.status();
        if (root.ok()) own.store = std::move(*root);
        if (root.ok()) return own;
    }
    FATHOM_ASSIGN(std::unique_ptr<FileLayer> files, options.make_files(1));
    FATHOM_RETURN_IF_ERROR(files->make_directory(shared));
    FATHOM_RETURN_IF_ERROR(files->make_directory(shared + "/peers"));
    const std::set<std::string> elsewhere = not_directories(*files, shared + "/peers");
    const int last = options.writer.empty() ? kPeersMax : 1;
    for (int i = 1; i <= last; ++i) {
        own.directory =
            shared + "/peers/" + (options.writer.empty() ? std::to_string(i) : options.writer);
        const std::string name = own.directory.substr(own.directory.rfind('/') + 1);
        if (elsewhere.contains(name)) {
            if (options.writer.empty()) continue;
            return invalid_argument("{}: is no directory (a link?); remove it", own.directory);
        }
        auto peer = open_pool(options, own.directory, taken);
        if (peer.ok()) own.store = std::move(*peer);
        if (peer.ok()) return own;
        if (!taken || !options.writer.empty()) return peer.status();
    }
    return error(StatusCode::resource_exhausted, "{}: {} processes have it open", shared,
                 kPeersMax + 1);
}

// All pools of one directory have blocks of one size, or none would find the others'.
Status check_root(const SharedOptions& options, const EmbeddedOptions& embedded) {
    FATHOM_ASSIGN(std::unique_ptr<FileLayer> files, options.make_files(1));
    PoolReader reader(std::move(files));
    const auto root = reader.pool(embedded.directory);
    if (!root.ok() || root->payload_bytes == embedded.payload_bytes) return {};
    return invalid_argument(
        "{}: holds blocks of {} bytes, this model's have {}; give it another "
        "directory",
        embedded.directory, root->payload_bytes, embedded.payload_bytes);
}

}  // namespace

// What outlives the store while handles of its calls do.
struct SharedStore::Front : std::enable_shared_from_this<SharedStore::Front> {
    Front() : mailbox([this] { files->wake(); }) {}

    struct Handle : StoreOp {
        Handle(std::shared_ptr<Front> of, std::shared_ptr<SharedCall> running)
            : front(std::move(of)), call(std::move(running)) {}
        void cancel() override {
            (void)front->mailbox.post([call = call](SharedCore& core) { core.cancel(call); });
        }
        std::shared_ptr<Front> front;
        std::shared_ptr<SharedCall> call;
    };

    template <typename Call>
    StoreOpPtr post(const std::shared_ptr<Call>& call, Deadline deadline) {
        call->deadline = deadline;
        const bool posted = mailbox.post([call](SharedCore& core) { core.begin(call); });
        FATHOM_CHECK(posted, "a store was called after its end");
        return std::make_shared<Handle>(shared_from_this(), call);
    }
    // The own store first, from here on: every wake-up of a thread counts in a lookup.
    StoreOpPtr ask(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) {
        const auto call = std::make_shared<SharedExists>();
        call->keys = keys;
        call->done = std::move(done);
        return own.store->exists(
            std::move(keys), deadline,
            [front = shared_from_this(), call](std::vector<bool> present, Status status) {
                (void)front->mailbox.post([call, present = std::move(present),
                                           status = std::move(status)](SharedCore& core) mutable {
                    core.take_own(*call, std::move(present), std::move(status));
                });
            });
    }
    // With nobody else's blocks to be found, the own store answers alone.
    bool alone() const { return peer_blocks.load(std::memory_order_acquire) == 0; }

    void run(const SlotGeometry& geometry) {
        SharedCore core(parts, geometry, *files, *own.store, mailbox, *metrics, peer_blocks);
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
        // Cancelling a call of a store that has ended is allowed, and does nothing.
        for (std::vector<Message> late; !mailbox.close(); late.clear())
            mailbox.take(late);
    }

    SharedParts parts;
    std::unique_ptr<MetricsRegistry> own_registry;
    std::unique_ptr<SharedMetrics> metrics;
    std::unique_ptr<FileLayer> files;  // of the core's thread
    StoreMailbox<Message> mailbox;
    std::atomic<std::size_t> peer_blocks{0};
    OwnPool own;
    std::unique_ptr<PeerLooks> looks;
    std::thread thread;
    bool close_called = false;  // by the owner
};

Result<std::unique_ptr<SharedStore>> SharedStore::open(SharedOptions options) {
    if (!options.writer.empty()) FATHOM_RETURN_IF_ERROR(check_writer(options.writer));
    const auto front = std::make_shared<Front>();
    FATHOM_ASSIGN(front->parts.embedded, options.make_embedded());
    const EmbeddedOptions& embedded = front->parts.embedded;
    FATHOM_ASSIGN(const SlotGeometry geometry, slot_geometry(embedded.payload_bytes));
    FATHOM_ASSIGN(std::unique_ptr<FileLayer> eyes, options.make_files(kLookDepth));
    FATHOM_ASSIGN(front->files, options.make_files(embedded.io_depth));
    FATHOM_ASSIGN(front->own, open_own(options, embedded.directory));
    FATHOM_RETURN_IF_ERROR(check_root(options, embedded));
    static_cast<SharedOptions&>(front->parts) = std::move(options);
    if (embedded.metrics == nullptr) front->own_registry = std::make_unique<MetricsRegistry>();
    front->metrics = std::make_unique<SharedMetrics>(
        embedded.metrics == nullptr ? *front->own_registry : *embedded.metrics);
    front->looks =
        std::make_unique<PeerLooks>(front->parts, geometry, front->own.directory, *front->own.store,
                                    front->mailbox, *front->metrics, PoolReader(std::move(eyes)));
    front->thread = std::thread([front = front.get(), geometry] { front->run(geometry); });
    std::unique_ptr<SharedStore> store(new SharedStore(front));
    FATHOM_RETURN_IF_ERROR(front->looks->start());
    log_info("pool: {}: this process writes to {}", embedded.directory, front->own.directory);
    return store;
}

SharedStore::SharedStore(std::shared_ptr<Front> front) : front_(std::move(front)) {}

SharedStore::~SharedStore() {
    if (!front_->close_called) close({std::numeric_limits<std::int64_t>::min()});
    (void)front_->mailbox.post([](SharedCore& core) { core.end_loop(); });
    front_->thread.join();
    front_->own.store.reset();
}

// The looks end first, because they use the own store; then that one answers all it has; then the
// core has every answer.
void SharedStore::close(Deadline deadline) {
    front_->close_called = true;
    (void)front_->mailbox.post([deadline](SharedCore& core) { core.begin_close(deadline); });
    front_->looks->stop();
    front_->own.store->close(deadline);
    std::promise<void> closed;
    (void)front_->mailbox.post(
        [&closed](SharedCore& core) { core.end_close([&closed] { closed.set_value(); }); });
    closed.get_future().wait();
}

std::int64_t SharedStore::payload_bytes() const {
    return front_->parts.embedded.payload_bytes;
}

StoreHealth SharedStore::health() const {
    StoreHealth own = front_->own.store->health(), looks = front_->looks->health();
    if (own.state == StoreHealth::State::ok) return looks;
    if (looks.state != StoreHealth::State::ok) own.reason += "; " + looks.reason;
    return own;
}

EmbeddedStore& SharedStore::own() {
    return *front_->own.store;
}

const std::string& SharedStore::own_directory() const {
    return front_->own.directory;
}

void SharedStore::refresh(std::function<void()> done) {
    front_->looks->refresh(std::move(done));
}

StoreOpPtr SharedStore::exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) {
    if (front_->alone()) return own().exists(std::move(keys), deadline, std::move(done));
    return front_->ask(std::move(keys), deadline, std::move(done));
}

StoreOpPtr SharedStore::longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                                       PrefixDone done) {
    if (front_->alone()) return own().longest_prefix(std::move(chain), deadline, std::move(done));
    ExistsDone found = [metrics = front_->metrics.get(), done = std::move(done)](
                           const std::vector<bool>& present, Status status) {
        const std::size_t blocks = search_prefix(
            present.size(), [&](std::size_t i) { return static_cast<bool>(present[i]); });
        metrics->prefix_hit_blocks.observe(static_cast<double>(blocks));
        done(blocks, std::move(status));
    };
    return front_->ask(std::move(chain), deadline, std::move(found));
}

StoreOpPtr SharedStore::get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) {
    if (front_->alone()) return own().get(std::move(requests), deadline, std::move(calls));
    const auto call = std::make_shared<SharedGet>();
    call->requests = std::move(requests);
    call->calls = std::move(calls);
    return front_->post(call, deadline);
}

StoreOpPtr SharedStore::put(std::vector<PutRequest> requests, const PutOptions& options,
                            Deadline deadline, PutCalls calls) {
    if (front_->alone()) return own().put(std::move(requests), options, deadline, std::move(calls));
    const auto call = std::make_shared<SharedPut>();
    call->requests = std::move(requests);
    call->options = options;
    call->calls = std::move(calls);
    return front_->post(call, deadline);
}

StoreOpPtr SharedStore::drop_namespace(const NamespaceId& ns, Deadline deadline,
                                       std::function<void(Status status)> done) {
    const auto call = std::make_shared<SharedDrop>();
    call->deadline = deadline;
    call->done = std::move(done);
    (void)front_->mailbox.post([call, ns, looks = front_->looks.get()](SharedCore& core) {
        if (core.begin(call)) looks->drop(call, ns);
    });
    return std::make_shared<Front::Handle>(front_, call);
}

}  // namespace fathom
