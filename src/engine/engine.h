// Engine: an EngineCore on threads of its own. The engine's thread is the scheduler: it takes
// messages, plans, retires steps and sends events. Steps compute on a second thread
// (compute_driver.h), so the next one is planned meanwhile and follows within microseconds.
// Requests and cancellations are messages in a bounded mailbox (mailbox.h); events come back
// through each request's EventSink. Any thread may call the public functions.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/core.h"
#include "engine/types.h"

namespace fathom {

class Engine {
  public:
    explicit Engine(std::unique_ptr<EngineCore> core);
    ~Engine();  // cancels what is live (their sinks see `cancelled`) and joins
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // resource_exhausted when the mailbox is full (waiting_max submissions since the last step).
    // Refusals that the core makes later arrive as an event with finish == error.
    Status submit(EngineRequest request, std::shared_ptr<EventSink> sink);
    // Never lost, even when the mailbox is full. Concerns what was submitted under this id so far.
    void cancel(std::uint64_t id);

    EngineStats stats() const;  // a snapshot, no older than the last event
    const ModelConfig& model_config() const;
    const EngineConfig& config() const;
    // Microseconds since the engine last finished a step while work was waiting; 0 when idle. For
    // health.
    std::int64_t stalled_us() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace fathom
