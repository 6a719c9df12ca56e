#include "gateway/answer_job.h"

#include <atomic>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "gateway/random_id.h"

namespace fathom {

namespace {

constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";
constexpr std::string_view kSseDone = "data: [DONE]\n\n";

// What an answer's member `fathom` may add to a response that is stored.
constexpr std::size_t kFathomMemberBytes = 1024;

struct Prepared {
    ApiRequest api;
    PreparedRequest request;
    std::string earlier = {};  // the items that a named response stands for, JSON
};

Result<Prepared> prepare_call(const AnswerCall& call, const AnswerContext& context,
                              const EarlierItems& earlier_items) {
    Prepared prepared;
    const auto kept_items = [&](const std::string& id) -> Result<Json::Array> {
        FATHOM_ASSIGN(Json::Array items, earlier_items(id));
        Json list = Json::array(std::move(items));
        prepared.earlier = list.dump();
        return std::move(list.items());
    };
    FATHOM_ASSIGN(prepared.api, read_api_request(call.api, call.body, context.api, kept_items));
    GenerationRequest& generation = prepared.api.generation;
    if (!prepared.api.has_seed) generation.sampling.seed = random_seed();
    generation.timeout_us = call.timeout_us;
    generation.sharing = call.sharing;
    FATHOM_ASSIGN(prepared.request,
                  prepare(generation, *context.owners.tokenizer(), context.owners.limits()));
    return prepared;
}

void append_frame(std::string& out, const StreamPayload& payload) {
    if (!payload.name.empty()) out.append("event: ").append(payload.name).append("\n");
    out.append("data: ").append(payload.json).append("\n\n");
}

// What makes the answer repeatable, and how it came by its beginning (docs/prefix_cache.md).
std::string fathom_member(const GenerationResult& result, const SamplingParams& sampling) {
    const Anchors& anchors = result.anchors;
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("anchors").begin_object();
    json.key("mode").value(prefill_mode_name(anchors.mode));
    json.key("decoder_floor").value(anchors.decoder_floor);
    json.key("replays").begin_array();
    for (const std::int64_t at : anchors.replays)
        json.value(at);
    json.end_array();
    json.key("encoder_floor").value(anchors.encoder_floor);
    json.key("hit_tokens").value(anchors.hit_tokens);
    json.key("window_source").value(anchors.window_source);
    json.end_object();
    if (sampling.logprobs >= 0)
        json.key("logprobs_mode").value(sampling.logprobs_processed ? "processed" : "raw");
    json.end_object();
    return text;
}

// Adds a member at the end of an object that has some.
void add_member(std::string& object, std::string_view name, std::string_view value) {
    object.pop_back();
    object.append(",\"").append(name).append("\":").append(value).append("}");
}

class AnswerJob : public GenerationObserver,
                  public HttpJob,
                  public std::enable_shared_from_this<AnswerJob> {
  public:
    AnswerJob(AnswerContext& context, AnswerCall call, std::shared_ptr<HttpExchange> exchange)
        : context_(context), call_(std::move(call)), exchange_(std::move(exchange)) {}

    void begin();

    void on_gone() override;
    void on_quiet() override;

    void on_events(const OutputParser::Events& events) override;
    void on_finish(const GenerationResult& result) override;

  private:
    void on_prepared(Result<Prepared> prepared);
    void settle_storing();
    void refuse(const Status& status);
    void begin_answer();
    void write(const std::vector<StreamPayload>& payloads);
    void finish_stream(const GenerationResult& result);
    void finish_whole(const GenerationResult& result);
    void add_fathom_member(std::string& object, const GenerationResult& result) const;
    void store(std::string response, const GenerationResult& result);
    HttpResponse with_id(HttpResponse response) const;
    bool ends_with_done() const { return call_.api == Api::chat || call_.api == Api::completion; }

    AnswerContext& context_;
    AnswerCall call_;
    std::shared_ptr<HttpExchange> exchange_;  // null once the answer ended or the client left
    std::atomic<bool> gone_{false};           // also read by the preparation threads
    std::shared_ptr<RequestOwner> owner_;

    std::optional<Prepared> prepared_;  // but for the prompt
    std::string id_;
    std::unique_ptr<AnswerBuilder> builder_;
    std::int64_t choices_ended_ = 0;
    // Of the last event of a stream: it waits for the result, whose anchors go with it.
    std::vector<StreamPayload> last_payloads_;
    bool answer_begun_ = false;
};

void AnswerJob::begin() {
    exchange_->attach(shared_from_this());
    const auto prepared = std::make_shared<std::optional<Result<Prepared>>>();
    context_.preparation.run(
        {.client = call_.client,
         .body_bytes = call_.body.size(),
         .read =
             [self = shared_from_this(), prepared](const EarlierItems& earlier_items) {
                 if (self->gone_) return;
                 *prepared = prepare_call(self->call_, self->context_, earlier_items);
             },
         .done =
             [self = shared_from_this(), prepared](const Status& status) {
                 if (!self->exchange_) return;
                 if (!status.ok()) return self->refuse(status);
                 self->on_prepared(std::move(**prepared));
             }});
}

void AnswerJob::on_prepared(Result<Prepared> prepared) {
    if (!prepared.ok()) return refuse(prepared.status());
    prepared_ = std::move(*prepared);
    settle_storing();
    const ApiRequest& api = prepared_->api;
    if (!api.stores) call_.body = {};
    id_ = random_uuid();
    const Clock& clock = context_.clock;
    const auto unix_seconds = [&clock] { return clock.wall_unix_ms() / 1000; };
    builder_ = make_answer(api, id_, context_.owners.tokenizer(), unix_seconds);
    Result<std::shared_ptr<RequestOwner>> owner =
        context_.owners.start(std::move(prepared_->request), shared_from_this());
    if (!owner.ok()) return refuse(owner.status());
    owner_ = std::move(*owner);
}

// An answer says that it is stored only if it will be.
void AnswerJob::settle_storing() {
    ApiRequest& api = prepared_->api;
    if (!api.stores) return;
    const std::size_t bytes_max = context_.store.response_bytes_max(
        call_.client, call_.body.size() + prepared_->earlier.size() + kFathomMemberBytes);
    api.stores = bytes_max > 0;
    api.lowered.responses.echo.store = api.stores;
    api.lowered.responses.stored_bytes_max = bytes_max;
}

// Before the client knows the response, so that its next request finds it. The size of what the
// builder wrote is what it went by when it said whether the response is stored.
void AnswerJob::store(std::string response, const GenerationResult& result) {
    const ApiRequest& api = prepared_->api;
    if (!api.stores || response.size() > api.lowered.responses.stored_bytes_max) return;
    add_fathom_member(response, result);
    context_.store.put(call_.client, id_,
                       {.response = std::move(response),
                        .body = std::move(call_.body),
                        .earlier = std::move(prepared_->earlier)});
}

HttpResponse AnswerJob::with_id(HttpResponse response) const {
    response.headers.emplace_back("x-request-id", call_.request_id);
    return response;
}

void AnswerJob::refuse(const Status& status) {
    exchange_->respond(with_id(api_error(status, call_.errors)));
    exchange_ = nullptr;
}

void AnswerJob::on_gone() {
    gone_ = true;
    exchange_ = nullptr;
    if (owner_) owner_->cancel();
}

void AnswerJob::begin_answer() {
    if (answer_begun_) return;
    answer_begun_ = true;
    HttpResponse head;
    if (prepared_->api.stream()) head.content_type = "text/event-stream";
    head.headers.emplace_back("cache-control", "no-cache");
    exchange_->begin(with_id(std::move(head)));
}

// Signs of life: comments between events, blank lines in front of a JSON body. Before the body was
// understood it is not known which of both the client expects, so there is none yet.
void AnswerJob::on_quiet() {
    if (!exchange_ || !prepared_) return;
    begin_answer();
    exchange_->write(prepared_->api.stream() ? kSseKeepAlive : "\n");
}

void AnswerJob::write(const std::vector<StreamPayload>& payloads) {
    if (payloads.empty()) return;
    begin_answer();
    std::string out;
    for (const StreamPayload& payload : payloads)
        append_frame(out, payload);
    exchange_->write(out);
}

void AnswerJob::on_events(const OutputParser::Events& events) {
    if (!exchange_) return;
    std::vector<StreamPayload> payloads;
    for (const OutputEvent& event : events) {
        const bool finishes = event.kind == OutputEvent::Kind::finish;
        if (finishes) ++choices_ended_;
        const bool last = finishes && choices_ended_ == prepared_->api.generation.choices;
        if (event.kind == OutputEvent::Kind::start) {
            OutputEvent start = event;
            start.prompt.system_fingerprint = context_.system_fingerprint;
            builder_->add(start, payloads);
        } else {
            builder_->add(event, last ? last_payloads_ : payloads);
        }
    }
    write(payloads);
}

void AnswerJob::on_finish(const GenerationResult& result) {
    owner_ = nullptr;
    if (!exchange_) return;
    if (!result.status.ok() && !answer_begun_) return refuse(result.status);
    if (prepared_->api.stream()) {
        finish_stream(result);
    } else {
        finish_whole(result);
    }
    exchange_ = nullptr;
}

void AnswerJob::add_fathom_member(std::string& object, const GenerationResult& result) const {
    if (context_.api.lower.profile == Profile::open)
        add_member(object, "fathom", fathom_member(result, prepared_->api.generation.sampling));
}

// The events say by themselves whether the answer is complete; the HTTP body always is.
void AnswerJob::finish_stream(const GenerationResult& result) {
    if (!result.status.ok()) {
        const char* type =
            api_error_type(http_status_of(result.status),
                           call_.api == Api::messages ? ErrorShape::anthropic : ErrorShape::openai);
        last_payloads_.clear();
        builder_->fail({.type = type, .message = result.status.message()}, last_payloads_);
    } else {
        store(builder_->answer(), result);
        // The member goes where the usage is: a message stops after it.
        const std::size_t back = call_.api == Api::messages ? 2 : 1;
        FATHOM_CHECK(last_payloads_.size() >= back);
        add_fathom_member(last_payloads_[last_payloads_.size() - back].json, result);
    }
    std::string out;
    for (const StreamPayload& payload : last_payloads_)
        append_frame(out, payload);
    if (result.status.ok() && ends_with_done()) out += kSseDone;
    begin_answer();  // nothing came before when the first token ended a completion
    exchange_->end(out);
}

void AnswerJob::finish_whole(const GenerationResult& result) {
    std::string body;
    if (result.status.ok()) {
        body = builder_->answer();
        store(body, result);
        add_fathom_member(body, result);
    } else {
        body = api_error_json(http_status_of(result.status), result.status.message(), call_.errors);
    }
    if (answer_begun_) return exchange_->end(body);
    HttpResponse response;
    response.body = std::move(body);
    exchange_->respond(with_id(std::move(response)));
}

}  // namespace

void start_answer(AnswerContext& context, AnswerCall call, std::shared_ptr<HttpExchange> exchange) {
    std::make_shared<AnswerJob>(context, std::move(call), std::move(exchange))->begin();
}

}  // namespace fathom
