#include "engine/compute_driver.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/queue.h"

namespace fathom {

namespace {
// A step follows within this when the engine is busy: retiring one takes some ten microseconds.
constexpr auto kSpin = std::chrono::microseconds(100);
constexpr std::int64_t kSleepUs = 1'000'000;
}  // namespace

struct ComputeDriver::Impl {
    explicit Impl(std::function<void()> on_done) : done(std::move(on_done)) {
        thread = std::thread([this] { run(); });
        pthread_setname_np(thread.native_handle(), "compute-0");
    }

    void run() {
        while (!tasks.closed() || tasks.size() > 0) {
            spin();
            std::optional<std::function<void()>> task = tasks.pop(kSleepUs);
            if (!task.has_value()) continue;
            (*task)();
            ended.fetch_add(1, std::memory_order_release);
            ended.notify_all();
            done();
        }
    }

    void spin() const {
        const auto deadline = std::chrono::steady_clock::now() + kSpin;
        while (started.load(std::memory_order_relaxed) == ended.load(std::memory_order_relaxed) &&
               std::chrono::steady_clock::now() < deadline)
            std::this_thread::yield();
    }

    const std::function<void()> done;
    BoundedQueue<std::function<void()>> tasks{1};
    std::atomic<std::uint64_t> started{0}, ended{0};
    std::thread thread;
};

ComputeDriver::ComputeDriver(std::function<void()> done)
    : impl_(std::make_unique<Impl>(std::move(done))) {}

ComputeDriver::~ComputeDriver() {
    impl_->tasks.close();
    impl_->thread.join();
}

void ComputeDriver::start(std::function<void()> task) {
    FATHOM_CHECK(!busy(), "one task at a time");
    impl_->started.fetch_add(1, std::memory_order_relaxed);
    FATHOM_CHECK(impl_->tasks.try_push(std::move(task)));
}

bool ComputeDriver::busy() const {
    return impl_->ended.load(std::memory_order_acquire) !=
           impl_->started.load(std::memory_order_relaxed);
}

void ComputeDriver::wait() const {
    const std::uint64_t started = impl_->started.load(std::memory_order_relaxed);
    for (std::uint64_t ended; (ended = impl_->ended.load(std::memory_order_acquire)) != started;)
        impl_->ended.wait(ended, std::memory_order_acquire);
}

}  // namespace fathom
