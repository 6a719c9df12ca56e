// An executor with one thread of its own: tasks run there, one at a time, in order. A periodic task
// may ride along (OwnerRegistry::tick). The queue has no limit of its own: those who post are
// bounded (live requests, connections), each with at most a few tasks at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/executor.h"

namespace fathom {

class ThreadExecutor : public Executor {
  public:
    ThreadExecutor();
    // Runs what is queued, tasks posted by those tasks too, then joins.
    ~ThreadExecutor() override;
    ThreadExecutor(const ThreadExecutor&) = delete;
    ThreadExecutor& operator=(const ThreadExecutor&) = delete;

    void post(std::function<void()> task) override;
    // Calls `task` on the thread about every period_us; an empty task ends it. When this returns
    // the former task is not running and will not run again, so it may refer to what dies next.
    // Not from a task.
    void set_tick(std::int64_t period_us, std::function<void()> task);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace fathom
