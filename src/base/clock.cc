#include "base/clock.h"

#include <chrono>

namespace fathom {

namespace {

class RealClock final : public Clock {
  public:
    std::int64_t now_us() const override {
        return std::chrono::duration_cast<std::chrono::microseconds>(
                   std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
    std::int64_t wall_unix_ms() const override {
        return std::chrono::duration_cast<std::chrono::milliseconds>(
                   std::chrono::system_clock::now().time_since_epoch())
            .count();
    }
};

}  // namespace

const Clock& real_clock() {
    static const RealClock clock;
    return clock;
}

}  // namespace fathom
