#include "gateway/completion_job.h"

#include <atomic>
#include <optional>
#include <random>
#include <utility>

#include "gateway/openai/errors.h"
#include "gateway/openai/response.h"
#include "gateway/random_id.h"

namespace fathom {

namespace {

std::uint64_t draw_seed() {
    std::random_device device;
    return ((std::uint64_t{device()} << 32) | device()) >> 1;
}

struct Prepared {
    ApiRequest api;
    PreparedRequest request;
};

Result<Prepared> prepare_call(const CompletionCall& call, const CompletionContext& context) {
    Prepared prepared;
    FATHOM_ASSIGN(prepared.api, parse_api_request(call.kind, call.body, context.api));
    GenerationRequest& generation = prepared.api.generation;
    if (!prepared.api.has_seed) generation.sampling.seed = draw_seed();
    generation.timeout_us = call.timeout_us;
    FATHOM_ASSIGN(prepared.request,
                  prepare(generation, context.owners.tokenizer(), context.owners.limits()));
    return prepared;
}

class CompletionJob : public GenerationObserver,
                      public HttpJob,
                      public std::enable_shared_from_this<CompletionJob> {
  public:
    CompletionJob(CompletionContext& context, CompletionCall call,
                  std::shared_ptr<HttpExchange> exchange)
        : context_(context), call_(std::move(call)), exchange_(std::move(exchange)) {
        head_.kind = call_.kind;
        head_.id = random_uuid();
        head_.created = context_.clock.wall_unix_ms() / 1000;
        head_.fingerprint = context_.system_fingerprint;
    }

    void begin();

    void on_gone() override;
    void on_quiet() override;

    void on_started() override;
    void on_delta(const GenerationDelta& delta) override;
    void on_choice_finish(std::int64_t choice, const ChoiceResult& result) override;
    void on_finish(const GenerationResult& result) override;

  private:
    void on_prepared(Result<Prepared> prepared);
    void refuse(const Status& status);
    void begin_answer();
    void finish_stream(const GenerationResult& result);
    void finish_whole(const GenerationResult& result);
    HttpResponse with_id(HttpResponse response) const;

    CompletionContext& context_;
    CompletionCall call_;
    std::shared_ptr<HttpExchange> exchange_;  // null once the answer ended or the client left
    std::atomic<bool> gone_{false};           // also read by the preparation thread
    std::shared_ptr<RequestOwner> owner_;

    AnswerHead head_;
    bool stream_ = false;
    bool prepared_ = false;
    bool answer_begun_ = false;
    std::vector<GenerationDelta> texts_;  // by choice, of an answer that is not streamed
    std::vector<bool> ended_;             // by choice: the stream has its end
};

void CompletionJob::begin() {
    exchange_->attach(shared_from_this());
    context_.preparation.post([self = shared_from_this()] {
        if (self->gone_) return;
        auto prepared =
            std::make_shared<Result<Prepared>>(prepare_call(self->call_, self->context_));
        self->context_.network.post([self, prepared] { self->on_prepared(std::move(*prepared)); });
    });
}

void CompletionJob::on_prepared(Result<Prepared> prepared) {
    call_.body = {};
    if (!exchange_) return;
    if (!prepared.ok()) return refuse(prepared.status());
    prepared_ = true;
    head_.model = prepared->api.model;
    head_.thinking = prepared->request.starts_in_thinking;
    head_.include_usage = prepared->api.include_usage;
    head_.choices = prepared->request.choices;
    head_.logprobs = prepared->request.sampling.logprobs;
    head_.logprobs_processed = prepared->request.sampling.logprobs_processed;
    texts_.resize(static_cast<std::size_t>(head_.choices));
    ended_.resize(texts_.size());
    stream_ = prepared->api.stream;
    Result<std::shared_ptr<RequestOwner>> owner =
        context_.owners.start(std::move(prepared->request), shared_from_this());
    if (!owner.ok()) return refuse(owner.status());
    owner_ = std::move(*owner);
}

HttpResponse CompletionJob::with_id(HttpResponse response) const {
    response.headers.emplace_back("x-request-id", call_.request_id);
    return response;
}

void CompletionJob::refuse(const Status& status) {
    exchange_->respond(with_id(api_error(status)));
    exchange_ = nullptr;
}

void CompletionJob::on_gone() {
    gone_ = true;
    exchange_ = nullptr;
    if (owner_) owner_->cancel();
}

void CompletionJob::begin_answer() {
    if (answer_begun_) return;
    answer_begun_ = true;
    HttpResponse head;
    if (stream_) head.content_type = "text/event-stream";
    head.headers.emplace_back("cache-control", "no-cache");
    exchange_->begin(with_id(std::move(head)));
}

// Signs of life: comments between events, blank lines in front of a JSON body. Before the body was
// understood it is not known which of both the client expects, so there is none yet.
void CompletionJob::on_quiet() {
    if (!exchange_ || !prepared_) return;
    begin_answer();
    exchange_->write(stream_ ? kSseKeepAlive : "\n");
}

void CompletionJob::on_started() {
    if (!exchange_ || !stream_) return;
    begin_answer();
    std::string out;
    append_start(out, head_);
    exchange_->write(out);
}

void CompletionJob::on_delta(const GenerationDelta& delta) {
    if (!exchange_) return;
    if (!stream_) return texts_[static_cast<std::size_t>(delta.choice)].append(delta);
    std::string out;
    append_delta(out, head_, delta);
    exchange_->write(out);
}

void CompletionJob::on_choice_finish(std::int64_t choice, const ChoiceResult& result) {
    if (!exchange_ || !stream_) return;
    ended_[static_cast<std::size_t>(choice)] = true;
    std::string out;
    append_end(out, head_, choice, result.finish, nullptr);
    exchange_->write(out);
}

void CompletionJob::on_finish(const GenerationResult& result) {
    owner_ = nullptr;
    if (!exchange_) return;
    if (!result.status.ok() && !answer_begun_) return refuse(result.status);
    if (stream_) {
        finish_stream(result);
    } else {
        finish_whole(result);
    }
    exchange_ = nullptr;
}

void CompletionJob::finish_stream(const GenerationResult& result) {
    std::string out;
    if (result.status.ok()) {
        for (std::size_t i = 0; i < ended_.size(); ++i) {
            if (!ended_[i])
                append_end(out, head_, static_cast<std::int64_t>(i), result.choices[i].finish,
                           &result);
        }
        append_done(out);
    } else {
        append_stream_error(out, result.status);
    }
    // The events say by themselves whether the answer is complete; the HTTP body always is.
    exchange_->end(out);
}

void CompletionJob::finish_whole(const GenerationResult& result) {
    std::string body = result.status.ok()
                           ? complete_answer(head_, texts_, result)
                           : api_error_json(http_status_of(result.status), result.status.message());
    if (answer_begun_) return exchange_->end(body);
    HttpResponse response;
    response.body = std::move(body);
    exchange_->respond(with_id(std::move(response)));
}

}  // namespace

void start_completion(CompletionContext& context, CompletionCall call,
                      std::shared_ptr<HttpExchange> exchange) {
    std::make_shared<CompletionJob>(context, std::move(call), std::move(exchange))->begin();
}

}  // namespace fathom
