#include "pool/breaker_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <limits>

#include "pool/call_end.h"
#include "pool/store_thread.h"

namespace fathom {

namespace {

enum class Verdict { good, failed, unknown };  // of one call, apart from how long it took

Verdict verdict_of(const Status& status) {
    switch (status.code()) {
        case StatusCode::ok:
            return Verdict::good;
        case StatusCode::cancelled:
        case StatusCode::deadline_exceeded:   // how long it took says the rest
        case StatusCode::resource_exhausted:  // it is there, and busy
            return Verdict::unknown;
        default:
            return Verdict::failed;
    }
}

Verdict verdict_of(const GetResult& result) {
    for (const GetStatus status : result.blocks) {
        if (status == GetStatus::io_error) return Verdict::failed;
    }
    return verdict_of(result.status);
}

Verdict verdict_of(const PutResult& result) {
    // A block that its producer damaged says nothing of the store, nor does a tenant without key.
    if (result.status.code() == StatusCode::data_loss) return Verdict::unknown;
    if (result.status.code() == StatusCode::permission_denied) return Verdict::unknown;
    for (const PutOutcome outcome : result.blocks) {
        if (outcome == PutOutcome::failed) return Verdict::failed;
    }
    return verdict_of(result.status);
}

Status refusal() {
    return Status(StatusCode::unavailable,
                  "the pool is not asked for a while, because it failed or was slow; blocks are "
                  "computed instead");
}

// One call under guard. Whoever answers first, the store or the guard, runs `done`; `released` runs
// after that, when the store has released the pages.
struct Guarded {
    std::function<void(CallEnd end)> give_up;  // runs `done` without the store's answer
    std::function<void()> released;            // may be empty
    std::int64_t begun_us = 0, blocks = 0;
    bool probe = false;
    bool counts = true;
    StoreThread::Timer timer;  // the thread's

    template <typename Run>
    bool answer(const Run& run) {
        if ((marks_.fetch_or(kAnswered) & kAnswered) != 0) return false;
        run();
        if ((marks_.fetch_or(kDone) & kReleased) != 0 && released) released();
        return true;
    }
    void release() {
        if ((marks_.fetch_or(kReleased) & kDone) != 0 && released) released();
    }

  private:
    static constexpr int kAnswered = 1, kDone = 2, kReleased = 4;
    std::atomic<int> marks_{0};
};
using GuardedPtr = std::shared_ptr<Guarded>;

}  // namespace

class BreakerStore::Core : public std::enable_shared_from_this<BreakerStore::Core> {
  public:
    Core(const BreakerOptions& options, const Clock& clock)
        : options_(options), clock_(clock), thread_(clock) {
        MetricsRegistry& registry = options.metrics != nullptr ? *options.metrics : own_registry_;
        state_gauge_ = &registry.gauge("kvpool_breaker_state",
                                       "Breaker in front of the pool: 0 closed, 1 probing, 2 open");
        refused_ = &registry.counter("kvpool_breaker_refused_total",
                                     "Calls answered with misses while the breaker was open");
    }

    StoreThread& thread() { return thread_; }
    State state() const { return state_.load(); }
    std::string reason() const {
        return slow_.load() ? "the pool was too slow and is not asked; it is probed again by itself"
                            : "calls to the pool failed and it is not asked; it is probed again by "
                              "itself";
    }

    // Whether the store is to be asked, and then by a call that is the probe.
    bool admit(bool& probe) {
        probe = false;
        State state = state_.load();
        if (state == State::closed) return true;
        if (state == State::open && clock_.now_us() >= probe_at_us_.load() &&
            state_.compare_exchange_strong(state, State::probing)) {
            state_gauge_->set(static_cast<double>(State::probing));
            probe = true;
            return true;
        }
        refused_->add();
        return false;
    }

    void watch(const GuardedPtr& call, Deadline deadline) {
        call->begun_us = clock_.now_us();
        const std::int64_t end_us = std::max(deadline.at_us, call->begun_us);
        const std::int64_t due =
            std::min(end_us, std::numeric_limits<std::int64_t>::max() - options_.grace_us) +
            options_.grace_us;
        thread_.post([this, call, due] {
            call->timer = thread_.at(due, [this, call] { give_up(call, CallEnd::deadline); });
        });
    }
    // The store has answered, and its user will know next.
    void answered(const GuardedPtr& call, Verdict verdict) {
        const std::int64_t took_us = clock_.now_us() - call->begun_us;
        thread_.post([this, call, verdict, took_us] {
            thread_.cancel(call->timer);
            const std::int64_t slow_us =
                options_.slow_us + options_.slow_us_per_block * call->blocks;
            judge(*call, verdict, took_us > slow_us);
        });
    }
    void cancelled(const GuardedPtr& call) {
        thread_.post([this, call] {
            thread_.at(clock_.now_us() + options_.grace_us,
                       [this, call] { give_up(call, CallEnd::cancelled); });
        });
    }

  private:
    // The rest runs on the thread.
    void give_up(const GuardedPtr& call, CallEnd end) {
        if (!call->answer([&] { call->give_up(end); })) return;
        thread_.cancel(call->timer);
        judge(*call, Verdict::failed, true);
    }

    void judge(const Guarded& call, Verdict verdict, bool slow) {
        if (call.probe) return judge_probe(verdict, slow);
        if (!call.counts || state_.load() != State::closed) return;
        if (verdict == Verdict::unknown && !slow) return;
        seen_.push_back({verdict == Verdict::failed, slow});
        if (seen_.size() > static_cast<std::size_t>(options_.calls_seen)) seen_.pop_front();
        if (seen_.size() < static_cast<std::size_t>(options_.calls_min)) return;
        const auto share = [this](bool Seen::*what) {
            const auto count = std::count_if(seen_.begin(), seen_.end(),
                                             [what](const Seen& seen) { return seen.*what; });
            return static_cast<double>(count) / static_cast<double>(seen_.size());
        };
        const bool failing = share(&Seen::failed) > options_.failed_share_max;
        if (!failing && share(&Seen::slow) <= options_.slow_share_max) return;
        slow_.store(!failing);
        open_for_us_ = options_.open_us;
        open();
    }

    void judge_probe(Verdict verdict, bool slow) {
        if (verdict == Verdict::unknown && !slow) {  // says nothing: the next call tries
            set_state(State::open);
        } else if (verdict != Verdict::failed && !slow) {
            seen_.clear();
            set_state(State::closed);
        } else {
            open_for_us_ = std::min(2 * open_for_us_, options_.open_us_max);
            open();
        }
    }

    void open() {
        seen_.clear();
        probe_at_us_.store(clock_.now_us() + open_for_us_);
        set_state(State::open);
    }
    void set_state(State state) {
        state_.store(state);
        state_gauge_->set(static_cast<double>(state));
    }

    struct Seen {
        bool failed = false, slow = false;
    };

    const BreakerOptions options_;
    const Clock& clock_;
    MetricsRegistry own_registry_;
    Gauge* state_gauge_ = nullptr;
    Counter* refused_ = nullptr;
    // Written on the thread, apart from a call that becomes the probe; read anywhere.
    std::atomic<State> state_{State::closed};
    std::atomic<bool> slow_{false};
    std::atomic<std::int64_t> probe_at_us_{0};
    // The thread's.
    std::deque<Seen> seen_;
    std::int64_t open_for_us_ = 0;
    StoreThread thread_;  // last: the first to go
};

namespace {

// Cancels in the store, and here when that does not help.
template <typename Core>
class GuardedOp final : public StoreOp {
  public:
    GuardedOp(StoreOpPtr op, GuardedPtr call, std::weak_ptr<Core> core)
        : op_(std::move(op)), call_(std::move(call)), core_(std::move(core)) {}
    void cancel() override {
        op_->cancel();
        if (const std::shared_ptr<Core> core = core_.lock()) core->cancelled(call_);
    }

  private:
    const StoreOpPtr op_;
    const GuardedPtr call_;
    const std::weak_ptr<Core> core_;
};

// A call that the store was not asked: there is nothing to cancel.
class NoOp final : public StoreOp {
  public:
    void cancel() override {}
};

}  // namespace

BreakerStore::BreakerStore(std::unique_ptr<BlockStore> store, const BreakerOptions& options,
                           const Clock& clock)
    : store_(std::move(store)), core_(std::make_shared<Core>(options, clock)) {}

BreakerStore::~BreakerStore() {
    store_.reset();
    core_->thread().stop();
}

BreakerStore::State BreakerStore::state() const {
    return core_->state();
}

StoreHealth BreakerStore::health() const {
    if (core_->state() == State::closed) return store_->health();
    return {.state = StoreHealth::State::degraded, .reason = core_->reason()};
}

void BreakerStore::settle() {
    core_->thread().drain();
}

void BreakerStore::close(Deadline deadline) {
    store_->close(deadline);
    settle();
}

StoreOpPtr BreakerStore::exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) {
    const auto call = std::make_shared<Guarded>();
    const std::size_t count = keys.size();
    if (!core_->admit(call->probe)) {
        core_->thread().post([count, done] { done(std::vector<bool>(count), refusal()); });
        return std::make_shared<NoOp>();
    }
    call->give_up = [count, done](CallEnd end) {
        done(std::vector<bool>(count), call_end_status(end));
    };
    core_->watch(call, deadline);
    StoreOpPtr op =
        store_->exists(std::move(keys), deadline,
                       [core = core_.get(), call, done](std::vector<bool> present, Status status) {
                           const Verdict verdict = verdict_of(status);
                           call->answer([&] {
                               core->answered(call, verdict);
                               done(std::move(present), std::move(status));
                           });
                       });
    return std::make_shared<GuardedOp<Core>>(std::move(op), call, core_);
}

StoreOpPtr BreakerStore::longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                                        PrefixDone done) {
    const auto call = std::make_shared<Guarded>();
    if (!core_->admit(call->probe)) {
        core_->thread().post([done] { done(0, refusal()); });
        return std::make_shared<NoOp>();
    }
    call->give_up = [done](CallEnd end) { done(0, call_end_status(end)); };
    core_->watch(call, deadline);
    StoreOpPtr op =
        store_->longest_prefix(std::move(chain), deadline,
                               [core = core_.get(), call, done](std::size_t blocks, Status status) {
                                   const Verdict verdict = verdict_of(status);
                                   call->answer([&] {
                                       core->answered(call, verdict);
                                       done(blocks, std::move(status));
                                   });
                               });
    return std::make_shared<GuardedOp<Core>>(std::move(op), call, core_);
}

StoreOpPtr BreakerStore::get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) {
    const auto call = std::make_shared<Guarded>();
    const std::size_t count = requests.size();
    call->blocks = static_cast<std::int64_t>(count);
    if (!core_->admit(call->probe)) {
        core_->thread().post([count, calls] {
            GetResult result = unread_result(count, CallEnd::complete);
            result.status = refusal();
            calls.done(std::move(result));
            if (calls.released) calls.released();
        });
        return std::make_shared<NoOp>();
    }
    call->give_up = [count, calls](CallEnd end) { calls.done(unread_result(count, end)); };
    call->released = calls.released;
    core_->watch(call, deadline);
    StoreOpPtr op = store_->get(std::move(requests), deadline,
                                {.done =
                                     [core = core_.get(), call, calls](GetResult result) {
                                         const Verdict verdict = verdict_of(result);
                                         call->answer([&] {
                                             core->answered(call, verdict);
                                             calls.done(std::move(result));
                                         });
                                     },
                                 .released = [call] { call->release(); }});
    return std::make_shared<GuardedOp<Core>>(std::move(op), call, core_);
}

StoreOpPtr BreakerStore::put(std::vector<PutRequest> requests, const PutOptions& options,
                             Deadline deadline, PutCalls calls) {
    const auto call = std::make_shared<Guarded>();
    const std::size_t count = requests.size();
    call->blocks = static_cast<std::int64_t>(count);
    if (!core_->admit(call->probe)) {
        core_->thread().post([count, calls] {
            PutResult result = unwritten_result(count, CallEnd::busy);
            result.status = refusal();
            calls.done(std::move(result));
            if (calls.released) calls.released();
        });
        return std::make_shared<NoOp>();
    }
    call->give_up = [count, calls](CallEnd end) { calls.done(unwritten_result(count, end)); };
    call->released = calls.released;
    core_->watch(call, deadline);
    StoreOpPtr op = store_->put(std::move(requests), options, deadline,
                                {.done =
                                     [core = core_.get(), call, calls](PutResult result) {
                                         const Verdict verdict = verdict_of(result);
                                         call->answer([&] {
                                             core->answered(call, verdict);
                                             calls.done(std::move(result));
                                         });
                                     },
                                 .released = [call] { call->release(); }});
    return std::make_shared<GuardedOp<Core>>(std::move(op), call, core_);
}

StoreOpPtr BreakerStore::drop_namespace(const NamespaceId& ns, Deadline deadline,
                                        std::function<void(Status status)> done) {
    const auto call = std::make_shared<Guarded>();
    call->counts = false;
    call->give_up = [done](CallEnd end) { done(call_end_status(end)); };
    core_->watch(call, deadline);
    StoreOpPtr op =
        store_->drop_namespace(ns, deadline, [core = core_.get(), call, done](Status status) {
            call->answer([&] {
                core->answered(call, Verdict::unknown);
                done(std::move(status));
            });
        });
    return std::make_shared<GuardedOp<Core>>(std::move(op), call, core_);
}

}  // namespace fathom
