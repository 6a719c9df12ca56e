#include "pool/mem_store.h"

#include <atomic>
#include <deque>
#include <utility>

#include "base/queue.h"
#include "pool/call_end.h"
#include "pool/mem_blocks.h"
#include "pool/prefix_search.h"
#include "pool/store_thread.h"

namespace fathom {

namespace {

constexpr int kBlocksATurn = 16;

// A call on its way through the owner's thread, block by block.
class Call : public StoreOp {
  public:
    Call(std::size_t blocks, Deadline deadline) : blocks_(blocks), deadline_(deadline) {}
    void cancel() override { cancelled_.store(true, std::memory_order_relaxed); }

    // A few blocks more. True when the call has ended.
    bool turn(MemBlocks& blocks, const Clock& clock) {
        for (int i = 0; i < kBlocksATurn; ++i) {
            const std::int64_t now_us = clock.now_us();
            if (next_ == blocks_) return finish(CallEnd::complete);
            if (cancelled_.load(std::memory_order_relaxed)) return finish(CallEnd::cancelled);
            if (now_us >= deadline_.at_us) return finish(CallEnd::deadline);
            step(blocks, next_++, now_us / 1000);
        }
        return false;
    }
    bool finish(CallEnd end) {
        ended(end, next_);
        return true;
    }
    // Blocks of it that are not stored yet never will be.
    virtual void forget(const NamespaceId& ns) { (void)ns; }

  protected:
    virtual void step(MemBlocks& blocks, std::size_t index, std::int64_t now_ms) = 0;
    // Everything from block `from` on was not reached.
    virtual void ended(CallEnd end, std::size_t from) = 0;

  private:
    const std::size_t blocks_;
    const Deadline deadline_;
    std::atomic<bool> cancelled_{false};
    std::size_t next_ = 0;
};

class ExistsCall final : public Call {
  public:
    ExistsCall(std::vector<BlockKey> keys, Deadline deadline, BlockStore::ExistsDone done)
        : Call(keys.size(), deadline), keys_(std::move(keys)), done_(std::move(done)) {
        present_.resize(keys_.size());
    }

  private:
    void step(MemBlocks& blocks, std::size_t index, std::int64_t now_ms) override {
        present_[index] = blocks.present(keys_[index], now_ms);
    }
    void ended(CallEnd end, std::size_t) override {
        done_(std::move(present_), call_end_status(end));
    }

    const std::vector<BlockKey> keys_;
    std::vector<bool> present_;
    const BlockStore::ExistsDone done_;
};

class PrefixCall final : public Call {
  public:
    PrefixCall(std::vector<BlockKey> chain, Deadline deadline, BlockStore::PrefixDone done)
        : Call(1, deadline), chain_(std::move(chain)), done_(std::move(done)) {}

  private:
    void step(MemBlocks& blocks, std::size_t, std::int64_t now_ms) override {
        found_ = search_prefix(chain_.size(),
                               [&](std::size_t i) { return blocks.present(chain_[i], now_ms); });
    }
    void ended(CallEnd end, std::size_t) override { done_(found_, call_end_status(end)); }

    const std::vector<BlockKey> chain_;
    std::size_t found_ = 0;
    const BlockStore::PrefixDone done_;
};

class GetCall final : public Call {
  public:
    GetCall(std::vector<GetRequest> requests, Deadline deadline, BlockStore::GetCalls calls)
        : Call(requests.size(), deadline),
          requests_(std::move(requests)),
          calls_(std::move(calls)) {
        result_.blocks.resize(requests_.size(), GetStatus::miss);
    }

  private:
    void step(MemBlocks& blocks, std::size_t index, std::int64_t now_ms) override {
        result_.blocks[index] = blocks.read(requests_[index], now_ms);
        if (result_.leading_hits == index && result_.blocks[index] == GetStatus::hit)
            ++result_.leading_hits;
    }
    void ended(CallEnd end, std::size_t from) override {
        for (; from < requests_.size(); ++from)
            result_.blocks[from] = unread_block(end);
        result_.status = call_end_status(end);
        calls_.done(std::move(result_));
        if (calls_.released) calls_.released();
    }

    const std::vector<GetRequest> requests_;
    GetResult result_;
    const BlockStore::GetCalls calls_;
};

class PutCall final : public Call {
  public:
    PutCall(std::vector<PutRequest> requests, const PutOptions& options, Deadline deadline,
            BlockStore::PutCalls calls)
        : Call(requests.size(), deadline),
          requests_(std::move(requests)),
          options_(options),
          calls_(std::move(calls)) {
        result_.blocks.resize(requests_.size(), PutOutcome::failed);
    }
    void forget(const NamespaceId& ns) override { forgotten_.push_back(ns); }

  private:
    void step(MemBlocks& blocks, std::size_t index, std::int64_t now_ms) override {
        for (const NamespaceId& ns : forgotten_) {
            if (requests_[index].name.ns != ns) continue;
            result_.blocks[index] = PutOutcome::cancelled;
            return;
        }
        Status cause;
        result_.blocks[index] = blocks.write(requests_[index], options_, now_ms, cause);
        if (result_.status.ok()) result_.status = cause;
    }
    void ended(CallEnd end, std::size_t from) override {
        for (; from < requests_.size(); ++from)
            result_.blocks[from] = unwritten_block(end);
        if (result_.status.ok()) result_.status = call_end_status(end);
        calls_.done(std::move(result_));
        if (calls_.released) calls_.released();
    }

    const std::vector<PutRequest> requests_;
    const PutOptions options_;
    std::vector<NamespaceId> forgotten_;
    PutResult result_;
    const BlockStore::PutCalls calls_;
};

}  // namespace

class MemStore::Owner {
  public:
    Owner(const MemStoreOptions& store_options, const Clock& clock)
        : options(store_options), clock_(clock), blocks_(options, counters), thread_(clock) {}

    StoreOpPtr start(std::shared_ptr<Call> call) {
        const bool busy = running_.fetch_add(1) >= options.calls_max;
        thread_.post([this, call, busy] {
            if (busy || closing_) {
                call->finish(busy ? CallEnd::busy : CallEnd::closed);
                running_.fetch_sub(1);
                return;
            }
            active_.push_back(call);
            if (active_.size() == 1) thread_.post([this] { turn(); });
        });
        return call;
    }

    void drop(const NamespaceId& ns) {
        blocks_.drop(ns);
        for (const std::shared_ptr<Call>& call : active_)
            call->forget(ns);
    }

    void close(Deadline deadline) {
        if (std::exchange(closed_, true)) return;
        BoundedQueue<bool> drained(1);
        thread_.post([this, deadline, &drained] {
            closing_ = true;
            close_by_ = deadline;
            if (active_.empty()) {
                drained.try_push(true);
            } else {
                drained_ = &drained;
            }
        });
        // Calls end by themselves: what is waited for is the thread's next turns.
        while (!drained.pop(1'000'000)) {
        }
    }

    const MemStoreOptions options;
    MemStoreCounters counters;

  private:
    void turn() {
        const std::shared_ptr<Call> call = std::move(active_.front());
        active_.pop_front();
        const bool late = closing_ && clock_.now_us() >= close_by_.at_us;
        if (late ? call->finish(CallEnd::cancelled) : call->turn(blocks_, clock_)) {
            running_.fetch_sub(1);
        } else {
            active_.push_back(call);
        }
        if (!active_.empty()) {
            thread_.post([this] { turn(); });
        } else if (drained_ != nullptr) {
            std::exchange(drained_, nullptr)->try_push(true);
        }
    }

    const Clock& clock_;
    std::atomic<std::int64_t> running_{0};
    bool closed_ = false;  // the user's thread
    // The thread's.
    MemBlocks blocks_;
    std::deque<std::shared_ptr<Call>> active_;
    bool closing_ = false;
    Deadline close_by_;
    BoundedQueue<bool>* drained_ = nullptr;
    StoreThread thread_;  // last: the first to go
};

namespace {

class DropCall final : public Call {
  public:
    DropCall(std::function<void()> drop, Deadline deadline, std::function<void(Status)> done)
        : Call(1, deadline), drop_(std::move(drop)), done_(std::move(done)) {}

  private:
    void step(MemBlocks&, std::size_t, std::int64_t) override { drop_(); }
    void ended(CallEnd end, std::size_t) override { done_(call_end_status(end)); }

    const std::function<void()> drop_;
    const std::function<void(Status)> done_;
};

}  // namespace

Result<std::unique_ptr<MemStore>> MemStore::create(const MemStoreOptions& options,
                                                   const Clock& clock) {
    if (options.payload_bytes < 1 || options.calls_max < 1)
        return invalid_argument("a pool in memory: blocks of {} bytes and {} calls; at least 1",
                                options.payload_bytes, options.calls_max);
    if (options.capacity_bytes < options.payload_bytes)
        return invalid_argument("a pool in memory: capacity of {} bytes, a block has {}",
                                options.capacity_bytes, options.payload_bytes);
    return std::unique_ptr<MemStore>(new MemStore(std::make_unique<Owner>(options, clock)));
}

MemStore::MemStore(std::unique_ptr<Owner> owner) : owner_(std::move(owner)) {}
MemStore::~MemStore() {
    owner_->close(Deadline{});
}

std::int64_t MemStore::payload_bytes() const {
    return owner_->options.payload_bytes;
}
StoreHealth MemStore::health() const {
    return {};
}
void MemStore::close(Deadline deadline) {
    owner_->close(deadline);
}
const MemStoreCounters& MemStore::counters() const {
    return owner_->counters;
}

StoreOpPtr MemStore::exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) {
    return owner_->start(std::make_shared<ExistsCall>(std::move(keys), deadline, std::move(done)));
}

StoreOpPtr MemStore::longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                                    PrefixDone done) {
    return owner_->start(std::make_shared<PrefixCall>(std::move(chain), deadline, std::move(done)));
}

StoreOpPtr MemStore::get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) {
    return owner_->start(
        std::make_shared<GetCall>(std::move(requests), deadline, std::move(calls)));
}

StoreOpPtr MemStore::put(std::vector<PutRequest> requests, const PutOptions& options,
                         Deadline deadline, PutCalls calls) {
    return owner_->start(
        std::make_shared<PutCall>(std::move(requests), options, deadline, std::move(calls)));
}

StoreOpPtr MemStore::drop_namespace(const NamespaceId& ns, Deadline deadline,
                                    std::function<void(Status status)> done) {
    Owner* owner = owner_.get();
    return owner_->start(
        std::make_shared<DropCall>([owner, ns] { owner->drop(ns); }, deadline, std::move(done)));
}

}  // namespace fathom
