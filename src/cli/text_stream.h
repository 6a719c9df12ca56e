// One generation as something a plain loop can read: the deltas of each choice come out in order,
// then the result. The owner's thread never waits for the reader: when the queue is full, text
// gathers in the next delta of its choice, so what is held is bounded by the answer's length.
#pragma once

#include <cstdint>
#include <deque>
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
        std::deque<GenerationDelta> deltas;
        GenerationResult result;
    };
    BoundedQueue<GenerationDelta> deltas_{kQueuedMax};
    BoundedQueue<Last> last_{1};
    std::deque<GenerationDelta> pending_;  // owner's thread: did not fit yet, one of each choice
    std::optional<Last> last_read_;        // reader's thread: the end, its deltas not all read
};

}  // namespace fathom
