// An engine in this process as the target of a load run: no HTTP, no text. Prompts must be ids.
#pragma once

#include <cstdint>
#include <memory>

#include "cli/bench/load.h"
#include "engine/engine.h"
#include "recipe/tokenizer.h"

namespace fathom {

struct EngineTargetOptions {
    SamplingParams sampling;  // request i draws with seed + i
    bool ignore_eos = true;   // run to max_tokens
    std::int64_t timeout_us = 600'000'000;
};

class EngineTarget : public LoadTarget {
  public:
    // The engine must outlive it and every request under way.
    EngineTarget(Engine& engine, const EngineTargetOptions& options);
    ~EngineTarget() override;
    void start(std::int64_t index, const LoadRequest& request, Done done) override;
    void cancel_all() override;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Turns texts and conversations into ids, as the server would (a text gets the begin token). Errors
// name the request by its number.
Status tokenize_workload(std::vector<LoadRequest>& requests, const Tokenizer& tokenizer);

}  // namespace fathom
