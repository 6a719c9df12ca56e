// A run() publishes one job and its number of unclaimed tasks. A thread claims a task by taking one
// from that number; only then does it read the job, which cannot change before the claimed task is
// reported done. So late workers need no part in a job: run() waits for tasks, never for threads.
#include "base/compute_pool.h"

#include <pthread.h>
#include <xmmintrin.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace fathom {

namespace {

constexpr auto kSpin = std::chrono::microseconds(20);
constexpr std::uint32_t kMaskExceptions = 0x1f80;  // also round to nearest
constexpr std::uint32_t kFlushToZero = 0x8000;
constexpr std::uint32_t kDenormalsAreZero = 0x0040;

// Waits until ready() holds, spinning; false when that took too long to be worth it.
template <typename Ready>
bool spin_until(Ready ready) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < 32; ++i) {
            if (ready()) return true;
            _mm_pause();
        }
    } while (std::chrono::steady_clock::now() < deadline);
    return false;
}

}  // namespace

FlushDenormals::FlushDenormals() : saved_(_mm_getcsr()) {
    _mm_setcsr(kMaskExceptions | kFlushToZero | kDenormalsAreZero);
}

FlushDenormals::~FlushDenormals() {
    _mm_setcsr(saved_);
}

struct ComputePool::Impl {
    // The job; written by run() while no task is unfinished, read after a claim.
    const std::function<void(std::int64_t)>* task = nullptr;
    std::int64_t tasks = 0;

    alignas(64) std::atomic<std::int64_t> unclaimed{0};
    alignas(64) std::atomic<std::int64_t> unfinished{0};
    alignas(64) std::atomic<std::uint32_t> epoch{0};  // moves with every job; workers sleep on it
    std::atomic<bool> stopping{false};
    std::atomic<bool> running{false};
    std::vector<std::thread> workers;

    // Claims and runs tasks until none is left. A task that throws ends the process.
    void work() noexcept {
        std::int64_t done = 0;
        std::int64_t left = unclaimed.load(std::memory_order_relaxed);
        while (left > 0) {
            if (!unclaimed.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                                 std::memory_order_relaxed))
                continue;
            (*task)(tasks - left);
            ++done;
            left = unclaimed.load(std::memory_order_relaxed);
        }
        if (done > 0 && unfinished.fetch_sub(done, std::memory_order_acq_rel) == done)
            unfinished.notify_one();
    }

    void worker_main() noexcept {
        const FlushDenormals flush;
        std::uint32_t seen = 0;
        while (!stopping.load(std::memory_order_acquire)) {
            work();
            const auto moved = [&] { return epoch.load(std::memory_order_acquire) != seen; };
            if (!spin_until(moved)) epoch.wait(seen, std::memory_order_acquire);
            seen = epoch.load(std::memory_order_acquire);
        }
    }
};

ComputePool::ComputePool(int threads) : impl_(std::make_unique<Impl>()) {
    FATHOM_CHECK(threads >= 1, "a pool has at least the calling thread");
    for (int i = 1; i < threads; ++i) {
        impl_->workers.emplace_back([impl = impl_.get()] { impl->worker_main(); });
        const std::string name = "compute-" + std::to_string(i);
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
    return static_cast<int>(impl_->workers.size()) + 1;
}

void ComputePool::run(std::int64_t n, const std::function<void(std::int64_t)>& task) {
    FATHOM_CHECK(!impl_->running.exchange(true, std::memory_order_acquire),
                 "run() is not re-entrant and has one owner thread");
    const FlushDenormals flush;
    if (n > 0) {
        impl_->task = &task;
        impl_->tasks = n;
        impl_->unfinished.store(n, std::memory_order_relaxed);
        impl_->unclaimed.store(n, std::memory_order_release);
        const auto workers = static_cast<std::int64_t>(impl_->workers.size());
        if (workers > 0 && n > 1) {
            impl_->epoch.fetch_add(1, std::memory_order_release);
            if (n > workers) {
                impl_->epoch.notify_all();
            } else {
                for (std::int64_t i = 1; i < n; ++i)
                    impl_->epoch.notify_one();
            }
        }
        impl_->work();
        const auto finished = [&] {
            return impl_->unfinished.load(std::memory_order_acquire) == 0;
        };
        while (!spin_until(finished)) {
            const std::int64_t left = impl_->unfinished.load(std::memory_order_acquire);
            if (left != 0) impl_->unfinished.wait(left, std::memory_order_acquire);
        }
    }
    impl_->running.store(false, std::memory_order_release);
}

}  // namespace fathom
