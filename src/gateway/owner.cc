#include "gateway/owner.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "gateway/owner_metrics.h"
#include "model/kv_cache.h"
#include "recipe/detokenizer.h"
#include "recipe/stop_strings.h"
#include "recipe/thinking.h"

namespace fathom {

namespace {

// The way to the executor for messages that may come after the registry is gone: an engine keeps a
// request's sink until its next step, however long that takes. A closed gate drops them.
class ExecutorGate {
  public:
    explicit ExecutorGate(Executor& executor) : executor_(&executor) {}
    void post(std::function<void()> task) {
        std::lock_guard lock(mutex_);
        if (executor_ != nullptr) executor_->post(std::move(task));
    }
    void close() {
        std::lock_guard lock(mutex_);
        executor_ = nullptr;
    }

  private:
    std::mutex mutex_;
    Executor* executor_;
};

class Owner;

}  // namespace

struct OwnerRegistry::Impl : std::enable_shared_from_this<OwnerRegistry::Impl> {
    Impl(Engine& engine_in, std::shared_ptr<const Tokenizer> tokenizer_in, Executor& executor,
         const Clock& clock_in, MetricsRegistry& registry, const OwnerOptions& options_in)
        : engine(engine_in),
          tokenizer(std::move(tokenizer_in)),
          clock(clock_in),
          options(options_in),
          gate(std::make_shared<ExecutorGate>(executor)),
          metrics(registry, options_in.model_name) {}

    Engine& engine;
    std::shared_ptr<const Tokenizer> tokenizer;
    const Clock& clock;
    const OwnerOptions options;
    GenerationLimits limits;
    std::shared_ptr<ExecutorGate> gate;
    OwnerMetrics metrics;

    std::atomic<std::uint64_t> next_id{1};
    std::atomic<std::size_t> live{0};
    std::atomic<bool> closed{false};
    std::map<std::uint64_t, std::shared_ptr<Owner>> owners;  // executor only
};

namespace {

class Owner : public RequestOwner, public std::enable_shared_from_this<Owner> {
  public:
    Owner(std::shared_ptr<OwnerRegistry::Impl> registry, std::uint64_t id, PreparedRequest request,
          std::shared_ptr<GenerationObserver> observer)
        : registry_(std::move(registry)),
          id_(id),
          request_(std::move(request)),
          observer_(std::move(observer)),
          detokenizer_(registry_->tokenizer),
          thinking_(request_.starts_in_thinking),
          stops_(request_.stop_strings),
          started_us_(registry_->clock.now_us()) {}

    std::uint64_t id() const override { return id_; }
    void cancel() override {
        post([](Owner& owner) { owner.cancel_now(); });
    }

    // Everything below runs on the executor.
    void begin() {
        if (!finished_) submit();
    }
    void on_event(const EngineEvent& event);
    void tick();
    void cancel_now() {
        finish(GenerationFinish::cancelled,
               Status(StatusCode::cancelled, "the request was cancelled"));
    }

  private:
    class Sink;

    template <typename Action>
    void post(Action action) {
        registry_->gate->post([self = shared_from_this(), action] {
            if (!self->registry_->closed) action(*self);
        });
    }

    void submit();
    void resume(const std::string& cause);
    bool overlap_agrees(const EngineEvent& event, std::int64_t overlap) const;
    enum class Commit { open, stopped, full };
    Commit append(TokenId token, GenerationDelta& delta);
    void show(std::string_view text, GenerationDelta& delta);
    void show_content(std::string_view text, GenerationDelta& delta);
    void flush(GenerationDelta& delta);
    void stamp_commit(std::size_t tokens, bool first);
    void report(const GenerationDelta& delta);
    void finish_unended(const EngineEvent& event);
    void finish(GenerationFinish finish, Status status);
    std::int64_t log_length() const { return static_cast<std::int64_t>(log_.size()); }

    const std::shared_ptr<OwnerRegistry::Impl> registry_;
    const std::uint64_t id_;
    const PreparedRequest request_;
    std::shared_ptr<GenerationObserver> observer_;

    std::vector<TokenId> log_;     // the committed tokens: append only
    std::uint64_t engine_id_ = 0;  // of the running attempt
    std::uint32_t attempt_ = 0;
    bool finished_ = false;

    Detokenizer detokenizer_;
    ThinkingSplitter thinking_;
    StopStrings stops_;
    std::string matched_stop_;

    const std::int64_t started_us_;
    std::int64_t first_token_us_ = 0;
    std::int64_t last_token_us_ = 0;
    std::int64_t cached_tokens_ = 0;
    Anchors anchors_;
};

// Lives in the engine for one attempt; moves events to the owner's executor.
class Owner::Sink : public EventSink {
  public:
    explicit Sink(std::shared_ptr<Owner> owner) : owner_(std::move(owner)) {}
    void on_event(EngineEvent event) override {
        owner_->post([event = std::move(event)](Owner& owner) { owner.on_event(event); });
    }

  private:
    std::shared_ptr<Owner> owner_;
};

void Owner::submit() {
    ++attempt_;
    // An engine id of its own for every attempt: a cancellation of the former one that is still on
    // its way cannot hit the new one.
    engine_id_ = registry_->next_id.fetch_add(1);
    EngineRequest request;
    request.id = engine_id_;
    request.attempt = attempt_;
    request.prompt = request_.prompt;
    request.committed = log_;
    request.sampling = request_.sampling;
    request.max_tokens = request_.max_tokens;
    request.stop_tokens = request_.stop_tokens;
    const Status status =
        registry_->engine.submit(std::move(request), std::make_shared<Sink>(shared_from_this()));
    if (!status.ok()) finish(GenerationFinish::error, status);
}

void Owner::on_event(const EngineEvent& event) {
    if (finished_ || event.attempt != attempt_) return;
    if (event.first_index < 0 || event.first_index > log_length())
        return resume(fmt::format("tokens from index {} on came while the log has {}",
                                  event.first_index, log_length()));
    const std::int64_t overlap = std::min<std::int64_t>(
        log_length() - event.first_index, static_cast<std::int64_t>(event.tokens.size()));
    if (!overlap_agrees(event, overlap))
        return resume(
            fmt::format("tokens from index {} on differ from the log", event.first_index));
    if (!event.tokens.empty()) {
        cached_tokens_ = event.cached_tokens;
        anchors_ = event.anchors;
    }

    GenerationDelta delta;
    const std::size_t before = log_.size();
    Commit state = Commit::open;
    for (std::size_t i = static_cast<std::size_t>(overlap);
         i < event.tokens.size() && state == Commit::open; ++i)
        state = append(event.tokens[i], delta);
    if (log_.size() > before) stamp_commit(log_.size() - before, before == 0);
    // The owner decides the end by its own log; an engine that says so first is believed too.
    if (state == Commit::open && event.finish == FinishReason::stop_token) state = Commit::stopped;
    if (state == Commit::open && event.finish == FinishReason::length) state = Commit::full;
    if (state != Commit::open && matched_stop_.empty()) flush(delta);
    report(delta);
    if (state == Commit::stopped || !matched_stop_.empty()) {
        finish(GenerationFinish::stop, {});
    } else if (state == Commit::full) {
        finish(GenerationFinish::length, {});
    } else if (event.finish != FinishReason::none) {
        finish_unended(event);
    }
}

bool Owner::overlap_agrees(const EngineEvent& event, std::int64_t overlap) const {
    return std::equal(event.tokens.begin(), event.tokens.begin() + overlap,
                      log_.begin() + event.first_index);
}

// Commit = append: text is made from a token only once the log holds it.
Owner::Commit Owner::append(TokenId token, GenerationDelta& delta) {
    log_.push_back(token);
    const auto& stop_tokens = request_.stop_tokens;
    if (std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end())
        return Commit::stopped;
    show(detokenizer_.push(token).text, delta);
    if (!matched_stop_.empty()) return Commit::stopped;
    return log_length() < request_.max_tokens ? Commit::open : Commit::full;
}

void Owner::show(std::string_view text, GenerationDelta& delta) {
    ThinkingSplitter::Output split = thinking_.push(text);
    delta.reasoning += split.reasoning;
    show_content(split.content, delta);
}

// Stop strings act on content only (recipe.md 3.3).
void Owner::show_content(std::string_view text, GenerationDelta& delta) {
    if (text.empty()) return;
    StopStrings::Output checked = stops_.push(text);
    delta.content += checked.text;
    if (checked.stopped) matched_stop_ = checked.matched;
}

// What was held back while it could still have become a character, a marker or a stop string.
void Owner::flush(GenerationDelta& delta) {
    show(detokenizer_.finish().text, delta);
    ThinkingSplitter::Output split = thinking_.finish();
    delta.reasoning += split.reasoning;
    show_content(split.content, delta);
    if (matched_stop_.empty()) delta.content += stops_.finish();
}

void Owner::stamp_commit(std::size_t tokens, bool first) {
    const std::int64_t now = registry_->clock.now_us();
    if (first) {
        first_token_us_ = now;
        registry_->metrics.first_token(now - started_us_);
        observer_->on_started();
    } else {
        registry_->metrics.inter_token(now - last_token_us_, tokens);
    }
    last_token_us_ = now;
}

void Owner::report(const GenerationDelta& delta) {
    if (!delta.reasoning.empty() || !delta.content.empty()) observer_->on_delta(delta);
}

void Owner::finish_unended(const EngineEvent& event) {
    switch (event.finish) {
        case FinishReason::cancelled:
            return finish(GenerationFinish::cancelled,
                          Status(StatusCode::cancelled, "the engine cancelled the request"));
        case FinishReason::deadline:
            return finish(GenerationFinish::deadline,
                          Status(StatusCode::deadline_exceeded, "the request's time ran out"));
        case FinishReason::error:
            if (event.status.code() == StatusCode::unavailable)
                return resume(event.status.message());
            return finish(GenerationFinish::error, event.status);
        case FinishReason::stop_token:
        case FinishReason::length:
        case FinishReason::none:
            break;
    }
    FATHOM_CHECK(false);
}

void Owner::resume(const std::string& cause) {
    registry_->engine.cancel(engine_id_);
    if (attempt_ >= registry_->options.attempts_max)
        return finish(
            GenerationFinish::error,
            error(StatusCode::internal, "gave up after {} attempts: {}", attempt_, cause));
    registry_->metrics.resumed();
    log_warning("request {} resumes from token {} as attempt {}: {}", id_, log_.size(),
                attempt_ + 1, cause);
    submit();
}

void Owner::tick() {
    if (finished_) return;
    const std::int64_t age_us = registry_->clock.now_us() - started_us_;
    if (request_.timeout_us > 0 && age_us >= request_.timeout_us)
        return finish(GenerationFinish::deadline,
                      error(StatusCode::deadline_exceeded,
                            "the request did not finish within its time-out of {} ms",
                            request_.timeout_us / 1000));
    if (log_.empty() && age_us >= registry_->options.not_started_us)
        finish(GenerationFinish::deadline,
               error(StatusCode::deadline_exceeded,
                     "the request was not started within {} s of its admission",
                     registry_->options.not_started_us / 1'000'000));
}

void Owner::finish(GenerationFinish how, Status status) {
    if (finished_) return;
    finished_ = true;
    // Also after the engine's own end: ids that it no longer knows are ignored.
    registry_->engine.cancel(engine_id_);
    const std::int64_t now = registry_->clock.now_us();
    GenerationResult result;
    result.finish = how;
    result.status = std::move(status);
    result.matched_stop = matched_stop_;
    result.usage = {.prompt_tokens = static_cast<std::int64_t>(request_.prompt.size()),
                    .completion_tokens = log_length(),
                    .cached_tokens = cached_tokens_};
    result.tokens = log_;
    result.attempts = attempt_;
    result.time_to_first_us = log_.empty() ? 0 : first_token_us_ - started_us_;
    result.total_us = now - started_us_;
    result.anchors = anchors_;
    registry_->metrics.finished(result);
    observer_->on_finish(result);
    observer_ = nullptr;
    const std::shared_ptr<Owner> keep = shared_from_this();
    registry_->owners.erase(id_);
    registry_->live.fetch_sub(1);
}

}  // namespace

OwnerRegistry::OwnerRegistry(Engine& engine, std::shared_ptr<const Tokenizer> tokenizer,
                             Executor& executor, const Clock& clock, MetricsRegistry& metrics,
                             const OwnerOptions& options)
    : impl_(
          std::make_shared<Impl>(engine, std::move(tokenizer), executor, clock, metrics, options)) {
    const ModelConfig& model = engine.model_config();
    std::int64_t context = std::min(model.max_positions, engine.config().pages * kPageTokens);
    if (options.context_tokens > 0) context = std::min(context, options.context_tokens);
    impl_->limits = {.context_tokens = context,
                     .max_tokens = options.max_tokens,
                     .bos_id = model.bos_id,
                     .eos_id = model.eos_id,
                     .vocab_size = model.vocab_size};
}

OwnerRegistry::~OwnerRegistry() {
    impl_->closed = true;
    impl_->gate->close();
    impl_->owners.clear();
}

const GenerationLimits& OwnerRegistry::limits() const {
    return impl_->limits;
}
const Tokenizer& OwnerRegistry::tokenizer() const {
    return *impl_->tokenizer;
}
std::size_t OwnerRegistry::live() const {
    return impl_->live;
}

Result<std::shared_ptr<RequestOwner>> OwnerRegistry::start(
    PreparedRequest request, std::shared_ptr<GenerationObserver> observer) {
    if (impl_->live.fetch_add(1) >= impl_->options.in_flight_max) {
        impl_->live.fetch_sub(1);
        return error(StatusCode::resource_exhausted,
                     "{} requests are in flight, which is the limit; try again later",
                     impl_->options.in_flight_max);
    }
    const std::uint64_t id = impl_->next_id.fetch_add(1);
    auto owner = std::make_shared<Owner>(impl_, id, std::move(request), std::move(observer));
    impl_->gate->post([impl = impl_, owner] {
        if (impl->closed) return;
        impl->owners.emplace(owner->id(), owner);
        owner->begin();
    });
    return std::shared_ptr<RequestOwner>(owner);
}

void OwnerRegistry::tick() {
    impl_->gate->post([impl = impl_] {
        if (impl->closed) return;
        const auto owners = impl->owners;  // a tick may end an owner, which leaves the map
        for (const auto& [id, owner] : owners)
            owner->tick();
    });
}

void OwnerRegistry::cancel_all() {
    impl_->gate->post([impl = impl_] {
        if (impl->closed) return;
        const auto owners = impl->owners;
        for (const auto& [id, owner] : owners)
            owner->cancel_now();
    });
}

}  // namespace fathom
