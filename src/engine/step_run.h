// One step on its way through the model: the rows of some sequences, their logits, and the tokens
// drawn from them. prepare() puts the sequences in flight (sequence.h) on the engine's thread;
// execute() computes, on whatever thread owns the model's pool for the time being; then the
// engine's thread reads the outcome. One step is in flight at a time, and the object's buffers
// serve the next one again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/prefix_cache.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "model/model.h"

namespace fathom {

class StepRun {
  public:
    struct Item {
        Sequence* sequence = nullptr;
        StepSpan span;
        std::int64_t logits_row = 0;  // of its first row with logits
        bool samples = false;         // the last row's logits give a token
        std::optional<SampledToken> sampled;

        std::int64_t end() const { return span.start + span.count; }
    };

    StepRun(Model& model, const Clock& clock) : model_(model), clock_(clock) {}

    void prepare(std::span<const StepWork> work, PrefixCache& cache);
    // Forward, then sampling on the model's pool.
    void execute(Probe* probe);

    std::vector<Item>& items() { return items_; }
    std::int64_t rows() const { return rows_; }
    // Logits of the row at `position`, which is at or past the item's logits_begin. Until the next
    // prepare().
    std::span<const float> logits(const Item& item, std::int64_t position) const;
    std::int64_t start_us() const { return start_us_; }
    std::int64_t end_us() const { return end_us_; }

  private:
    void sample(std::size_t first, std::size_t stride);

    Model& model_;
    const Clock& clock_;
    std::vector<Item> items_;
    std::vector<StepSpan> spans_;
    std::vector<float> logits_;
    std::vector<SamplerWorkspace> sampler_;  // one a task
    std::int64_t rows_ = 0, logit_rows_ = 0;
    std::int64_t start_us_ = 0, end_us_ = 0;
};

}  // namespace fathom
