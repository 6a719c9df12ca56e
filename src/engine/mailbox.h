// What an engine is asked to do, in order: submissions and cancellations from any thread, taken by
// the engine's thread. base/queue.h does not fit, since two rules differ: submissions are limited
// (full is an answer), but a cancellation always gets in. Those are kept once an id, so their
// number is bounded by the ids in use between two steps. A cancellation concerns what was submitted
// under its id before it, never what comes after.
//
// A queue type: the lock stays inside.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/types.h"

namespace fathom {

struct Submission {
    EngineRequest request;
    std::shared_ptr<EventSink> sink;
};

struct MailboxMessage {
    std::optional<Submission> submission;  // else a cancellation
    std::uint64_t cancelled_id = 0;
};

class Mailbox {
  public:
    enum class Push { taken, full, closed };

    Mailbox(std::size_t submissions_max, const Clock& clock)
        : submissions_max_(submissions_max), clock_(clock) {}

    Push submit(Submission&& submission);  // untouched unless taken
    void cancel(std::uint64_t id);
    void close();
    void wake();  // ends the wait in take(), or the next one if none is in progress

    // Everything that came since the last call; waits at most timeout_us for something to come.
    std::vector<MailboxMessage> take(std::int64_t timeout_us);
    bool closed() const;
    // How long the oldest message has been waiting; 0 without one.
    std::int64_t waiting_us() const;

  private:
    void push(MailboxMessage&& message);

    const std::size_t submissions_max_;
    const Clock& clock_;
    mutable std::mutex mutex_;
    std::condition_variable ready_;
    std::vector<MailboxMessage> messages_;
    std::set<std::uint64_t> cancelled_;  // ids whose last message is a cancellation
    std::size_t submissions_ = 0;
    std::int64_t oldest_us_ = 0;
    bool woken_ = false;
    bool closed_ = false;
};

}  // namespace fathom
