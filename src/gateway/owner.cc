#include "gateway/owner.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "gateway/choice_log.h"
#include "gateway/owner_metrics.h"
#include "model/kv_cache.h"

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

// A choice and its running attempt in the engine.
struct Choice {
    Choice(std::int64_t index_in, std::shared_ptr<const Tokenizer> tokenizer,
           const PreparedRequest& request)
        : index(index_in), log(std::move(tokenizer), request, index_in) {}

    const std::int64_t index;
    ChoiceLog log;
    std::uint64_t engine_id = 0;
    std::uint32_t attempt = 0;
    std::int64_t last_token_us = 0;
    std::vector<std::int64_t> replays;  // Anchors::replays of what is in the log
    bool ended = false;
    GenerationFinish finish = GenerationFinish::error;  // once ended
};

class Owner : public RequestOwner, public std::enable_shared_from_this<Owner> {
  public:
    Owner(std::shared_ptr<OwnerRegistry::Impl> registry, std::uint64_t id, PreparedRequest request,
          std::shared_ptr<GenerationObserver> observer)
        : registry_(std::move(registry)),
          id_(id),
          request_(std::move(request)),
          observer_(std::move(observer)),
          started_us_(registry_->clock.now_us()) {
        for (std::int64_t i = 0; i < request_.choices; ++i)
            choices_.push_back(std::make_unique<Choice>(i, registry_->tokenizer, request_));
    }

    std::uint64_t id() const override { return id_; }
    void cancel() override {
        post([](Owner& owner) { owner.cancel_now(); });
    }

    // Everything below runs on the executor.
    void begin();
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

    void begin_attempt(Choice& choice);
    EngineRequest request_of(const Choice& choice) const;
    void submit(EngineRequest request);
    void resume(Choice& choice, const std::string& cause);
    bool overlap_agrees(const Choice& choice, const EngineEvent& event, std::int64_t overlap) const;
    void commit(Choice& choice, const EngineEvent& event, std::size_t overlap);
    void stamp_commit(Choice& choice, std::size_t tokens);
    void finish_unended(Choice& choice, const EngineEvent& event);
    void end_choice(Choice& choice, GenerationFinish how);
    void finish(GenerationFinish how, Status status);
    ChoiceResult result_of(const Choice& choice) const;
    std::int64_t committed_tokens() const;

    const std::shared_ptr<OwnerRegistry::Impl> registry_;
    const std::uint64_t id_;
    const PreparedRequest request_;
    std::shared_ptr<GenerationObserver> observer_;
    std::vector<std::unique_ptr<Choice>> choices_;
    bool finished_ = false;

    const std::int64_t started_us_;
    std::int64_t first_token_us_ = 0;
    std::int64_t cached_tokens_ = 0;
    Anchors anchors_;
};

// Lives in the engine while an attempt does; moves events to the owner's executor.
class Owner::Sink : public EventSink {
  public:
    explicit Sink(std::shared_ptr<Owner> owner) : owner_(std::move(owner)) {}
    void on_event(EngineEvent event) override {
        owner_->post([event = std::move(event)](Owner& owner) { owner.on_event(event); });
    }

  private:
    std::shared_ptr<Owner> owner_;
};

void Owner::begin() {
    if (finished_) return;
    for (const auto& choice : choices_)
        begin_attempt(*choice);
    EngineRequest request = request_of(*choices_.front());
    for (std::size_t i = 1; i < choices_.size(); ++i)
        request.branches.push_back(
            {.id = choices_[i]->engine_id,
             .seed = choice_seed(request_.sampling.seed, choices_[i]->index)});
    submit(std::move(request));
}

void Owner::begin_attempt(Choice& choice) {
    ++choice.attempt;
    // An engine id of its own for every attempt: a cancellation of the former one that is still on
    // its way cannot hit the new one.
    choice.engine_id = registry_->next_id.fetch_add(1);
}

EngineRequest Owner::request_of(const Choice& choice) const {
    EngineRequest request;
    request.id = choice.engine_id;
    request.attempt = choice.attempt;
    request.prompt = request_.prompt;
    request.committed = choice.log.tokens();
    request.sampling = request_.sampling;
    request.sampling.seed = choice_seed(request_.sampling.seed, choice.index);
    request.max_tokens = request_.max_tokens;
    request.stop_tokens = request_.stop_tokens;
    request.use_cache = request_.reuse != PrefixReuse::none;
    request.cache_salt = request_.cache_salt;
    request.share_group = request_.sharing.group;
    request.share_secret = request_.sharing.secret;
    request.traffic_class = request_.sharing.traffic_class;
    request.persist_output = request_.persist_output;
    if (request_.reuse == PrefixReuse::exact) request.replays.emplace();
    // What is in the log was drawn after this history, so it goes on with it.
    if (choice.log.size() > 0) request.replays = choice.replays;
    return request;
}

void Owner::submit(EngineRequest request) {
    const Status status =
        registry_->engine.submit(std::move(request), std::make_shared<Sink>(shared_from_this()));
    if (!status.ok()) finish(GenerationFinish::error, status);
}

void Owner::on_event(const EngineEvent& event) {
    if (finished_) return;
    const auto found =
        std::find_if(choices_.begin(), choices_.end(), [&](const std::unique_ptr<Choice>& choice) {
            return !choice->ended && choice->engine_id == event.id &&
                   choice->attempt == event.attempt;
        });
    if (found == choices_.end()) return;
    Choice& choice = **found;
    const std::int64_t length = choice.log.size();
    if (event.first_index < 0 || event.first_index > length)
        return resume(choice, fmt::format("tokens from index {} on came while the log has {}",
                                          event.first_index, length));
    const std::int64_t overlap = std::min<std::int64_t>(
        length - event.first_index, static_cast<std::int64_t>(event.tokens.size()));
    if (!overlap_agrees(choice, event, overlap))
        return resume(
            choice, fmt::format("tokens from index {} on differ from the log", event.first_index));
    if (!event.tokens.empty()) choice.replays = event.anchors.replays;
    if (!event.tokens.empty() && (choice.index == 0 || committed_tokens() == 0)) {
        cached_tokens_ = event.cached_tokens;
        anchors_ = event.anchors;
    }
    commit(choice, event, static_cast<std::size_t>(overlap));
}

// Commit = append: text is made from a token only once the log holds it.
void Owner::commit(Choice& choice, const EngineEvent& event, std::size_t overlap) {
    using State = ChoiceLog::State;
    OutputParser::Events events;
    ChoiceLog& log = choice.log;
    const std::int64_t before = log.size();
    State state = State::open;
    if (before == 0 && overlap < event.tokens.size()) log.begin(cached_tokens_, events);
    for (std::size_t i = overlap; i < event.tokens.size() && state == State::open; ++i) {
        const TokenLogprobs* logprobs = i < event.logprobs.size() ? &event.logprobs[i] : nullptr;
        state = log.append(event.tokens[i], logprobs, events);
    }
    if (log.size() > before) stamp_commit(choice, static_cast<std::size_t>(log.size() - before));
    // The owner decides the end by its own log; an engine that says so first is believed too.
    if (state == State::open && event.finish == FinishReason::stop_token) state = State::stopped;
    if (state == State::open && event.finish == FinishReason::length) state = State::full;
    if (state == State::stopped) log.finish(BackendFinish::stop, events);
    if (state == State::full) log.finish(BackendFinish::length, events);
    if (!events.empty()) observer_->on_events(events);
    if (state == State::stopped) {
        end_choice(choice, GenerationFinish::stop);
    } else if (state == State::full) {
        end_choice(choice, GenerationFinish::length);
    } else if (event.finish != FinishReason::none) {
        finish_unended(choice, event);
    }
}

bool Owner::overlap_agrees(const Choice& choice, const EngineEvent& event,
                           std::int64_t overlap) const {
    return std::equal(event.tokens.begin(), event.tokens.begin() + overlap,
                      choice.log.tokens().begin() + event.first_index);
}

std::int64_t Owner::committed_tokens() const {
    std::int64_t tokens = 0;
    for (const auto& choice : choices_)
        tokens += choice->log.size();
    return tokens;
}

void Owner::stamp_commit(Choice& choice, std::size_t tokens) {
    const std::int64_t now = registry_->clock.now_us();
    const auto first_of_choice = static_cast<std::int64_t>(tokens) == choice.log.size();
    if (static_cast<std::int64_t>(tokens) == committed_tokens()) {
        first_token_us_ = now;
        registry_->metrics.first_token(now - started_us_);
    } else if (!first_of_choice) {
        registry_->metrics.inter_token(now - choice.last_token_us, tokens);
    }
    choice.last_token_us = now;
}

void Owner::finish_unended(Choice& choice, const EngineEvent& event) {
    switch (event.finish) {
        case FinishReason::cancelled:
            return finish(GenerationFinish::cancelled,
                          Status(StatusCode::cancelled, "the engine cancelled the request"));
        case FinishReason::deadline:
            return finish(GenerationFinish::deadline,
                          Status(StatusCode::deadline_exceeded, "the request's time ran out"));
        case FinishReason::error:
            if (event.status.code() == StatusCode::unavailable)
                return resume(choice, event.status.message());
            return finish(GenerationFinish::error, event.status);
        case FinishReason::stop_token:
        case FinishReason::length:
        case FinishReason::none:
            break;
    }
    FATHOM_CHECK(false);
}

void Owner::resume(Choice& choice, const std::string& cause) {
    registry_->engine.cancel(choice.engine_id);
    if (choice.attempt >= registry_->options.attempts_max)
        return finish(
            GenerationFinish::error,
            error(StatusCode::internal, "gave up after {} attempts: {}", choice.attempt, cause));
    registry_->metrics.resumed();
    log_warning("request {} resumes choice {} from token {} as attempt {}: {}", id_, choice.index,
                choice.log.size(), choice.attempt + 1, cause);
    begin_attempt(choice);
    submit(request_of(choice));
}

void Owner::tick() {
    if (finished_) return;
    const std::int64_t age_us = registry_->clock.now_us() - started_us_;
    if (request_.timeout_us > 0 && age_us >= request_.timeout_us)
        return finish(GenerationFinish::deadline,
                      error(StatusCode::deadline_exceeded,
                            "the request did not finish within its time-out of {} ms",
                            request_.timeout_us / 1000));
    if (committed_tokens() == 0 && age_us >= registry_->options.not_started_us)
        finish(GenerationFinish::deadline,
               error(StatusCode::deadline_exceeded,
                     "the request was not started within {} s of its admission",
                     registry_->options.not_started_us / 1'000'000));
}

ChoiceResult Owner::result_of(const Choice& choice) const {
    return {.finish = choice.finish,
            .matched_stop = choice.log.matched_stop(),
            .tokens = choice.log.tokens()};
}

void Owner::end_choice(Choice& choice, GenerationFinish how) {
    choice.ended = true;
    choice.finish = how;
    if (std::all_of(choices_.begin(), choices_.end(), [](const auto& each) { return each->ended; }))
        return finish(choices_.front()->finish, {});
    // Also after the engine's own end: ids that it no longer knows are ignored.
    registry_->engine.cancel(choice.engine_id);
}

void Owner::finish(GenerationFinish how, Status status) {
    if (finished_) return;
    finished_ = true;
    const std::int64_t now = registry_->clock.now_us();
    const std::int64_t tokens = committed_tokens();
    GenerationResult result;
    result.finish = how;
    result.status = std::move(status);
    for (const auto& choice : choices_) {
        registry_->engine.cancel(choice->engine_id);
        if (!choice->ended) choice->finish = how;
        result.choices.push_back(result_of(*choice));
        result.attempts = std::max(result.attempts, choice->attempt);
    }
    result.usage = {.prompt_tokens = static_cast<std::int64_t>(request_.prompt.size()),
                    .completion_tokens = tokens,
                    .cached_tokens = cached_tokens_};
    result.time_to_first_us = tokens == 0 ? 0 : first_token_us_ - started_us_;
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
    const Tokenizer& spells = *impl_->tokenizer;
    for (TokenId id = 0; id < spells.vocab_size(); ++id)
        impl_->limits.token_bytes_max =
            std::max(impl_->limits.token_bytes_max, spells.bytes(id).size());
}

OwnerRegistry::~OwnerRegistry() {
    impl_->closed = true;
    impl_->gate->close();
    impl_->owners.clear();
}

const GenerationLimits& OwnerRegistry::limits() const {
    return impl_->limits;
}
const std::shared_ptr<const Tokenizer>& OwnerRegistry::tokenizer() const {
    return impl_->tokenizer;
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
