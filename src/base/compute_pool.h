// The compute threads of an engine: created once, numbered, each with MXCSR set to round-to-nearest
// with denormals flushed (cpu-kernels.md N6). run() hands out task numbers 0..n-1; the caller works
// too and run() returns when all are done. Which thread runs a task must never influence a result:
// every output element is written by exactly one task, in an order that the operator's contract
// fixes.
//
// One owner thread calls run(); it is not re-entrant (a task must not call run()). Waiting workers
// spin briefly, then sleep: over-subscription degrades gracefully.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace fathom {

class ComputePool {
  public:
    // threads >= 1 counts the caller of run(); ComputePool(1) starts no thread.
    explicit ComputePool(int threads);
    ~ComputePool();  // joins; no run() may be in progress
    ComputePool(const ComputePool&) = delete;
    ComputePool& operator=(const ComputePool&) = delete;

    int threads() const;

    // Calls task(i) once for every i in [0, n), on any thread, in any order. The calling thread has
    // FlushDenormals in force while tasks run.
    void run(std::int64_t n, const std::function<void(std::int64_t)>& task);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Sets FTZ and DAZ (and round to nearest) for the current thread until destroyed (N6).
class FlushDenormals {
  public:
    FlushDenormals();
    ~FlushDenormals();
    FlushDenormals(const FlushDenormals&) = delete;
    FlushDenormals& operator=(const FlushDenormals&) = delete;

  private:
    std::uint32_t saved_ = 0;
};

}  // namespace fathom
