// One generation as something a plain loop can read: deltas come out in order, then the result.
// The owner's thread never waits for the reader: when the queue is full, text gathers in the next
// delta, so what is held is bounded by the answer's length.
#pragma once

#include <cstdint>
#include <optional>

#include "base/queue.h"
#include "gateway/owner.h"

namespace fathom {

class TextStream : public GenerationObserver {
  public:
    void on_delta(const GenerationDelta& delta) override;
    void on_finish(const GenerationResult& result) override;

    // The next text, or empty after timeout_us or when all has been read. One reader thread.
    std::optional<GenerationDelta> next(std::int64_t timeout_us);
    // The result, once next() has handed out everything before it.
    std::optional<GenerationResult> result();

  private:
    static constexpr std::size_t kQueuedMax = 256;

    struct Last {
        GenerationDelta delta;
        GenerationResult result;
    };
    BoundedQueue<GenerationDelta> deltas_{kQueuedMax};
    BoundedQueue<Last> last_{1};
    GenerationDelta pending_;               // owner's thread: did not fit yet
    std::optional<GenerationResult> done_;  // reader's thread
};

}  // namespace fathom
