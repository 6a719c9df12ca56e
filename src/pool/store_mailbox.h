// Messages to the one thread of a store, from any thread. There is no limit of its own: a message
// is a call somebody made, and the store answers what is beyond its limit at once. Waking happens
// under the lock, so that nothing is woken that has ended.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace fathom {

template <typename Message>
class StoreMailbox {
  public:
    explicit StoreMailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

    bool post(Message message) {  // false after close()
        std::lock_guard lock(mutex_);
        if (closed_) return false;
        messages_.push_back(std::move(message));
        if (std::exchange(sleeping_, false)) wake_();
        return true;
    }
    // The store's thread says that it is about to sleep: false when there is something to take.
    // Only a sleeper is woken, which costs a system call.
    bool begin_sleep() {
        std::lock_guard lock(mutex_);
        sleeping_ = messages_.empty();
        return sleeping_;
    }
    void end_sleep() {
        std::lock_guard lock(mutex_);
        sleeping_ = false;
    }
    // Appends nothing and swaps: `out` must be empty.
    void take(std::vector<Message>& out) {
        std::lock_guard lock(mutex_);
        out.swap(messages_);
    }
    // False when there is something to take first.
    bool close() {
        std::lock_guard lock(mutex_);
        if (messages_.empty()) closed_ = true;
        return closed_;
    }

  private:
    std::mutex mutex_;
    std::function<void()> wake_;
    std::vector<Message> messages_;
    bool sleeping_ = false, closed_ = false;
};

// The latest value of something that one thread says and any may ask.
template <typename T>
class LatestValue {
  public:
    void set(T value) {
        std::lock_guard lock(mutex_);
        value_ = std::move(value);
    }
    T get() const {
        std::lock_guard lock(mutex_);
        return value_;
    }

  private:
    mutable std::mutex mutex_;
    T value_{};
};

}  // namespace fathom
