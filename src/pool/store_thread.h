// The thread that owns a store's state and runs its callbacks: what is posted runs there one after
// the other, and so does what falls due on a clock. The clock may be one that tests move by hand;
// it gives no sign when it moves, so while something is to fall due the thread looks every
// kLookEveryUs.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/queue.h"

namespace fathom {

class StoreThread {
  public:
    using Task = std::function<void()>;
    using Timer = std::pair<std::int64_t, std::uint64_t>;  // due at, number

    explicit StoreThread(const Clock& clock) : clock_(clock), thread_([this] { run(); }) {}
    // Runs what was posted before; what is not due yet never runs.
    ~StoreThread() { stop(); }
    StoreThread(const StoreThread&) = delete;
    StoreThread& operator=(const StoreThread&) = delete;

    // Any thread. The queue has no limit of its own: a store limits its calls, and a call posts a
    // few tasks.
    void post(Task task) { tasks_.try_push(std::move(task)); }
    // Waits until everything has run that was posted before. Not on the thread.
    void drain();
    // Ends the thread as the destructor does, for owners whose tasks use what is destroyed first.
    void stop();

    // On the thread only. A task that was cancelled or has run may be cancelled again.
    Timer at(std::int64_t due_us, Task task);
    void cancel(const Timer& timer) { timers_.erase(timer); }
    bool on_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

  private:
    static constexpr std::int64_t kLookEveryUs = 2000;
    static constexpr std::int64_t kIdleUs = 1'000'000;

    void run();
    void run_due();
    std::int64_t wait_us() const;

    const Clock& clock_;
    BoundedQueue<Task> tasks_{std::numeric_limits<std::size_t>::max()};
    std::map<Timer, Task> timers_;  // the thread's
    std::uint64_t timers_made_ = 0;
    std::thread thread_;
};

}  // namespace fathom
