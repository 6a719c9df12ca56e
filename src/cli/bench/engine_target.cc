#include "cli/bench/engine_target.h"

#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "base/clock.h"
#include "gateway/generation.h"
#include "recipe/protocols/chat_request.h"

namespace fathom {
namespace {

std::string error_kind(const EngineEvent& event) {
    switch (event.finish) {
        case FinishReason::error:
            return status_code_name(event.status.code());
        case FinishReason::cancelled:
            return "cancelled";
        case FinishReason::deadline:
            return "deadline_exceeded";
        default:
            return {};
    }
}

// Follows one request on the engine's thread.
class RecordSink : public EventSink {
  public:
    RecordSink(RequestRecord record, LoadTarget::Done done)
        : record_(std::move(record)), done_(std::move(done)) {}

    void on_event(EngineEvent event) override {
        const std::int64_t now_us = real_clock().now_us();
        if (!event.tokens.empty()) record_.arrive(now_us);
        record_.output_tokens += static_cast<std::int64_t>(event.tokens.size());
        record_.cached_tokens = std::max(record_.cached_tokens, event.cached_tokens);
        if (event.finish == FinishReason::none) return;
        record_.end_us = now_us;
        record_.error = error_kind(event);
        record_.detail = event.status.message();
        done_(std::move(record_));
    }

  private:
    RequestRecord record_;
    LoadTarget::Done done_;
};

}  // namespace

struct EngineTarget::Impl {
    Engine& engine;
    EngineTargetOptions options;
    std::uint64_t next_id = 1;
};

EngineTarget::EngineTarget(Engine& engine, const EngineTargetOptions& options)
    : impl_(std::make_unique<Impl>(Impl{engine, options})) {}
EngineTarget::~EngineTarget() = default;

void EngineTarget::start(std::int64_t index, const LoadRequest& request, Done done) {
    EngineRequest wanted;
    wanted.id = impl_->next_id++;
    wanted.attempt = 1;
    wanted.prompt = request.ids;
    wanted.sampling = impl_->options.sampling;
    wanted.sampling.seed += static_cast<std::uint64_t>(index + 1);
    wanted.max_tokens = request.max_tokens;
    if (!impl_->options.ignore_eos) wanted.stop_tokens = {impl_->engine.model_config().eos_id};
    RequestRecord record;
    record.index = index;
    record.start_us = real_clock().now_us();
    record.prompt_tokens = static_cast<std::int64_t>(request.ids.size());
    wanted.deadline_us = record.start_us + impl_->options.timeout_us;
    const Status submitted =
        impl_->engine.submit(std::move(wanted), std::make_shared<RecordSink>(record, done));
    if (submitted.ok()) return;
    record.end_us = real_clock().now_us();
    record.error = status_code_name(submitted.code());
    record.detail = submitted.message();
    done(std::move(record));
}

void EngineTarget::cancel_all() {
    // Cancelling what has ended is nothing to the engine.
    for (std::uint64_t id = 1; id < impl_->next_id; ++id)
        impl_->engine.cancel(id);
}

Status tokenize_workload(std::vector<LoadRequest>& requests, const Tokenizer& tokenizer) {
    const GenerationLimits limits{.context_tokens = std::int64_t{1} << 40,
                                  .max_tokens = std::int64_t{1} << 40,
                                  .bos_id = tokenizer.added_id(kBeginOfSentence).value_or(0),
                                  .eos_id = tokenizer.added_id(kEndOfSentence).value_or(1),
                                  .vocab_size = tokenizer.vocab_size()};
    const LowerOptions options = {
        .profile = Profile::open, .models = {{"bench", Dialect::v41}}, .default_thinking = false};
    for (std::size_t i = 0; i < requests.size(); ++i) {
        LoadRequest& request = requests[i];
        GenerationRequest generation;
        generation.max_tokens = request.max_tokens;
        if (!request.messages.is_null()) {
            Result<LoweredRequest> chat = lower_chat_request(
                Json::object({{"model", Json("bench")}, {"messages", request.messages}}).dump(),
                options);
            if (!chat.ok()) return chat.status().with_context(fmt::format("request {}", i + 1));
            generation.prompt = std::move(chat->conversation);
        } else if (!request.text.empty()) {
            generation.prompt = RawText{.text = request.text};
        } else {
            generation.prompt = request.ids;
        }
        auto prepared = prepare(generation, tokenizer, limits);
        if (!prepared.ok()) return prepared.status().with_context(fmt::format("request {}", i + 1));
        request = {.text = {},
                   .ids = std::move(prepared->prompt),
                   .messages = {},
                   .max_tokens = request.max_tokens};
    }
    return {};
}

}  // namespace fathom
