// A bounded queue between threads: the only place where locks live (design.md, Threads). Full is an
// answer, not a wait: try_push returns false and the caller applies its stated rule. Every wait has
// a deadline. close() wakes all waiters; what was queued can still be popped.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace fathom {

template <typename T>
class BoundedQueue {
  public:
    explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

    // False when full or closed; the item is then untouched.
    bool try_push(T&& item) {
        std::lock_guard lock(mutex_);
        if (closed_ || items_.size() >= capacity_) return false;
        items_.push_back(std::move(item));
        // Under the lock: whoever gets the item may end the queue's life at once.
        ready_.notify_one();
        return true;
    }

    std::optional<T> try_pop() {
        std::lock_guard lock(mutex_);
        return take();
    }

    // Waits at most timeout_us; empty on time-out, or when closed and drained.
    std::optional<T> pop(std::int64_t timeout_us) {
        std::unique_lock lock(mutex_);
        ready_.wait_for(lock, std::chrono::microseconds(timeout_us),
                        [this] { return closed_ || !items_.empty(); });
        return take();
    }

    void close() {
        {
            std::lock_guard lock(mutex_);
            closed_ = true;
        }
        ready_.notify_all();
    }

    bool closed() const {
        std::lock_guard lock(mutex_);
        return closed_;
    }
    std::size_t size() const {
        std::lock_guard lock(mutex_);
        return items_.size();
    }
    std::size_t capacity() const { return capacity_; }

  private:
    std::optional<T> take() {
        if (items_.empty()) return std::nullopt;
        std::optional<T> item(std::move(items_.front()));
        items_.pop_front();
        return item;
    }

    const std::size_t capacity_;
    mutable std::mutex mutex_;
    std::condition_variable ready_;
    std::deque<T> items_;
    bool closed_ = false;
};

}  // namespace fathom
