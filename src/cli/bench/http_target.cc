#include "cli/bench/http_target.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/queue.h"
#include "gateway/client/completion_stream.h"
#include "gateway/client/http_client.h"

namespace fathom {
namespace {

constexpr std::size_t kErrorBodyBytesMax = 2 << 10;
constexpr std::size_t kModelsBytesMax = 1 << 20;

// The message of an error body in OpenAI's shape, else its beginning.
std::string error_message(const std::string& body) {
    const Result<CompletionEvent> event = read_completion_event(body);
    return event.ok() && !event->error.empty() ? event->error : body.substr(0, 200);
}

// One streamed answer, on the client's thread.
class StreamedAnswer : public HttpExchange {
  public:
    StreamedAnswer(RequestRecord record, LoadTarget::Done done)
        : record_(std::move(record)), done_(std::move(done)) {}

    void on_head(int status) override { status_ = status; }

    void on_body(std::string_view bytes) override {
        if (status_ != 200) {
            error_body_ += bytes.substr(0, kErrorBodyBytesMax - error_body_.size());
            return;
        }
        if (!record_.error.empty()) return;
        const std::int64_t now_us = real_clock().now_us();
        stream_.feed(bytes);
        while (true) {
            const Result<std::optional<CompletionEvent>> event = stream_.next();
            if (!event.ok()) return fail("stream", event.status().message());
            if (!*event) return;
            take(**event, now_us);
        }
    }

    void on_end(const Status& status) override {
        record_.end_us = last_us_ > 0 ? last_us_ : real_clock().now_us();
        if (!status.ok()) {
            fail(status_code_name(status.code()), status.message());
        } else if (status_ != 200) {
            fail(fmt::format("http {}", status_), error_message(error_body_));
        } else if (!finished_) {
            fail("incomplete", "the stream ended without finish_reason and [DONE]");
        }
        // Without usage each event counts as a token.
        if (!has_usage_) record_.output_tokens = events_;
        done_(std::move(record_));
    }

  private:
    void take(const CompletionEvent& event, std::int64_t now_us) {
        if (!event.error.empty()) return fail("stream", event.error);
        last_us_ = now_us;
        finished_ = finished_ || event.finished || event.done;
        if (event.has_text) {
            record_.arrive(now_us);
            ++events_;
        }
        if (event.completion_tokens) {
            has_usage_ = true;
            record_.output_tokens = *event.completion_tokens;
        }
        record_.prompt_tokens = event.prompt_tokens.value_or(record_.prompt_tokens);
        record_.cached_tokens = event.cached_tokens.value_or(record_.cached_tokens);
    }
    void fail(std::string kind, const std::string& detail) {
        if (!record_.error.empty()) return;
        record_.error = std::move(kind);
        record_.detail = detail;
    }

    RequestRecord record_;
    LoadTarget::Done done_;
    CompletionStream stream_;
    std::string error_body_;
    int status_ = 0;
    std::int64_t events_ = 0, last_us_ = 0;
    bool has_usage_ = false, finished_ = false;
};

struct PlainAnswer {
    Status status;
    int http_status = 0;
    std::string body;
};

class PlainExchange : public HttpExchange {
  public:
    using Queue = BoundedQueue<PlainAnswer>;
    explicit PlainExchange(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
    void on_head(int status) override { answer_.http_status = status; }
    void on_body(std::string_view bytes) override {
        answer_.body += bytes.substr(0, kModelsBytesMax - answer_.body.size());
    }
    void on_end(const Status& status) override {
        answer_.status = status;
        queue_->try_push(std::move(answer_));
    }

  private:
    std::shared_ptr<Queue> queue_;
    PlainAnswer answer_;
};

}  // namespace

struct HttpTarget::Impl {
    explicit Impl(const HttpTargetOptions& options_in)
        : options(options_in), client(client_options(options_in)) {}

    static HttpClientOptions client_options(const HttpTargetOptions& options) {
        HttpClientOptions to;
        to.url = options.url;
        to.connect_timeout_us = options.connect_timeout_us;
        to.silence_timeout_us = options.timeout_us;
        if (!options.api_key.empty())
            to.headers.emplace_back("Authorization", "Bearer " + options.api_key);
        return to;
    }

    Result<std::string> first_model() {
        auto queue = std::make_shared<PlainExchange::Queue>(1);
        client.send("/models", "", options.connect_timeout_us,
                    std::make_shared<PlainExchange>(queue));
        const auto answer = queue->pop(options.connect_timeout_us + 5'000'000);
        const std::string where = "http://" + options.url.authority() + options.url.prefix;
        if (!answer) return error(StatusCode::deadline_exceeded, "{}/models: no answer", where);
        if (!answer->status.ok()) return answer->status.with_context(where);
        if (answer->http_status != 200)
            return error(StatusCode::unavailable, "{}/models: HTTP {}: {}", where,
                         answer->http_status, error_message(answer->body));
        const Result<Json> list = parse_json(answer->body);
        const Json* data = list.ok() ? list->find("data") : nullptr;
        const bool has_one = data != nullptr && data->is_array() && !data->items().empty();
        const Json* id = has_one ? data->items()[0].find("id") : nullptr;
        if (id == nullptr || !id->is_string())
            return error(StatusCode::unavailable, "{}/models: names no model; give --model-name",
                         where);
        return id->as_string();
    }

    std::string body_of(const LoadRequest& request, bool chat, std::int64_t index) const {
        Json body = Json::object({{"model", model}});
        if (!request.messages.is_null()) {
            body.set("messages", request.messages);
        } else if (chat) {
            body.set("messages",
                     Json::array({Json::object({{"role", "user"}, {"content", request.text}})}));
        } else if (!request.text.empty()) {
            body.set("prompt", request.text);
        } else {
            Json::Array ids;
            for (const TokenId id : request.ids)
                ids.emplace_back(id);
            body.set("prompt", Json::array(std::move(ids)));
        }
        body.set("max_tokens", request.max_tokens);
        body.set("temperature", options.sampling.temperature);
        body.set("top_p", options.sampling.top_p);
        constexpr std::uint64_t kSeedMax = (std::uint64_t{1} << 63) - 1;  // of the API
        body.set("seed",
                 (options.sampling.seed + static_cast<std::uint64_t>(index + 1)) & kSeedMax);
        body.set("stream", true);
        body.set("stream_options", Json::object({{"include_usage", true}}));
        if (options.ignore_eos) body.set("ignore_eos", true);
        return body.dump();
    }

    HttpTargetOptions options;
    std::string model;
    HttpClientPool client;  // last: its thread ends before the rest goes
};

HttpTarget::HttpTarget(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpTarget::~HttpTarget() = default;

Result<std::unique_ptr<HttpTarget>> HttpTarget::connect(const HttpTargetOptions& options) {
    auto impl = std::make_unique<Impl>(options);
    impl->model = options.model;
    if (impl->model.empty()) {
        FATHOM_ASSIGN(impl->model, impl->first_model());
    }
    return std::unique_ptr<HttpTarget>(new HttpTarget(std::move(impl)));
}

const std::string& HttpTarget::model() const {
    return impl_->model;
}

void HttpTarget::start(std::int64_t index, const LoadRequest& request, Done done) {
    const bool chat =
        !request.messages.is_null() || (impl_->options.use_chat && !request.text.empty());
    std::string body = impl_->body_of(request, chat, index);
    RequestRecord record;
    record.index = index;
    record.prompt_tokens = static_cast<std::int64_t>(request.ids.size());
    record.start_us = real_clock().now_us();
    impl_->client.send(chat ? "/chat/completions" : "/completions", std::move(body),
                       impl_->options.timeout_us,
                       std::make_shared<StreamedAnswer>(std::move(record), std::move(done)));
}

void HttpTarget::cancel_all() {
    impl_->client.cancel_all();
}

}  // namespace fathom
