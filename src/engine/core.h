// EngineCore: the step loop without a thread. add() queues a request, step() plans and runs one
// batch and sends events, cancel() drops a request at the next step boundary. Engine (engine.h)
// runs one on its own threads behind a bounded mailbox; `fathom verify` and tests drive it
// directly. The same object serves both: step() is launch(), compute(), retire() and deliver() in a
// row, and Engine calls these from two threads so that the next step is planned while one computes.
//
// A step holds one row for every decoding sequence and chunks of prompts in arrival order. Rules
// (scheduler.h has them in full):
//   * pages are taken when a chunk needs them, not for the whole prompt;
//   * a request that cannot run now never blocks the ones behind it, yet is passed by a bounded
//     number of times;
//   * when decoding sequences need pages and none is free, the youngest sequence gives its pages
//     back and is recomputed later: its prompt by the same prefill mode, its output teacher-forced,
//     so its tokens stay the same bits;
//   * a request whose prompt and output could never fit is refused when it is added.
//
// One thread calls everything here but compute(). Events are sent when the state is settled, so a
// sink may call add() and cancel().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/result.h"
#include "engine/types.h"
#include "model/model.h"

namespace fathom {

class EngineCore {
  public:
    // Checks the configuration against the model: tail_tokens >= window + γ + 1 (modes tail and
    // masked), step_tokens_max within the model's rows_max, a page for each of sequences_max.
    // `metrics` may be null; the clock and the registry must outlive the core.
    static Result<std::unique_ptr<EngineCore>> create(std::unique_ptr<Model> model,
                                                      const EngineConfig& config,
                                                      const Clock& clock, MetricsRegistry* metrics);
    virtual ~EngineCore() = default;  // requests still live are dropped without an event

    // invalid_argument: empty or too long prompt, token out of range, bad sampling values, id in
    // use, …; resource_exhausted: the waiting queue is full. A refused request sees no event.
    virtual Status add(EngineRequest request, std::shared_ptr<EventSink> sink) = 0;
    // The request ends here or, while it is in a step, when that step retires (without the token
    // that it brings); deliver() tells its sink. Unknown ids are ignored: it may have ended
    // meanwhile.
    virtual void cancel(std::uint64_t id) = 0;
    virtual void cancel_all() = 0;
    // Ends what is past its deadline and runs one step; false when there was nothing to run. Waits
    // for blocks of a tier when all requests do.
    virtual bool step() = 0;
    virtual bool idle() const = 0;  // no request waiting or running

    // The parts of a step. Between launch() and retire() a step is in flight: its sequences are the
    // model's, and everything else here may be called.
    virtual void plan_ahead() = 0;  // plans the next step unless a plan is ready
    virtual bool launch() = 0;      // takes the plan, or makes one; false as step() says
    virtual void compute() = 0;     // runs the step in flight; on any one thread
    virtual void retire() = 0;      // compute() has returned: takes in what it brought
    virtual void deliver() = 0;     // sends the events that are due

    virtual EngineStats stats() const = 0;
    virtual const Model& model() const = 0;
    virtual const EngineConfig& config() const = 0;
    virtual const Clock& clock() const = 0;
    virtual void set_probe(Probe* probe) = 0;  // for verify; null to remove
    // Called, on any thread, when blocks came from the tier (EngineConfig::tier) while nobody may
    // be looking. Set before the first add().
    virtual void set_waker(std::function<void()> /*wake*/) {}
};

}  // namespace fathom
