// One generation as something a plain loop can read: its events come out in order, then the result.
// The owner's thread never waits for the reader: when the queue is full, events gather until there
// is room, so what is held is bounded by the answer's length.
#pragma once

#include <cstdint>
#include <optional>

#include "base/queue.h"
#include "gateway/owner.h"

namespace fathom {

class TextStream : public GenerationObserver {
  public:
    using Events = OutputParser::Events;
    void on_events(const Events& events) override;
    void on_finish(const GenerationResult& result) override;

    // The next events, or none after timeout_us or when all have been read. One reader thread.
    Events next(std::int64_t timeout_us);
    // The result, once next() has handed out everything before it.
    std::optional<GenerationResult> result();

  private:
    static constexpr std::size_t kQueuedMax = 256;

    struct Last {
        Events events;
        GenerationResult result;
    };
    BoundedQueue<Events> events_{kQueuedMax};
    BoundedQueue<Last> last_{1};
    Events pending_;                 // owner's thread: did not fit yet
    std::optional<Last> last_read_;  // reader's thread: the end, its events perhaps not read
};

}  // namespace fathom
