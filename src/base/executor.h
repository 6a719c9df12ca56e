// Where work runs, as a seam: a message to the one thread that owns an object. The gateway's owners
// run on an Asio executor, tests on a ManualExecutor that runs when told. post() never runs the
// task inside itself and may be called from any thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace fathom {

class Executor {
  public:
    virtual ~Executor() = default;
    virtual void post(std::function<void()> task) = 0;
};

// Runs posted tasks when run_all() is called, on the calling thread, in order.
class ManualExecutor : public Executor {
  public:
    void post(std::function<void()> task) override;
    std::size_t run_all();  // returns how many ran, tasks posted meanwhile included

  private:
    std::mutex mutex_;
    std::deque<std::function<void()>> tasks_;
};

}  // namespace fathom
