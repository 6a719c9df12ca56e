// Time as a seam. Everything that waits or stamps takes a Clock, so tests and the simulator run on
// virtual time. Microseconds since an arbitrary start; never goes back; any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace fathom {

class Clock {
  public:
    virtual ~Clock() = default;
    virtual std::int64_t now_us() const = 0;        // monotonic
    virtual std::int64_t wall_unix_ms() const = 0;  // for stamps shown to people, never for logic
};

// The process's real clock (CLOCK_MONOTONIC and CLOCK_REALTIME).
const Clock& real_clock();

// A clock that moves when told. Any thread may read it; advance from one thread at a time.
class ManualClock : public Clock {
  public:
    std::int64_t now_us() const override { return now_us_.load(std::memory_order_relaxed); }
    std::int64_t wall_unix_ms() const override { return now_us() / 1000; }
    void advance_us(std::int64_t delta_us) { now_us_.fetch_add(delta_us); }

  private:
    std::atomic<std::int64_t> now_us_{0};
};

}  // namespace fathom
