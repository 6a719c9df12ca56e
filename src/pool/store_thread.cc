#include "pool/store_thread.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace fathom {

void StoreThread::stop() {
    tasks_.close();
    if (thread_.joinable()) thread_.join();
}

void StoreThread::drain() {
    BoundedQueue<bool> drained(1);
    post([&drained] { drained.try_push(true); });
    while (!drained.pop(kIdleUs)) {
    }
}

StoreThread::Timer StoreThread::at(std::int64_t due_us, Task task) {
    FATHOM_CHECK(on_thread());
    const Timer timer{due_us, timers_made_++};
    timers_.emplace(timer, std::move(task));
    return timer;
}

void StoreThread::run() {
    for (;;) {
        std::optional<Task> task = tasks_.pop(wait_us());
        if (task) (*task)();
        run_due();
        if (!task && tasks_.closed() && tasks_.size() == 0) return;
    }
}

void StoreThread::run_due() {
    const std::int64_t now = clock_.now_us();
    while (!timers_.empty() && timers_.begin()->first.first <= now) {
        const Task task = std::move(timers_.begin()->second);
        timers_.erase(timers_.begin());
        task();  // may set and cancel others
    }
}

std::int64_t StoreThread::wait_us() const {
    if (timers_.empty()) return kIdleUs;
    return std::clamp(timers_.begin()->first.first - clock_.now_us(), std::int64_t{0},
                      kLookEveryUs);
}

}  // namespace fathom
