// The thread that computes steps: it owns the model's pool while a task runs (worker 0) and touches
// nothing else. One task at a time. Between tasks it spins briefly, since the next step usually
// follows at once, then sleeps.
#pragma once

#include <functional>
#include <memory>

namespace fathom {

class ComputeDriver {
  public:
    // `done` is called on the driver's thread after each task; it must not block.
    explicit ComputeDriver(std::function<void()> done);
    ~ComputeDriver();  // waits for the task in progress
    ComputeDriver(const ComputeDriver&) = delete;
    ComputeDriver& operator=(const ComputeDriver&) = delete;

    void start(std::function<void()> task);  // not while busy
    // False when every task has ended; what it wrote is then visible to the caller.
    bool busy() const;
    void wait() const;  // until then

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace fathom
