// A run() publishes one job and, for each thread, the part of the items that is unclaimed. A thread
// claims items by moving the front of a part; only then does it read the job, which cannot change
// before the claimed items are reported done. So late threads need no part in a job: run() waits
// for items, never for threads (but for run_shares, whose point is which thread does what).
#include "base/compute_pool.h"

#include <pthread.h>
#include <sched.h>
#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace fathom {

namespace {

// Between two phases of a step the owner is alone for some microseconds; waking a sleeper costs
// more than that. The second stretch gives the processor away to whoever else wants it.
constexpr auto kSpin = std::chrono::microseconds(20);
constexpr auto kYield = std::chrono::microseconds(60);
constexpr std::uint32_t kMaskExceptions = 0x1f80;  // also round to nearest
constexpr std::uint32_t kFlushToZero = 0x8000;
constexpr std::uint32_t kDenormalsAreZero = 0x0040;
constexpr std::int64_t kItemsMax = std::int64_t{1} << 31;

// Waits until ready() holds; false when that took too long to be worth it.
template <typename Ready>
bool spin_until(Ready ready) {
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
        for (int i = 0; i < 32; ++i) {
            if (ready()) return true;
            _mm_pause();
        }
        const auto waited = std::chrono::steady_clock::now() - start;
        if (waited > kYield) return false;
        if (waited > kSpin) sched_yield();
    }
}

// Items [first, last) of one thread's part that nobody claimed, and whether only that thread may,
// in one word so that they change together.
class alignas(64) Part {
  public:
    void set(std::int64_t begin, std::int64_t end, bool owner_only) {
        word_.store(static_cast<std::uint64_t>(begin) << 32 | static_cast<std::uint64_t>(end) |
                        (owner_only ? kOwnerOnly : 0),
                    std::memory_order_release);
    }
    // Takes up to `grain` items from the front; false when none are left for the caller.
    bool claim(const std::atomic<std::int64_t>& grain, bool owner, std::int64_t* begin,
               std::int64_t* end) {
        std::uint64_t word = word_.load(std::memory_order_acquire);
        for (;;) {
            const auto first = static_cast<std::int64_t>((word & ~kOwnerOnly) >> 32);
            const auto last = static_cast<std::int64_t>(word & 0xffffffffu);
            if (first >= last || (!owner && (word & kOwnerOnly) != 0)) return false;
            const std::int64_t stop = std::min(last, first + grain.load(std::memory_order_relaxed));
            const std::uint64_t rest = static_cast<std::uint64_t>(stop) << 32 |
                                       static_cast<std::uint64_t>(last) | (word & kOwnerOnly);
            if (word_.compare_exchange_weak(word, rest, std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
                *begin = first;
                *end = stop;
                return true;
            }
        }
    }

  private:
    static constexpr std::uint64_t kOwnerOnly = std::uint64_t{1} << 63;
    std::atomic<std::uint64_t> word_{0};
};

void pin_this_thread(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(cpu), &set);
    // Refused when the processor went away meanwhile: the thread then stays where it may run.
    (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

FlushDenormals::FlushDenormals() : saved_(_mm_getcsr()) {
    _mm_setcsr(kMaskExceptions | kFlushToZero | kDenormalsAreZero);
}

FlushDenormals::~FlushDenormals() {
    _mm_setcsr(saved_);
}

KeepDenormals::KeepDenormals() : saved_(_mm_getcsr()) {
    _mm_setcsr(kMaskExceptions);
}

KeepDenormals::~KeepDenormals() {
    _mm_setcsr(saved_);
}

struct ComputePool::Impl {
    // The job; written by run() while no item is unfinished, read after a claim.
    const std::function<void(std::int64_t, std::int64_t)>* body = nullptr;
    std::atomic<std::int64_t> grain{1};

    alignas(64) std::atomic<std::int64_t> unfinished{0};
    alignas(64) std::atomic<std::uint32_t> epoch{0};  // moves with every job; threads sleep on it
    std::atomic<bool> stopping{false};
    std::atomic<bool> running{false};
    std::vector<Part> parts;
    std::vector<int> placement;  // processor of each thread; empty: not pinned
    std::vector<std::thread> workers;

    int threads() const { return static_cast<int>(parts.size()); }

    // Claims and runs items until none is left for thread t. One that throws ends the process.
    void work(int t) noexcept {
        std::int64_t done = 0;
        for (int i = 0; i < threads(); ++i) {
            Part& part = parts[static_cast<std::size_t>((t + i) % threads())];
            std::int64_t begin = 0, end = 0;
            while (part.claim(grain, i == 0, &begin, &end)) {
                (*body)(begin, end);
                done += end - begin;
            }
        }
        if (done > 0 && unfinished.fetch_sub(done, std::memory_order_acq_rel) == done)
            unfinished.notify_one();
    }

    void worker_main(int t) noexcept {
        if (!placement.empty()) pin_this_thread(placement[static_cast<std::size_t>(t)]);
        const FlushDenormals flush;
        std::uint32_t seen = 0;
        while (!stopping.load(std::memory_order_acquire)) {
            work(t);
            const auto moved = [&] { return epoch.load(std::memory_order_acquire) != seen; };
            if (!spin_until(moved)) epoch.wait(seen, std::memory_order_acquire);
            seen = epoch.load(std::memory_order_acquire);
        }
    }

    void run(std::int64_t n, std::int64_t piece, bool help,
             const std::function<void(std::int64_t, std::int64_t)>& job);
};

ComputePool::ComputePool(const ComputePoolOptions& options) : impl_(std::make_unique<Impl>()) {
    FATHOM_CHECK(options.threads >= 1, "a pool has at least the calling thread");
    const auto threads = static_cast<std::size_t>(options.threads);
    impl_->parts = std::vector<Part>(threads);
    if (options.pin) {
        const CpuTopology topology =
            options.topology.cpus.empty() ? CpuTopology::detect() : options.topology;
        if (topology.cpus.size() >= threads)
            impl_->placement.assign(topology.cpus.begin(),
                                    topology.cpus.begin() + static_cast<std::ptrdiff_t>(threads));
    }
    for (int t = 1; t < options.threads; ++t) {
        impl_->workers.emplace_back([impl = impl_.get(), t] { impl->worker_main(t); });
        const std::string name = "compute-" + std::to_string(t);
        pthread_setname_np(impl_->workers.back().native_handle(), name.substr(0, 15).c_str());
    }
}

ComputePool::~ComputePool() {
    impl_->stopping.store(true, std::memory_order_release);
    impl_->epoch.fetch_add(1, std::memory_order_release);
    impl_->epoch.notify_all();
    for (std::thread& worker : impl_->workers)
        worker.join();
}

int ComputePool::threads() const {
    return impl_->threads();
}

void ComputePool::place_caller() {
    if (!impl_->placement.empty()) pin_this_thread(impl_->placement[0]);
}

void ComputePool::Impl::run(std::int64_t n, std::int64_t piece, bool help,
                            const std::function<void(std::int64_t, std::int64_t)>& job) {
    FATHOM_CHECK(!running.exchange(true, std::memory_order_acquire),
                 "run() is not re-entrant and has one owner thread");
    FATHOM_CHECK(n < kItemsMax && piece > 0);
    const FlushDenormals flush;
    if (n > 0) {
        body = &job;
        grain.store(piece, std::memory_order_relaxed);
        unfinished.store(n, std::memory_order_relaxed);
        const std::int64_t count = threads();
        for (std::int64_t t = count - 1; t >= 0; --t)
            parts[static_cast<std::size_t>(t)].set(n * t / count, n * (t + 1) / count, !help);
        if (count > 1 && (n > 1 || !help)) {
            epoch.fetch_add(1, std::memory_order_release);
            epoch.notify_all();
        }
        work(0);
        const auto finished = [&] { return unfinished.load(std::memory_order_acquire) == 0; };
        while (!spin_until(finished)) {
            const std::int64_t left = unfinished.load(std::memory_order_acquire);
            if (left != 0) unfinished.wait(left, std::memory_order_acquire);
        }
    }
    running.store(false, std::memory_order_release);
}

void ComputePool::run(std::int64_t n, const std::function<void(std::int64_t)>& task) {
    impl_->run(n, 1, true, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
            task(i);
    });
}

void ComputePool::run_ranges(std::int64_t n, std::int64_t grain,
                             const std::function<void(std::int64_t, std::int64_t)>& body) {
    impl_->run(n, grain, true, body);
}

void ComputePool::run_shares(std::int64_t n,
                             const std::function<void(std::int64_t, std::int64_t)>& body) {
    impl_->run(n, kItemsMax - 1, false, body);
}

}  // namespace fathom
