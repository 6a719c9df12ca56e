#include "engine/core.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/block_loader.h"
#include "engine/model_shape.h"
#include "engine/page_pool.h"
#include "engine/prefix_cache.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_run.h"
#include "policy/cost_fit.h"

namespace fathom {

namespace {

// The cache counts by itself; a registry may serve several engines, so differences are added.
class CacheMetrics {
  public:
    explicit CacheMetrics(MetricsRegistry& registry)
        : snapshot_hits_(registry.counter("fathom_snapshot_hits_total",
                                          "Requests that began from a window snapshot.")),
          replays_(registry.counter("fathom_window_replays_total",
                                    "Requests that rebuilt their windows at a hit.")),
          recalls_(registry.counter("fathom_snapshot_recalls_total",
                                    "Window snapshots that were found behind the cache.")),
          evictions_(registry.counter("fathom_prefix_cache_evictions_total",
                                      "Cached pages that were taken for others.")),
          snapshot_evictions_(
              registry.counter("fathom_snapshot_evictions_total",
                               "Window snapshots dropped by budget, age or with their page.")),
          pages_(
              registry.gauge("fathom_prefix_cache_pages", "Cached pages, those in use included.")),
          snapshot_bytes_(registry.gauge("fathom_snapshot_bytes", "Bytes of window snapshots.")) {}

    void publish(const PrefixCacheStats& now) {
        snapshot_hits_.add(now.snapshot_hits - before_.snapshot_hits);
        replays_.add(now.replays - before_.replays);
        recalls_.add(now.recalls - before_.recalls);
        evictions_.add(now.evictions - before_.evictions);
        snapshot_evictions_.add(now.snapshot_evictions - before_.snapshot_evictions);
        pages_.set(static_cast<double>(now.blocks));
        snapshot_bytes_.set(static_cast<double>(now.snapshot_bytes));
        before_ = now;
    }

  private:
    Counter &snapshot_hits_, &replays_, &recalls_, &evictions_, &snapshot_evictions_;
    Gauge &pages_, &snapshot_bytes_;
    PrefixCacheStats before_;
};

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
          step_rows(registry.histogram(
              "vllm:iteration_tokens_total", "Rows in a step.",
              {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768})),
          step_seconds(registry.histogram("fathom_step_seconds",
                                          "Computing time of a step, sampling included.",
                                          {0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1, 3})),
          step_gap(registry.histogram(
              "fathom_step_gap_seconds",
              "From the end of a step to the beginning of the next while there is work.",
              {1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 0.1})),
          cost_scale(registry.gauge("fathom_cost_model_scale",
                                    "Measured step time by predicted, slowly followed; beyond "
                                    "0.82 to 1.22 calibrate again.")),
          cache(registry) {}
    Gauge &running, &waiting, &cache_usage;
    Counter &preemptions, &prompt_tokens, &output_tokens;
    Histogram &step_rows, &step_seconds, &step_gap;
    Gauge& cost_scale;
    CacheMetrics cache;
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
    FATHOM_RETURN_IF_ERROR(positive("step_budget_us", config.step_budget_us));
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

// What a prompt's row takes in a chunk of usual size; 0 without a cost model.
double row_cost_us(const EngineConfig& config, const ModelConfig& model) {
    constexpr std::int64_t kRows = 1024;
    if (!config.cost.known()) return 0;
    const ModelShape shape = make_model_shape(model);
    StepFeatures features(shape);
    ChunkRequest chunk;
    chunk.remaining = kRows;
    chunk.decoder_begin = kRows;
    features.add(chunk.slice(kRows));
    return config.cost.cost_us(features) / static_cast<double>(kRows);
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
    }
    parts.insert(parts.begin(), std::move(request));
    return parts;
}

// Requests that end meanwhile, and deadlines, are looked for this often.
constexpr std::int64_t kLoaderWaitUs = 5'000;

class Core final : public EngineCore {
  public:
    Core(std::unique_ptr<Model> model, const EngineConfig& config, const Clock& clock,
         MetricsRegistry* metrics)
        : model_(std::move(model)),
          config_(config),
          clock_(clock),
          pool_(model_->kv_layout(), config.pages),
          cache_(pool_, clock,
                 {.snapshot_bytes_max = config.snapshot_bytes_max,
                  .snapshot_life_us = config.snapshot_life_us,
                  .windows = config.windows}),
          forks_{.kept = 0, .kept_max = kept_forks_max(config.sequences_max)},
          scheduler_(config, make_model_shape(model_->config()), cache_),
          run_(*model_, clock) {
        if (metrics != nullptr) metrics_ = std::make_unique<CoreMetrics>(*metrics);
        if (config.tier != nullptr && config.prefix_cache)
            loader_ = std::make_unique<BlockLoader>(*config.tier, cache_, clock, config.tier_budget,
                                                    row_cost_us(config, model_->config()),
                                                    config.waiting_max, metrics);
    }

    Status add(EngineRequest request, std::shared_ptr<EventSink> sink) override;
    void cancel(std::uint64_t id) override;
    void cancel_all() override;
    bool step() override;
    bool idle() const override { return scheduler_.empty(); }
    void plan_ahead() override;
    bool launch() override;
    void compute() override;
    void retire() override;
    void deliver() override;

    EngineStats stats() const override;
    const Model& model() const override { return *model_; }
    const EngineConfig& config() const override { return config_; }
    const Clock& clock() const override { return clock_; }
    void set_probe(Probe* probe) override { probe_ = probe; }
    void set_waker(std::function<void()> wake) override {
        if (loader_) loader_->set_waker(std::move(wake));
    }

  private:
    struct Outgoing {
        std::shared_ptr<EventSink> sink;
        EngineEvent event;
    };

    Status check_ids_are_free(const EngineRequest& request) const;
    void make_plan();
    void end_what_is_over();
    void offer_refused_again();
    void retire_item(StepRun::Item& item);
    void count_step();
    void count_rows(Sequence& sequence);
    void end(const Sequence& sequence, EngineEvent event, FinishReason reason);
    void publish_metrics();

    const std::unique_ptr<Model> model_;
    const EngineConfig config_;
    const Clock& clock_;
    PagePool pool_;
    PrefixCache cache_;
    ForkBudget forks_;  // before the scheduler, whose sequences refer to it
    Scheduler scheduler_;
    std::unique_ptr<BlockLoader> loader_;  // null without a tier
    StepRun run_;
    std::unique_ptr<CoreMetrics> metrics_;
    Probe* probe_ = nullptr;

    std::uint64_t next_order_ = 0;
    bool in_flight_ = false;   // run_ holds a step that has not retired
    bool planned_ = false;     // scheduler_ holds a plan that nothing has made untrue
    bool delivering_ = false;  // a sink may be on the stack
    // The step in flight, or the next one, follows the last without a pause for lack of work.
    bool followed_ = false;
    std::int64_t last_end_us_ = 0;
    double predicted_us_ = 0;  // of the step in flight; 0 without a cost model
    CostCorrection correction_;
    std::vector<Outgoing> outbox_;
    std::uint64_t steps_ = 0, prompt_tokens_ = 0, output_tokens_ = 0;
    std::uint64_t step_us_ = 0, step_gap_us_ = 0;
    std::thread::id placed_;  // the thread that computes, once it has its processor
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
    FATHOM_RETURN_IF_ERROR(check_request(request, config_, model_->config(), pool_));
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
        fork = std::make_shared<PromptFork>(cache_, forks_, std::move(orders));
    }
    for (EngineRequest& part : parts) {
        auto sequence =
            std::make_unique<Sequence>(std::move(part), sink, next_order_++, config_, *model_);
        sequence->join_fork(fork);
        Sequence& added = *sequence;
        scheduler_.add(std::move(sequence));
        if (loader_ && !added.waits_for_fork()) loader_->begin(added);
    }
    planned_ = false;
    if (!delivering_) publish_metrics();
    return {};
}

void Core::cancel(std::uint64_t id) {
    Sequence* sequence = scheduler_.find(id);
    if (sequence == nullptr) return;
    if (sequence->in_flight()) {
        sequence->cancel_requested = true;
        return;
    }
    end(*sequence, sequence->event(), FinishReason::cancelled);
}

void Core::cancel_all() {
    std::vector<std::uint64_t> ids;
    for (const auto& [order, sequence] : scheduler_.sequences())
        ids.push_back(sequence->request().id);
    for (const std::uint64_t id : ids)
        cancel(id);
}

bool Core::step() {
    FATHOM_CHECK(!delivering_, "step() inside a sink");
    bool ran = launch();
    while (!ran && loader_ && loader_->loading()) {
        loader_->wait(kLoaderWaitUs);
        planned_ = false;
        ran = launch();
    }
    if (ran) {
        compute();
        retire();
    }
    deliver();
    return ran;
}

void Core::plan_ahead() {
    if (!planned_ || (loader_ && loader_->poll())) make_plan();
}

void Core::make_plan() {
    if (loader_) loader_->poll();
    end_what_is_over();
    scheduler_.plan();
    // Pages that wait for a request with what was loaded into them are the first to go.
    if (loader_ && scheduler_.last_plan().work.empty() && !scheduler_.last_plan().incomplete &&
        !scheduler_.empty() && loader_->give_back())
        scheduler_.plan();
    planned_ = true;
}

// Deadlines, and requests that their committed tokens end already.
void Core::end_what_is_over() {
    std::vector<std::pair<Sequence*, FinishReason>> over;
    const std::int64_t now_us = clock_.now_us();
    for (const auto& [order, sequence] : scheduler_.sequences()) {
        if (sequence->in_flight()) continue;
        const std::int64_t deadline_us = sequence->request().deadline_us;
        if (sequence->complete_at_arrival())
            over.emplace_back(sequence.get(), sequence->committed_end());
        else if (deadline_us != 0 && now_us >= deadline_us)
            over.emplace_back(sequence.get(), FinishReason::deadline);
    }
    for (const auto& [sequence, reason] : over)
        end(*sequence, sequence->event(), reason);
}

bool Core::launch() {
    FATHOM_CHECK(!in_flight_);
    if (loader_ && loader_->poll()) planned_ = false;
    if (!planned_ || scheduler_.last_plan().incomplete) make_plan();
    planned_ = false;
    const StepPlan& plan = scheduler_.last_plan();
    followed_ = followed_ && !plan.work.empty();
    if (plan.work.empty()) {
        cache_.expire();  // also of an engine that nobody asks
        return false;
    }
    scheduler_.commit();
    if (loader_) loader_->release_started();
    predicted_us_ = plan.cost_us;
    run_.prepare(plan.work, cache_);
    in_flight_ = true;
    return true;
}

void Core::compute() {
    if (placed_ != std::this_thread::get_id()) {
        model_->pool().place_caller();
        placed_ = std::this_thread::get_id();
    }
    run_.execute(probe_);
}

void Core::retire() {
    FATHOM_CHECK(in_flight_);
    count_step();
    if (config_.tier != nullptr) offer_refused_again();
    for (StepRun::Item& item : run_.items())
        retire_item(item);
    in_flight_ = false;
    followed_ = !scheduler_.empty();
}

void Core::count_step() {
    const std::int64_t step_us = run_.end_us() - run_.start_us();
    ++steps_;
    step_us_ += static_cast<std::uint64_t>(step_us);
    if (metrics_) {
        metrics_->step_rows.observe(static_cast<double>(run_.rows()));
        metrics_->step_seconds.observe(1e-6 * static_cast<double>(step_us));
    }
    if (followed_) {
        const std::int64_t gap_us = run_.start_us() - last_end_us_;
        step_gap_us_ += static_cast<std::uint64_t>(gap_us);
        if (metrics_) metrics_->step_gap.observe(1e-6 * static_cast<double>(gap_us));
    }
    last_end_us_ = run_.end_us();
    correction_.observe(predicted_us_, static_cast<double>(step_us));
    scheduler_.set_cost_scale(correction_.scale());
    if (metrics_) metrics_->cost_scale.set(correction_.scale());
}

void Core::offer_refused_again() {
    while (const std::optional<BlockKey> key = config_.tier->next_refused())
        if (PrefixCache::Block* block = cache_.find(*key)) block->set_store_due_ms(0);
}

// What follows from a sequence's rows: observed logits, a token, an end.
void Core::retire_item(StepRun::Item& item) {
    Sequence& sequence = *item.sequence;
    for (std::int64_t p = std::max(item.span.logits_begin, sequence.observe_from()); p < item.end();
         ++p)
        sequence.sink().on_logits(sequence.request().id, p, run_.logits(item, p));
    sequence.advance(cache_);
    if (config_.tier != nullptr && !(item.sampled.has_value() && item.sampled->damaged))
        sequence.persist(*config_.tier, pool_, clock_.wall_unix_ms());
    count_rows(sequence);
    if (sequence.keep_prompt_end(cache_)) planned_ = false;  // its other choices can start
    if (sequence.cancel_requested) return end(sequence, sequence.event(), FinishReason::cancelled);

    if (sequence.rows_left() > 0) return;
    EngineEvent event = sequence.event();
    FinishReason reason = sequence.committed_end();
    if (item.sampled.has_value() && item.sampled->damaged) {
        event.status = error(StatusCode::data_loss,
                             "position {}: the logits are not numbers; the weights or the caches "
                             "are damaged",
                             item.end() - 1);
        reason = FinishReason::error;
        sequence.distrust_pages(cache_);
    } else if (item.sampled.has_value()) {
        event.tokens = {item.sampled->token};
        if (item.sampled->logprobs) event.logprobs.push_back(std::move(*item.sampled->logprobs));
        reason = sequence.append(item.sampled->token);
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
    const std::int64_t from = std::max(sequence.prompt_rows_counted, sequence.first_row());
    if (done <= from) return;
    sequence.prompt_rows_counted = done;
    prompt_tokens_ += static_cast<std::uint64_t>(done - from);
    if (metrics_) metrics_->prompt_tokens.add(static_cast<std::uint64_t>(done - from));
}

void Core::end(const Sequence& sequence, EngineEvent event, FinishReason reason) {
    event.finish = reason;
    outbox_.push_back({sequence.shared_sink(), std::move(event)});
    if (loader_) loader_->forget(sequence);
    scheduler_.remove(sequence);
    planned_ = false;
}

// Sinks may make new events due.
void Core::deliver() {
    FATHOM_CHECK(!std::exchange(delivering_, true), "deliver() inside a sink");
    while (!outbox_.empty()) {
        for (Outgoing& outgoing : std::exchange(outbox_, {}))
            outgoing.sink->on_event(std::move(outgoing.event));
    }
    delivering_ = false;
    publish_metrics();
}

void Core::publish_metrics() {
    if (!metrics_) return;
    metrics_->running.set(static_cast<double>(scheduler_.running()));
    metrics_->waiting.set(static_cast<double>(scheduler_.waiting()));
    const EngineStats now = stats();
    metrics_->cache_usage.set(static_cast<double>(now.pages_used) /
                              static_cast<double>(now.pages_total));
    metrics_->cache.publish(cache_.stats());
    metrics_->preemptions.add(scheduler_.preemptions() -
                              std::exchange(preemptions_published_, scheduler_.preemptions()));
}

EngineStats Core::stats() const {
    const PrefixCacheStats cache = cache_.stats();
    return {.running = scheduler_.running(),
            .waiting = scheduler_.waiting(),
            .pages_total = pool_.total(),
            .pages_used = pool_.total() - cache_.available_pages(),
            .pages_cached = cache.blocks,
            .prefix_query_tokens = cache.query_tokens,
            .prefix_hit_tokens = cache.hit_tokens,
            .steps = steps_,
            .prompt_tokens = prompt_tokens_,
            .output_tokens = output_tokens_,
            .preemptions = scheduler_.preemptions(),
            .step_us = step_us_,
            .step_gap_us = step_gap_us_};
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
