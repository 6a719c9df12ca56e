#include "engine/step_run.h"

#include <algorithm>

#include "base/compute_pool.h"

namespace fathom {

void StepRun::prepare(std::span<const StepWork> work, PrefixCache& cache) {
    items_.clear();
    spans_.clear();
    rows_ = logit_rows_ = 0;
    for (const StepWork& entry : work) {
        Item item;
        item.sequence = entry.sequence;
        item.span = entry.sequence->launch(entry.count, cache);
        item.logits_row = logit_rows_;
        item.samples = entry.sequence->samples_in_flight();
        rows_ += entry.count;
        logit_rows_ += item.end() - item.span.logits_begin;
        spans_.push_back(item.span);
        items_.push_back(item);
    }
    const std::int64_t vocab = model_.config().vocab_size;
    const auto needed = static_cast<std::size_t>(std::max<std::int64_t>(logit_rows_, 1) * vocab);
    if (logits_.size() < needed) logits_.resize(needed);
}

void StepRun::execute(Probe* probe) {
    start_us_ = clock_.now_us();
    const std::int64_t vocab = model_.config().vocab_size;
    model_.forward(spans_,
                   {.data = logits_.data(),
                    .dtype = DType::f32,
                    .rows = logit_rows_,
                    .cols = vocab,
                    .stride = vocab},
                   probe);
    const std::size_t tasks =
        std::min(items_.size(), static_cast<std::size_t>(model_.pool().threads()));
    if (sampler_.size() < tasks) sampler_.resize(tasks);
    model_.pool().run(static_cast<std::int64_t>(tasks), [this, tasks](std::int64_t i) {
        sample(static_cast<std::size_t>(i), tasks);
    });
    end_us_ = clock_.now_us();
}

// Damaged weights or caches show here first: a token drawn from NaN would look like an answer.
void StepRun::sample(std::size_t first, std::size_t stride) {
    const KeepDenormals keep;  // the pool flushes them, but a draw is the same wherever it happens
    for (std::size_t i = first; i < items_.size(); i += stride) {
        Item& item = items_[i];
        if (item.samples)
            item.sampled = item.sequence->sample(logits(item, item.end() - 1), sampler_[first]);
    }
}

std::span<const float> StepRun::logits(const Item& item, std::int64_t position) const {
    const std::int64_t vocab = model_.config().vocab_size;
    const std::int64_t row = item.logits_row + position - item.span.logits_begin;
    return {logits_.data() + row * vocab, static_cast<std::size_t>(vocab)};
}

}  // namespace fathom
