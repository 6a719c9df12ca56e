// Runs the sequences of a golden case through the shipped engine: Checkpoint, Model, back end and
// EngineCore exactly as `serve` uses them, stepped on this thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "cli/verify/case.h"
#include "engine/core.h"
#include "model/checkpoint.h"

namespace fathom::verify {

struct RunnerOptions {
    Numerics numerics;
    CacheStorage storage = CacheStorage::packed;
    std::int64_t chunk = 2048;  // rows in a step
    int threads = 1;
    std::string backend = "auto";
};

struct Outcome {
    std::map<std::int64_t, std::vector<float>> logits;  // by position: they predict the next token
    std::vector<TokenId> tokens;                        // sampled, after the committed ones
    Anchors anchors;

    // Rows [first, first + count) as one matrix; empty when one is missing.
    std::vector<float> rows(std::int64_t first, std::int64_t count) const;
};

class CaseRunner {
  public:
    static Result<std::unique_ptr<CaseRunner>> create(const GoldenCase& c,
                                                      const RunnerOptions& options);

    // A request over a sequence's tokens with its image spans attached, that shares no pages; the
    // caller adds the mode.
    Result<EngineRequest> request(const GoldenSequence& sequence, std::span<const TokenId> prompt);
    // Adds the request and steps until it has finished.
    Result<Outcome> run(EngineRequest request, Probe* probe = nullptr);

    const ModelConfig& config() const { return core_->model().config(); }
    // The Engram token map that the tokenizer gave.
    const std::vector<std::int32_t>& token_map() const { return token_map_; }

  private:
    explicit CaseRunner(const GoldenCase& c) : case_(c) {}
    Status attach_images(const GoldenSequence& sequence, EngineRequest& request);

    const GoldenCase& case_;
    NumericMode mode_ = NumericMode::real;
    std::shared_ptr<const Checkpoint> checkpoint_;
    std::vector<std::int32_t> token_map_;
    std::unique_ptr<EngineCore> core_;
    std::vector<std::unique_ptr<std::vector<float>>> embeddings_;  // borrowed by requests
    std::uint64_t next_id_ = 1;
};

// All rows run the decoder half.
void use_exact(EngineRequest& request);
// Only (or, masked, effectively) the last `tail` rows do.
void use_tail(EngineRequest& request, PrefillMode mode, std::int64_t tail);

}  // namespace fathom::verify
