#include "pool/testing/faulty_store.h"

#include <atomic>
#include <limits>
#include <set>

#include "base/random.h"
#include "pool/call_end.h"
#include "pool/store_thread.h"

namespace fathom::testing {

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// Which of a block's faults happen: each kind draws from a number of its own.
enum class Draw : std::uint32_t { error, miss, damage, lie, bit, delay, never };

double draw(std::uint64_t seed, std::uint64_t call, std::size_t block, Draw what) {
    return random_uniform({.seed = seed,
                           .purpose = RandomPurpose::test_data,
                           .index = call << 20 | block,
                           .block = static_cast<std::uint32_t>(what)});
}

// A call on its way. All of it is the thread's but `cancelled`.
struct Faulty {
    FaultOptions options;
    std::uint64_t number = 0;
    Deadline deadline;
    bool has_pages = false;
    std::function<void(CallEnd end)> give_up;  // runs `done`
    std::function<void()> released;
    std::function<StoreOpPtr(Deadline deadline)> begin;  // in the store
    StoreOpPtr op;
    StoreThread::Timer start_timer, deadline_timer;
    bool begun = false, answered = false;
    std::atomic<bool> cancelled{false};
};
using FaultyPtr = std::shared_ptr<Faulty>;

}  // namespace

class FaultyStore::Core {
  public:
    Core(const FaultOptions& options, const Clock& clock)
        : clock_(clock), options_(options), thread_(clock) {}
    StoreThread& thread() { return thread_; }
    std::uint64_t next_call() { return calls_.fetch_add(1); }

    // The rest runs on the thread.
    void set_options(const FaultOptions& options) { options_ = options; }

    void start(const FaultyPtr& call) {
        call->options = options_;
        const std::int64_t now_us = clock_.now_us();
        const auto happens = [&](Draw what, double share) {
            return draw(options_.seed, call->number, 0, what) < share;
        };
        // What is late or closed already is the store's to refuse.
        if (closing_ || now_us >= call->deadline.at_us || call->cancelled.load())
            return begin(call);
        if (happens(Draw::never, options_.never)) {
            held_.insert(call);
            return;
        }
        if (!happens(Draw::delay, options_.delayed)) return begin(call);
        held_.insert(call);
        call->start_timer = thread_.at(now_us + options_.delay_us, [this, call] { begin(call); });
        call->deadline_timer =
            thread_.at(call->deadline.at_us, [this, call] { give_up(call, CallEnd::deadline); });
    }

    void cancel(const FaultyPtr& call) {
        if (call->op != nullptr) call->op->cancel();
        // A call that is never answered does not hear either.
        if (!call->begun && held_.contains(call) && call->start_timer != StoreThread::Timer())
            give_up(call, CallEnd::cancelled);
    }

    // The store's answer, which nobody waits for if the call was given up.
    template <typename Run>
    void answer(const FaultyPtr& call, const Run& run) {
        if (!std::exchange(call->answered, true)) run();
        if (call->begun && !call->has_pages) call->op.reset();
    }
    void release(const FaultyPtr& call) {
        call->op.reset();
        if (call->released) call->released();
    }

    void close() {
        closing_ = true;
        while (!held_.empty()) {
            const FaultyPtr call = *held_.begin();
            held_.erase(held_.begin());
            thread_.cancel(call->start_timer);
            give_up(call, CallEnd::cancelled);
            if (call->has_pages) release(call);
        }
    }

  private:
    void begin(const FaultyPtr& call) {
        held_.erase(call);
        thread_.cancel(call->deadline_timer);
        call->begun = true;
        // Late work is done all the same: nobody knows any more when it should have ended.
        call->op = call->begin(call->answered ? Deadline{kNever} : call->deadline);
        if (call->cancelled.load() && !call->answered) call->op->cancel();
    }
    void give_up(const FaultyPtr& call, CallEnd end) {
        thread_.cancel(call->deadline_timer);
        answer(call, [&] { call->give_up(end); });
    }

    const Clock& clock_;
    std::atomic<std::uint64_t> calls_{0};
    // The thread's.
    FaultOptions options_;
    std::set<FaultyPtr> held_;  // not begun
    bool closing_ = false;
    StoreThread thread_;  // last: the first to go
};

namespace {

template <typename Core>
class FaultyOp final : public StoreOp {
  public:
    FaultyOp(FaultyPtr call, std::weak_ptr<Core> core)
        : call_(std::move(call)), core_(std::move(core)) {}
    void cancel() override {
        if (call_->cancelled.exchange(true)) return;
        const std::shared_ptr<Core> core = core_.lock();
        if (core == nullptr) return;
        core->thread().post([core = core.get(), call = call_] { core->cancel(call); });
    }

  private:
    const FaultyPtr call_;
    const std::weak_ptr<Core> core_;
};

void turn_a_bit(const FaultyPtr& call, std::size_t block, std::uint8_t* page,
                std::int64_t payload_bytes) {
    const auto bits = static_cast<double>(payload_bytes * 8);
    const auto bit =
        static_cast<std::int64_t>(draw(call->options.seed, call->number, block, Draw::bit) * bits);
    page[bit / 8] = static_cast<std::uint8_t>(page[bit / 8] ^ 1 << bit % 8);
}

// What the faults make of a read that the store has done.
GetResult spoil(const FaultyPtr& call, const std::vector<std::uint8_t*>& pages,
                std::int64_t payload_bytes, GetResult result) {
    const FaultOptions& options = call->options;
    const auto happens = [&](std::size_t block, Draw what, double share) {
        return draw(options.seed, call->number, block, what) < share;
    };
    result.leading_hits = 0;
    for (std::size_t i = 0; i < result.blocks.size(); ++i) {
        GetStatus& status = result.blocks[i];
        if (status != GetStatus::hit) continue;
        if (happens(i, Draw::error, options.get_error)) {
            status = GetStatus::io_error;
            result.status = Status(StatusCode::unavailable, "a read failed as told");
        } else if (happens(i, Draw::miss, options.get_miss)) {
            status = GetStatus::miss;
        } else if (happens(i, Draw::damage, options.get_corrupt)) {
            turn_a_bit(call, i, pages[i], payload_bytes);
            status = GetStatus::corrupt;
        } else if (happens(i, Draw::lie, options.get_lie)) {
            turn_a_bit(call, i, pages[i], payload_bytes);
        }
        if (status == GetStatus::hit && result.leading_hits == i) ++result.leading_hits;
    }
    return result;
}

// Which blocks of a put reach the store, and what the others are told.
std::vector<PutRequest> admitted(const FaultyPtr& call, const std::vector<PutRequest>& requests,
                                 PutResult& result, std::vector<std::size_t>& indices) {
    std::vector<PutRequest> kept;
    result.blocks.resize(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const FaultOptions& options = call->options;
        if (draw(options.seed, call->number, i, Draw::error) < options.put_error) {
            result.blocks[i] = PutOutcome::failed;
            result.status = Status(StatusCode::unavailable, "a write failed as told");
        } else if (draw(options.seed, call->number, i, Draw::lie) < options.put_lost) {
            result.blocks[i] = PutOutcome::stored;
        } else {
            indices.push_back(i);
            kept.push_back(requests[i]);
        }
    }
    return kept;
}

}  // namespace

FaultyStore::FaultyStore(std::unique_ptr<BlockStore> store, const FaultOptions& options,
                         const Clock& clock)
    : store_(std::move(store)), core_(std::make_shared<Core>(options, clock)) {}

FaultyStore::~FaultyStore() {
    core_->thread().post([core = core_.get()] { core->close(); });
    core_->thread().drain();
    store_.reset();
    core_->thread().stop();
}

void FaultyStore::set_options(const FaultOptions& options) {
    core_->thread().post([core = core_.get(), options] { core->set_options(options); });
}

void FaultyStore::settle() {
    core_->thread().drain();
}

void FaultyStore::close(Deadline deadline) {
    core_->thread().post([core = core_.get()] { core->close(); });
    core_->thread().drain();
    store_->close(deadline);
    core_->thread().drain();
}

StoreOpPtr FaultyStore::exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) {
    const auto call = std::make_shared<Faulty>();
    call->number = core_->next_call();
    call->deadline = deadline;
    call->give_up = [count = keys.size(), done](CallEnd end) {
        done(std::vector<bool>(count), call_end_status(end));
    };
    Core* core = core_.get();
    std::weak_ptr<Faulty> weak = call;
    call->begin = [this, core, weak, keys = std::move(keys), done](Deadline until) {
        return store_->exists(
            keys, until,
            [core, call = weak.lock(), done](std::vector<bool> present, Status status) {
                core->thread().post([core, call, done, present, status] {
                    core->answer(call, [&] { done(present, status); });
                });
            });
    };
    core->thread().post([core, call] { core->start(call); });
    return std::make_shared<FaultyOp<Core>>(call, core_);
}

StoreOpPtr FaultyStore::longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                                       PrefixDone done) {
    const auto call = std::make_shared<Faulty>();
    call->number = core_->next_call();
    call->deadline = deadline;
    call->give_up = [done](CallEnd end) { done(0, call_end_status(end)); };
    Core* core = core_.get();
    std::weak_ptr<Faulty> weak = call;
    call->begin = [this, core, weak, chain = std::move(chain), done](Deadline until) {
        return store_->longest_prefix(
            chain, until, [core, call = weak.lock(), done](std::size_t blocks, Status status) {
                core->thread().post([core, call, done, blocks, status] {
                    core->answer(call, [&] { done(blocks, status); });
                });
            });
    };
    core->thread().post([core, call] { core->start(call); });
    return std::make_shared<FaultyOp<Core>>(call, core_);
}

StoreOpPtr FaultyStore::get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) {
    const auto call = std::make_shared<Faulty>();
    call->number = core_->next_call();
    call->deadline = deadline;
    call->has_pages = true;
    call->released = calls.released;
    call->give_up = [count = requests.size(), calls](CallEnd end) {
        calls.done(unread_result(count, end));
    };
    std::vector<std::uint8_t*> pages;
    for (const GetRequest& request : requests)
        pages.push_back(request.destination.page);
    Core* core = core_.get();
    std::weak_ptr<Faulty> weak = call;
    call->begin = [this, core, weak, requests = std::move(requests), pages, calls](Deadline until) {
        const FaultyPtr own = weak.lock();
        const std::int64_t bytes = payload_bytes();
        return store_->get(
            requests, until,
            {.done =
                 [core, own, pages, bytes, calls](GetResult result) {
                     core->thread().post([core, own, pages, bytes, calls, result] {
                         core->answer(own, [&] { calls.done(spoil(own, pages, bytes, result)); });
                     });
                 },
             .released = [core,
                          own] { core->thread().post([core, own] { core->release(own); }); }});
    };
    core->thread().post([core, call] { core->start(call); });
    return std::make_shared<FaultyOp<Core>>(call, core_);
}

StoreOpPtr FaultyStore::put(std::vector<PutRequest> requests, const PutOptions& options,
                            Deadline deadline, PutCalls calls) {
    const auto call = std::make_shared<Faulty>();
    call->number = core_->next_call();
    call->deadline = deadline;
    call->has_pages = true;
    call->released = calls.released;
    call->give_up = [count = requests.size(), calls](CallEnd end) {
        calls.done(unwritten_result(count, end));
    };
    Core* core = core_.get();
    std::weak_ptr<Faulty> weak = call;
    call->begin = [this, core, weak, requests = std::move(requests), options,
                   calls](Deadline until) {
        const FaultyPtr own = weak.lock();
        const auto merged = std::make_shared<PutResult>();
        const auto indices = std::make_shared<std::vector<std::size_t>>();
        std::vector<PutRequest> kept = admitted(own, requests, *merged, *indices);
        return store_->put(
            std::move(kept), options, until,
            {.done =
                 [core, own, merged, indices, calls](PutResult result) {
                     for (std::size_t i = 0; i < indices->size(); ++i)
                         merged->blocks[(*indices)[i]] = result.blocks[i];
                     if (merged->status.ok()) merged->status = result.status;
                     core->thread().post([core, own, merged, calls] {
                         core->answer(own, [&] { calls.done(*merged); });
                     });
                 },
             .released = [core,
                          own] { core->thread().post([core, own] { core->release(own); }); }});
    };
    core->thread().post([core, call] { core->start(call); });
    return std::make_shared<FaultyOp<Core>>(call, core_);
}

StoreOpPtr FaultyStore::drop_namespace(const NamespaceId& ns, Deadline deadline,
                                       std::function<void(Status status)> done) {
    const auto call = std::make_shared<Faulty>();
    call->number = core_->next_call();
    call->deadline = deadline;
    call->give_up = [done](CallEnd end) { done(call_end_status(end)); };
    Core* core = core_.get();
    std::weak_ptr<Faulty> weak = call;
    call->begin = [this, core, weak, ns, done](Deadline until) {
        return store_->drop_namespace(ns, until, [core, call = weak.lock(), done](Status status) {
            core->thread().post(
                [core, call, done, status] { core->answer(call, [&] { done(status); }); });
        });
    };
    core->thread().post([core, call] { core->start(call); });
    return std::make_shared<FaultyOp<Core>>(call, core_);
}

}  // namespace fathom::testing
