// The compute threads of an engine: created once, numbered, each with MXCSR set to round-to-nearest
// with denormals flushed (cpu-kernels.md N6). run() hands out items 0..n-1; the caller works too
// and run() returns when all are done. Which thread runs an item must never influence a result:
// every output element is written by exactly one item, in an order that the operator's contract
// fixes.
//
// Each thread begins with its own contiguous share of the items, the same one for the same n, so
// that memory which thread t touched first in one run() is read by thread t in the next (NUMA). A
// thread that is through with its share helps the others: one that the operating system holds up
// delays a run by one grain, not by its whole share.
//
// One owner thread calls run(); it is not re-entrant (an item must not call run()). Waiting threads
// spin briefly, yield, then sleep: over-subscription degrades gracefully.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/cpu_topology.h"

namespace fathom {

struct ComputePoolOptions {
    int threads = 1;  // counts the caller of run()
    // Place thread t >= 1 on processor t of the topology, and thread 0 where place_caller() is
    // called. Without it, or with more threads than processors, the operating system places them.
    bool pin = false;
    CpuTopology topology = {};  // where to pin; empty: that of this process
};

class ComputePool {
  public:
    // threads >= 1 counts the caller of run(); ComputePool(1) starts no thread.
    explicit ComputePool(int threads) : ComputePool(ComputePoolOptions{.threads = threads}) {}
    explicit ComputePool(const ComputePoolOptions& options);
    ~ComputePool();  // joins; no run() may be in progress
    ComputePool(const ComputePool&) = delete;
    ComputePool& operator=(const ComputePool&) = delete;

    int threads() const;

    // Places the calling thread, which will own run(), on the processor of thread 0; does nothing
    // without `pin`. Threads that it starts afterwards inherit the place, so a thread that only
    // prepares a pool for another does not call this.
    void place_caller();

    // Calls task(i) once for every i in [0, n), on any thread, in any order; n < 2^31. The calling
    // thread has FlushDenormals in force while tasks run.
    void run(std::int64_t n, const std::function<void(std::int64_t)>& task);

    // The same by pieces: body(begin, end) on pieces of at most `grain` items that cover [0, n).
    void run_ranges(std::int64_t n, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body);

    // Each thread runs exactly its own share [n·t/T, n·(t+1)/T) as one piece, nobody helps: for
    // touching memory first where it will be read.
    void run_shares(std::int64_t n, const std::function<void(std::int64_t, std::int64_t)>& body);

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

// The opposite, for a task of the pool whose numbers must not depend on where it runs.
class KeepDenormals {
  public:
    KeepDenormals();
    ~KeepDenormals();
    KeepDenormals(const KeepDenormals&) = delete;
    KeepDenormals& operator=(const KeepDenormals&) = delete;

  private:
    std::uint32_t saved_ = 0;
};

}  // namespace fathom
