#include "base/executor.h"

#include <utility>

namespace fathom {

void ManualExecutor::post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
}

std::size_t ManualExecutor::run_all() {
    for (std::size_t ran = 0;; ++ran) {
        std::function<void()> task;
        {
            const std::lock_guard lock(mutex_);
            if (tasks_.empty()) return ran;
            task = std::move(tasks_.front());
            tasks_.pop_front();
        }
        task();  // outside the lock: it may post
    }
}

}  // namespace fathom
