#include "engine/core.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/page_pool.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace fathom {

namespace {

struct CoreMetrics {
    explicit CoreMetrics(MetricsRegistry& registry)
        : running(registry.gauge("vllm:num_requests_running", "Requests that hold a sequence.")),
          waiting(registry.gauge("vllm:num_requests_waiting",
                                 "Requests that wait to start, or to start again.")),
          cache_usage(registry.gauge("vllm:kv_cache_usage_perc", "KV pages in use, 1 is all.")),
          preemptions(registry.counter("vllm:num_preemptions_total",
                                       "Sequences that gave their pages back to be recomputed.")),
          prompt_tokens(registry.counter("vllm:prompt_tokens_total", "Prompt tokens computed.")),
          output_tokens(registry.counter("vllm:generation_tokens_total", "Tokens sampled.")),
          step_rows(registry.histogram("vllm:iteration_tokens_total", "Rows in a step.",
                                       {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192})) {
    }
    Gauge &running, &waiting, &cache_usage;
    Counter &preemptions, &prompt_tokens, &output_tokens;
    Histogram& step_rows;
};

Status check_config(const EngineConfig& config, const Model& model) {
    const auto positive = [](const char* field, std::int64_t value) -> Status {
        if (value >= 1) return {};
        return invalid_argument("{} is {}; it must be at least 1", field, value);
    };
    FATHOM_RETURN_IF_ERROR(positive("sequences_max", config.sequences_max));
    FATHOM_RETURN_IF_ERROR(positive("step_tokens_max", config.step_tokens_max));
    FATHOM_RETURN_IF_ERROR(positive("prefill_chunk_max", config.prefill_chunk_max));
    FATHOM_RETURN_IF_ERROR(positive("waiting_max", config.waiting_max));
    if (config.step_tokens_max > model.options().rows_max)
        return invalid_argument("step_tokens_max is {}; the model was loaded for {} rows a step",
                                config.step_tokens_max, model.options().rows_max);
    if (config.pages < config.sequences_max)
        return invalid_argument("pages is {}; sequences_max {} needs at least one page each",
                                config.pages, config.sequences_max);
    const std::int64_t floor = model.kv_layout().window + kDraftTokensMax + 1;
    const bool tail = config.prefill == PrefillMode::tail || config.prefill == PrefillMode::masked;
    if (tail && config.tail_tokens < floor)
        return invalid_argument("tail_tokens is {}; it must be at least {} (window {} + {} + 1)",
                                config.tail_tokens, floor, model.kv_layout().window,
                                kDraftTokensMax);
    return {};
}

// The request as its choices, each without branches, the first first.
std::vector<EngineRequest> split_choices(EngineRequest request) {
    const std::vector<Branch> branches = std::exchange(request.branches, {});
    std::vector<EngineRequest> parts;
    for (const Branch& branch : branches) {
        EngineRequest& part = parts.emplace_back(request);
        part.id = branch.id;
        part.sampling.seed = branch.seed;
        part.logits_begin = -1;
        part.capture_prefix_at = 0;
    }
    parts.insert(parts.begin(), std::move(request));
    return parts;
}

class Core final : public EngineCore {
  public:
    Core(std::unique_ptr<Model> model, const EngineConfig& config, const Clock& clock,
         MetricsRegistry* metrics)
        : model_(std::move(model)),
          config_(config),
          clock_(clock),
          pool_(std::make_shared<PagePool>(model_->kv_layout(), config.pages)),
          forks_{.kept = 0, .kept_max = kept_forks_max(config.sequences_max)},
          scheduler_(config, pool_) {
        if (metrics != nullptr) metrics_ = std::make_unique<CoreMetrics>(*metrics);
    }

    Status add(EngineRequest request, std::shared_ptr<EventSink> sink) override;
    void cancel(std::uint64_t id) override;
    void cancel_all() override;
    bool step() override;
    bool idle() const override { return scheduler_.empty(); }

    EngineStats stats() const override;
    const Model& model() const override { return *model_; }
    const EngineConfig& config() const override { return config_; }
    const Clock& clock() const override { return clock_; }
    void set_probe(Probe* probe) override { probe_ = probe; }

  private:
    struct Outgoing {
        std::shared_ptr<EventSink> sink;
        EngineEvent event;
    };

    Status check_ids_are_free(const EngineRequest& request) const;
    void end_what_is_over();
    const std::vector<StepWork>& plan();
    void run(const std::vector<StepWork>& work);
    void finish_rows(Sequence& sequence, std::int64_t count, const StepSpan& span,
                     const float* logits);
    void count_rows(Sequence& sequence);
    void end(const Sequence& sequence, EngineEvent event, FinishReason reason);
    void settle();
    void publish_metrics();

    const std::unique_ptr<Model> model_;
    const EngineConfig config_;
    const Clock& clock_;
    const std::shared_ptr<PagePool> pool_;
    ForkBudget forks_;  // before the scheduler, whose sequences refer to it
    Scheduler scheduler_;
    std::unique_ptr<CoreMetrics> metrics_;
    Probe* probe_ = nullptr;

    std::uint64_t next_order_ = 0;
    bool busy_ = false;                   // inside step() or settle(): sinks may be on the stack
    std::vector<std::uint64_t> cancels_;  // asked for while busy
    std::vector<Outgoing> outbox_;
    std::vector<StepSpan> spans_;
    std::vector<float> logits_;
    SamplerWorkspace sampler_;
    std::uint64_t steps_ = 0, prompt_tokens_ = 0, output_tokens_ = 0;
    std::uint64_t preemptions_published_ = 0;  // the registry may serve several engines
};

Status Core::check_ids_are_free(const EngineRequest& request) const {
    std::vector<std::uint64_t> ids = {request.id};
    for (const Branch& branch : request.branches)
        ids.push_back(branch.id);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (scheduler_.find(ids[i]) != nullptr)
            return invalid_argument("id {} belongs to a request that is still live", ids[i]);
        if (std::find(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i), ids[i]) !=
            ids.begin() + static_cast<std::ptrdiff_t>(i))
            return invalid_argument("id {} is given to two choices of one request", ids[i]);
    }
    return {};
}

Status Core::add(EngineRequest request, std::shared_ptr<EventSink> sink) {
    FATHOM_CHECK(sink != nullptr);
    FATHOM_RETURN_IF_ERROR(check_request(request, config_, model_->config(), *pool_));
    FATHOM_RETURN_IF_ERROR(check_ids_are_free(request));
    const auto choices = static_cast<std::int64_t>(1 + request.branches.size());
    if (scheduler_.waiting() + choices > config_.waiting_max)
        return error(StatusCode::resource_exhausted,
                     "{} requests are waiting and {} more came; the limit is {}; try again later",
                     scheduler_.waiting(), choices, config_.waiting_max);
    std::vector<EngineRequest> parts = split_choices(std::move(request));
    std::shared_ptr<PromptFork> fork;
    if (choices > 1) {
        std::vector<std::uint64_t> orders(parts.size());
        std::iota(orders.begin(), orders.end(), next_order_);
        fork = std::make_shared<PromptFork>(pool_, forks_, std::move(orders));
    }
    for (EngineRequest& part : parts) {
        auto sequence = std::make_unique<Sequence>(std::move(part), sink, next_order_++, config_,
                                                   model_->config(), model_->kv_layout());
        sequence->join_fork(fork);
        scheduler_.add(std::move(sequence));
    }
    if (!busy_) publish_metrics();
    return {};
}

void Core::cancel(std::uint64_t id) {
    cancels_.push_back(id);
    if (!busy_) settle();
}

void Core::cancel_all() {
    for (const auto& [order, sequence] : scheduler_.sequences())
        cancels_.push_back(sequence->request().id);
    if (!busy_) settle();
}

bool Core::step() {
    FATHOM_CHECK(!busy_, "step() inside a sink");
    busy_ = true;
    end_what_is_over();
    const std::vector<StepWork>& work = plan();
    const bool ran = !work.empty();
    if (ran) run(work);
    settle();
    return ran;
}

// Deadlines, and requests that their committed tokens end already.
void Core::end_what_is_over() {
    std::vector<std::pair<Sequence*, FinishReason>> over;
    const std::int64_t now_us = clock_.now_us();
    for (const auto& [order, sequence] : scheduler_.sequences()) {
        const std::int64_t deadline_us = sequence->request().deadline_us;
        if (sequence->complete_at_arrival())
            over.emplace_back(sequence.get(), sequence->committed_end());
        else if (deadline_us != 0 && now_us >= deadline_us)
            over.emplace_back(sequence.get(), FinishReason::deadline);
    }
    for (const auto& [sequence, reason] : over)
        end(*sequence, sequence->event(), reason);
}

const std::vector<StepWork>& Core::plan() {
    for (;;) {
        const StepPlan& plan = scheduler_.plan();
        if (plan.evicted.empty()) return plan.work;
        for (const Sequence* sequence : std::vector<Sequence*>(plan.evicted)) {
            EngineEvent event = sequence->event();
            event.status = error(StatusCode::resource_exhausted,
                                 "the {} prefix tokens of this request were needed by an older one",
                                 event.anchors.hit_tokens);
            end(*sequence, std::move(event), FinishReason::error);
        }
    }
}

void Core::run(const std::vector<StepWork>& work) {
    spans_.clear();
    std::int64_t rows = 0, logit_rows = 0;
    for (const StepWork& item : work) {
        spans_.push_back(item.sequence->span(item.count));
        rows += item.count;
        logit_rows += spans_.back().start + item.count - spans_.back().logits_begin;
    }
    const std::int64_t vocab = model_->config().vocab_size;
    const auto needed = static_cast<std::size_t>(std::max<std::int64_t>(logit_rows, 1) * vocab);
    if (logits_.size() < needed) logits_.resize(needed);
    model_->forward(spans_,
                    {.data = logits_.data(),
                     .dtype = DType::f32,
                     .rows = logit_rows,
                     .cols = vocab,
                     .stride = vocab},
                    probe_);
    ++steps_;
    if (metrics_) metrics_->step_rows.observe(static_cast<double>(rows));

    const float* logits = logits_.data();
    for (std::size_t i = 0; i < work.size(); ++i) {
        const StepSpan& span = spans_[i];
        finish_rows(*work[i].sequence, work[i].count, span, logits);
        logits += (span.start + span.count - span.logits_begin) * vocab;
    }
}

// What follows from a sequence's rows: observed logits, a captured prefix, a token, an end.
void Core::finish_rows(Sequence& sequence, std::int64_t count, const StepSpan& span,
                       const float* logits) {
    const std::int64_t vocab = model_->config().vocab_size;
    const std::int64_t end_position = span.start + count;
    const auto row = [&](std::int64_t position) {
        return std::span<const float>(logits + (position - span.logits_begin) * vocab,
                                      static_cast<std::size_t>(vocab));
    };
    for (std::int64_t p = std::max(span.logits_begin, sequence.observe_from()); p < end_position;
         ++p) {
        sequence.reported = true;
        sequence.sink().on_logits(sequence.request().id, p, row(p));
    }
    sequence.advance(count);
    count_rows(sequence);
    sequence.keep_prompt_end();

    if (std::shared_ptr<const Prefix> prefix = sequence.capture(pool_)) {
        EngineEvent event = sequence.event();
        event.prefix = std::move(prefix);
        sequence.reported = true;
        outbox_.push_back({sequence.shared_sink(), std::move(event)});
    }
    if (sequence.rows_left() > 0) return;
    sequence.reported = true;
    EngineEvent event = sequence.event();
    FinishReason reason = sequence.committed_end();
    if (sequence.ready_to_sample()) {
        SampledToken sampled = sequence.sample(row(end_position - 1), sampler_);
        // Damaged weights or caches show here first; a token drawn from NaN would look like an
        // answer.
        if (sampled.damaged) {
            event.status = error(StatusCode::data_loss,
                                 "position {}: the logits are not numbers; the weights or the "
                                 "caches are damaged",
                                 end_position - 1);
            end(sequence, std::move(event), FinishReason::error);
            return;
        }
        event.tokens = {sampled.token};
        if (sampled.logprobs) event.logprobs.push_back(std::move(*sampled.logprobs));
        reason = sequence.append(sampled.token);
        ++output_tokens_;
        if (metrics_) metrics_->output_tokens.add();
    }
    if (reason != FinishReason::none)
        end(sequence, std::move(event), reason);
    else
        outbox_.push_back({sequence.shared_sink(), std::move(event)});
}

void Core::count_rows(Sequence& sequence) {
    const std::int64_t done = std::min(sequence.rows_done(), sequence.prompt_tokens());
    const std::int64_t from = std::max(sequence.prompt_rows_counted, sequence.plan().first_row);
    if (done <= from) return;
    sequence.prompt_rows_counted = done;
    prompt_tokens_ += static_cast<std::uint64_t>(done - from);
    if (metrics_) metrics_->prompt_tokens.add(static_cast<std::uint64_t>(done - from));
}

void Core::end(const Sequence& sequence, EngineEvent event, FinishReason reason) {
    event.finish = reason;
    outbox_.push_back({sequence.shared_sink(), std::move(event)});
    scheduler_.remove(sequence);
}

// Sends events and takes the cancellations that sinks ask for meanwhile, until both are through.
void Core::settle() {
    busy_ = true;
    while (!outbox_.empty() || !cancels_.empty()) {
        for (const std::uint64_t id : std::exchange(cancels_, {})) {
            if (const Sequence* sequence = scheduler_.find(id))
                end(*sequence, sequence->event(), FinishReason::cancelled);
        }
        for (Outgoing& outgoing : std::exchange(outbox_, {}))
            outgoing.sink->on_event(std::move(outgoing.event));
    }
    busy_ = false;
    publish_metrics();
}

void Core::publish_metrics() {
    if (!metrics_) return;
    metrics_->running.set(static_cast<double>(scheduler_.running()));
    metrics_->waiting.set(static_cast<double>(scheduler_.waiting()));
    metrics_->cache_usage.set(static_cast<double>(pool_->used_pages()) /
                              static_cast<double>(pool_->total()));
    metrics_->preemptions.add(scheduler_.preemptions() -
                              std::exchange(preemptions_published_, scheduler_.preemptions()));
}

EngineStats Core::stats() const {
    return {.running = scheduler_.running(),
            .waiting = scheduler_.waiting(),
            .pages_total = pool_->total(),
            .pages_used = pool_->used_pages(),
            .steps = steps_,
            .prompt_tokens = prompt_tokens_,
            .output_tokens = output_tokens_,
            .preemptions = scheduler_.preemptions()};
}

}  // namespace

Result<std::unique_ptr<EngineCore>> EngineCore::create(std::unique_ptr<Model> model,
                                                       const EngineConfig& config,
                                                       const Clock& clock,
                                                       MetricsRegistry* metrics) {
    FATHOM_CHECK(model != nullptr);
    FATHOM_RETURN_IF_ERROR(check_config(config, *model));
    return std::unique_ptr<EngineCore>(
        std::make_unique<Core>(std::move(model), config, clock, metrics));
}

}  // namespace fathom
