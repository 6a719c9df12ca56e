#include "gateway/thread_executor.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace fathom {

using SteadyTime = std::chrono::steady_clock::time_point;

struct ThreadExecutor::Impl {
    std::mutex mutex;
    std::condition_variable wake;       // a task, a tick to set, or the end
    std::condition_variable tick_idle;  // the tick is not running
    std::deque<std::function<void()>> tasks;
    std::function<void()> tick;
    std::chrono::microseconds tick_period{0};
    SteadyTime tick_due;
    bool tick_running = false;
    bool stop = false;
    std::thread thread;

    bool tick_is_due() const { return tick && std::chrono::steady_clock::now() >= tick_due; }

    void run() {
        std::unique_lock lock(mutex);
        while (true) {
            const auto ready = [this] { return stop || !tasks.empty() || tick_is_due(); };
            if (tick) {
                wake.wait_until(lock, tick_due, ready);
            } else {
                wake.wait(lock, [this] { return stop || !tasks.empty() || tick; });
            }
            if (tick_is_due()) run_tick(lock);
            if (!tasks.empty()) {
                std::function<void()> task = std::move(tasks.front());
                tasks.pop_front();
                lock.unlock();
                task();
                task = nullptr;  // what it captured dies outside the lock
                lock.lock();
            } else if (stop) {
                return;
            }
        }
    }

    void run_tick(std::unique_lock<std::mutex>& lock) {
        tick_due = std::chrono::steady_clock::now() + tick_period;
        tick_running = true;
        const std::function<void()> task = tick;
        lock.unlock();
        task();
        lock.lock();
        tick_running = false;
        tick_idle.notify_all();
    }
};

ThreadExecutor::ThreadExecutor() : impl_(std::make_unique<Impl>()) {
    impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

ThreadExecutor::~ThreadExecutor() {
    {
        std::lock_guard lock(impl_->mutex);
        impl_->stop = true;
    }
    impl_->wake.notify_all();
    impl_->thread.join();
}

void ThreadExecutor::post(std::function<void()> task) {
    {
        std::lock_guard lock(impl_->mutex);
        impl_->tasks.push_back(std::move(task));
    }
    impl_->wake.notify_all();
}

void ThreadExecutor::set_tick(std::int64_t period_us, std::function<void()> task) {
    {
        std::unique_lock lock(impl_->mutex);
        impl_->tick = std::move(task);
        impl_->tick_period = std::chrono::microseconds(period_us);
        impl_->tick_due = std::chrono::steady_clock::now() + impl_->tick_period;
        impl_->tick_idle.wait(lock, [this] { return !impl_->tick_running; });
    }
    impl_->wake.notify_all();
}

}  // namespace fathom
