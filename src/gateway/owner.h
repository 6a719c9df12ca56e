// The owner of one request (design.md rule 4, serving.md 3.3). It holds the token log of each of
// its choices, which is the only truth: it gives the request to the engine, appends what extends
// the log contiguously, turns committed tokens into text and reports both. Losing the engine's work
// costs time, never tokens:
//
//   engine ─ events ─► [attempt, first_index] ─ append (commit) ─ OutputParser ─► observer
//                        │ overlap: compared, dropped
//                        └ gap or difference: next attempt, with the log as committed tokens
//
// Several choices of one prompt are given to the engine together, so that the prompt is computed
// once; from then on each is an attempt of its own. A choice that fails ends the whole request.
//
// Everything of an owner runs on one executor, which must run tasks one at a time: its state needs
// no lock. start(), cancel() and tick() may be called from any thread.
//
// The HTTP server, `fathom generate` and `fathom chat` use this same class. In a terminal program:
//
//   ThreadExecutor executor;
//   OwnerRegistry owners(engine, tokenizer, executor, real_clock(), metrics, {.model_name =
//   "tiny"}); executor.set_tick(100'000, [&] { owners.tick(); }); auto prepared = prepare(request,
//   *tokenizer, owners.limits()); auto owner = owners.start(std::move(*prepared),
//   std::make_shared<PrintingObserver>());
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/executor.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "gateway/generation.h"
#include "recipe/tokenizer.h"

namespace fathom {

// Receives one generation. Called on the owner's executor; must not block.
class GenerationObserver {
  public:
    virtual ~GenerationObserver() = default;
    // What a commit shows of one choice (OutputEvent::choice). Its first event is `start`; `finish`
    // is its last and comes if the choice ended by itself. The log holds the tokens that the events
    // stand for before anybody sees them.
    virtual void on_events(const OutputParser::Events& events) = 0;
    // Exactly once, last.
    virtual void on_finish(const GenerationResult& result) = 0;
};

struct OwnerOptions {
    std::string model_name;                     // label of the metrics
    std::int64_t context_tokens = 0;            // 0: what the model and the pages allow
    std::int64_t max_tokens = 393'216;          // largest max_tokens that may be asked for
    std::size_t in_flight_max = 1024;           // live owners; more are refused
    std::int64_t not_started_us = 600'000'000;  // serving.md 3.12
    std::uint32_t attempts_max = 3;
};

class RequestOwner {
  public:
    virtual ~RequestOwner() = default;
    // Asks for the end: the observer gets on_finish with `cancelled` without waiting for the engine
    // (which drops the request at its next step), unless the generation ended before. Any thread;
    // repeatable.
    virtual void cancel() = 0;
    virtual std::uint64_t id() const = 0;
};

// The live owners of one process: gives ids, bounds their number, and watches their deadlines.
// Destroy it when no owner is live (cancel_all() and wait for live() == 0), or when the executor
// will run no more tasks. Engine events that come later are dropped, so engine and executor may die
// in any order after it.
class OwnerRegistry {
  public:
    OwnerRegistry(Engine& engine, std::shared_ptr<const Tokenizer> tokenizer, Executor& executor,
                  const Clock& clock, MetricsRegistry& metrics, const OwnerOptions& options);
    ~OwnerRegistry();
    OwnerRegistry(const OwnerRegistry&) = delete;
    OwnerRegistry& operator=(const OwnerRegistry&) = delete;

    const GenerationLimits& limits() const;  // for prepare()
    const std::shared_ptr<const Tokenizer>& tokenizer() const;

    // resource_exhausted when in_flight_max owners are live; the observer is then never called.
    // Every later failure, the engine's refusals included, arrives at on_finish. The owner lives
    // until then whether or not the caller keeps the pointer.
    Result<std::shared_ptr<RequestOwner>> start(PreparedRequest request,
                                                std::shared_ptr<GenerationObserver> observer);

    // Enforces deadlines. Call it every second or more often: nothing else wakes an owner whose
    // engine is silent.
    void tick();
    void cancel_all();
    std::size_t live() const;  // includes owners whose on_finish has not returned

    struct Impl;  // shared with the owners; see owner.cc

  private:
    std::shared_ptr<Impl> impl_;
};

}  // namespace fathom
