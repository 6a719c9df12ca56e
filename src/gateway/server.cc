#include "gateway/server.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <utility>

#include "base/json.h"
#include "base/sha256.h"
#include "gateway/answer_job.h"
#include "gateway/api_keys.h"
#include "gateway/http/http_server.h"
#include "gateway/inspection.h"
#include "gateway/preparation.h"
#include "gateway/random_id.h"

namespace fathom {

namespace {

enum class Route {
    answer,
    inspection,
    response,
    models,
    model,
    health,
    liveness,
    readiness,
    metrics,
    unknown
};
enum class Methods { get, post, get_or_delete };

struct RouteRule {
    std::string_view path;  // of what lies below it too when it ends in '/'
    Route route = Route::unknown;
    Methods methods = Methods::get;
    bool key = true;  // needs a key when keys are set
    Api api = Api::chat;
    Inspection inspection = Inspection::prompt;
};

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kResponsePrefix = "/v1/responses/";
constexpr RouteRule kRoutes[] = {
    {"/v1/chat/completions", Route::answer, Methods::post, true, Api::chat},
    {"/v1/completions", Route::answer, Methods::post, true, Api::completion},
    {"/v1/messages", Route::answer, Methods::post, true, Api::messages},
    {"/anthropic/v1/messages", Route::answer, Methods::post, true, Api::messages},
    {"/v1/responses", Route::answer, Methods::post, true, Api::responses},
    {"/v1/messages/count_tokens", Route::inspection, Methods::post, true, Api::messages,
     Inspection::count_messages},
    {"/anthropic/v1/messages/count_tokens", Route::inspection, Methods::post, true, Api::messages,
     Inspection::count_messages},
    {"/v1/responses/input_tokens", Route::inspection, Methods::post, true, Api::responses,
     Inspection::count_responses},
    {"/v1/tokenize", Route::inspection, Methods::post, true, Api::chat, Inspection::tokenize},
    {"/v1/prompt", Route::inspection, Methods::post, true, Api::chat, Inspection::prompt},
    {kResponsePrefix, Route::response, Methods::get_or_delete},
    {"/v1/models", Route::models},
    {kModelPrefix, Route::model},
    {"/health", Route::health, Methods::get, false},
    {"/liveness", Route::liveness, Methods::get, false},
    {"/readiness", Route::readiness, Methods::get, false},
    {"/metrics", Route::metrics},
};
// An unknown path below /v1 tells nothing without a key either.
constexpr RouteRule kUnknownRule = {"", Route::unknown, Methods::get, false};

const RouteRule& find_route(std::string_view path) {
    for (const RouteRule& rule : kRoutes) {
        if (rule.path == path || (rule.path.back() == '/' && path.starts_with(rule.path)))
            return rule;
    }
    return kUnknownRule;
}

bool allows(Methods methods, std::string_view method) {
    if (methods == Methods::post) return method == "POST";
    return method == "GET" || method == "HEAD" ||
           (methods == Methods::get_or_delete && method == "DELETE");
}

const char* allowed(Methods methods) {
    if (methods == Methods::post) return "POST";
    return methods == Methods::get ? "GET, HEAD" : "GET, HEAD, DELETE";
}

// Whose body a request to inspect has: ?protocol=chat, completions, messages or responses.
Result<Api> inspected_api(const RouteRule& rule, const HttpRequest& request) {
    const std::string_view name = request.query("protocol");
    if (name.empty()) return rule.api;
    if (name == "chat") return Api::chat;
    if (name == "completions") return Api::completion;
    if (name == "messages") return Api::messages;
    if (name == "responses") return Api::responses;
    return invalid_argument(
        "Invalid protocol \"{}\", expected chat, completions, messages or responses",
        name.substr(0, 100));
}

// Whose stored responses these are: the key that came, not kept as such.
std::string client_of(const HttpRequest& request) {
    return client_name(request_key(request.header("authorization"), request.header("x-api-key")));
}

void write_model(JsonWriter& json, std::string_view name, std::int64_t created,
                 std::int64_t context_tokens) {
    json.begin_object();
    json.key("id").value(name);
    json.key("object").value("model");
    json.key("created").value(created);
    json.key("owned_by").value("fathom");
    json.key("max_model_len").value(context_tokens);
    json.end_object();
}

// A client may name its request; anything that could confuse a log or a header is replaced.
std::string request_id(std::string_view given) {
    const bool usable = !given.empty() && given.size() <= 128 &&
                        std::all_of(given.begin(), given.end(), [](char c) {
                            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                   (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' ||
                                   c == ':';
                        });
    return usable ? std::string(given) : random_uuid();
}

void add_request_id(HttpResponse& response, const HttpRequest& request) {
    response.headers.emplace_back("x-request-id", request_id(request.header("x-request-id")));
}

// x-request-timeout: seconds, fractions allowed.
Result<std::int64_t> request_timeout_us(std::string_view text) {
    constexpr double kSecondsMax = 86'400;
    if (text.empty()) return std::int64_t{0};
    double seconds = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (code != std::errc() || end != text.data() + text.size() ||
        !(seconds > 0 && seconds <= kSecondsMax))
        return invalid_argument("Invalid x-request-timeout \"{}\", expected seconds in (0, {}]",
                                text, kSecondsMax);
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1e6));
}

HttpResponse json_response(int status, std::string body) {
    HttpResponse response;
    response.status = status;
    response.body = std::move(body);
    return response;
}

HttpServerOptions http_options(const ServerOptions& from) {
    HttpServerOptions to;
    to.host = from.host;
    to.port = from.port;
    to.limits = {.header_bytes_max = from.header_bytes_max, .body_bytes_max = from.body_bytes_max};
    to.connections_max = from.connections_max;
    to.output_bytes_max = from.output_bytes_max;
    to.header_timeout_us = from.header_timeout_us;
    to.body_timeout_us = from.body_timeout_us;
    to.idle_timeout_us = from.idle_timeout_us;
    to.write_timeout_us = from.write_timeout_us;
    to.keep_alive_us = from.keep_alive_us;
    to.drain_us = from.drain_us;
    to.handle_signals = from.handle_signals;
    return to;
}

}  // namespace

struct Server::Impl : HttpHandler {
    Impl(const ServerOptions& options_in, ApiKeys keys_in, std::unique_ptr<HttpServer> http_in,
         Engine& engine_in, std::shared_ptr<const Tokenizer> tokenizer, MetricsRegistry& metrics_in,
         const Clock& clock)
        : options(options_in),
          keys(std::move(keys_in)),
          engine(engine_in),
          metrics(metrics_in),
          started_s(clock.wall_unix_ms() / 1000),
          http(std::move(http_in)),
          owners(engine, std::move(tokenizer), http->executor(), clock, metrics, options.owner),
          store(options.responses, clock),
          jobs{.owners = owners,
               .preparation = preparation,
               .store = store,
               .clock = clock,
               .api = options.api,
               .system_fingerprint = options.system_fingerprint},
          model_names{options.owner.model_name},
          preparation(http->executor(), store) {
        model_names.insert(model_names.end(), options.model_aliases.begin(),
                           options.model_aliases.end());
        LowerOptions& lower = jobs.api.lower;
        lower.models.clear();
        for (const std::string& name : model_names)
            lower.models.emplace(name, options.api.render.dialect);
        lower.thinking_max_tokens = lower.chat_max_tokens = options.owner.max_tokens;
    }

    std::optional<HttpResponse> refuse(const HttpRequest& head) override;
    void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;
    HttpResponse error(int status, std::string_view message) override {
        return api_error(status, message);
    }
    void tick() override { owners.tick(); }
    void cancel_all() override { owners.cancel_all(); }
    bool idle() const override { return owners.live() == 0; }

    std::optional<HttpResponse> refusal(const HttpRequest& head) const;
    ErrorShape errors_of(const RouteRule& rule) const {
        return rule.api == Api::messages ? options.messages_errors : ErrorShape::openai;
    }
    void start(const RouteRule& rule, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
    void inspect(const RouteRule& rule, HttpRequest request,
                 std::shared_ptr<HttpExchange> exchange);
    void stored_response(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange);
    HttpResponse answer(Route route, std::string_view path) const;
    HttpResponse models() const;
    HttpResponse health() const;
    HttpResponse readiness() const;

    const ServerOptions options;
    const ApiKeys keys;
    Engine& engine;
    MetricsRegistry& metrics;
    const std::int64_t started_s;
    std::atomic<bool> ready{false};

    std::unique_ptr<HttpServer> http;
    OwnerRegistry owners;
    ResponseStore store;
    AnswerContext jobs;
    std::vector<std::string> model_names;
    Preparation preparation;  // dies first: its tasks use all of the above
};

std::optional<HttpResponse> Server::Impl::refuse(const HttpRequest& head) {
    std::optional<HttpResponse> response = refusal(head);
    if (response) add_request_id(*response, head);
    return response;
}

std::optional<HttpResponse> Server::Impl::refusal(const HttpRequest& head) const {
    const RouteRule& rule = find_route(head.path());
    const ErrorShape errors = errors_of(rule);
    if (rule.key && keys.required() &&
        !keys.accepts(request_key(head.header("authorization"), head.header("x-api-key"))))
        return api_error(401,
                         "Missing or wrong API key: expected the header Authorization: Bearer KEY, "
                         "or x-api-key: KEY.",
                         errors);
    if (rule.route == Route::unknown)
        return api_error(404, fmt::format("There is no route {}.", head.path()));
    if (!allows(rule.methods, head.method)) {
        HttpResponse response =
            api_error(405,
                      fmt::format("{} does not support {}, expected {}.", head.path(), head.method,
                                  rule.methods == Methods::post ? "POST" : "GET"),
                      errors);
        response.headers.emplace_back("allow", allowed(rule.methods));
        return response;
    }
    const std::string_view encoding = head.header("content-encoding");
    if (!encoding.empty() && encoding != "identity")
        return api_error(
            415, fmt::format("Content-Encoding {} is not supported, expected none.", encoding),
            errors);
    if (rule.methods == Methods::post && http->draining())
        return api_error(503, "The server is shutting down.", errors);
    return std::nullopt;
}

void Server::Impl::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    const RouteRule& rule = find_route(request.path());
    if (rule.route == Route::answer) return start(rule, std::move(request), std::move(exchange));
    if (rule.route == Route::inspection)
        return inspect(rule, std::move(request), std::move(exchange));
    if (rule.route == Route::response) return stored_response(request, exchange);
    HttpResponse response = answer(rule.route, request.path());
    add_request_id(response, request);
    exchange->respond(response);
}

void Server::Impl::start(const RouteRule& rule, HttpRequest request,
                         std::shared_ptr<HttpExchange> exchange) {
    const auto refuse = [&](const Status& status) {
        HttpResponse response = api_error(status, errors_of(rule));
        add_request_id(response, request);
        exchange->respond(response);
    };
    const Result<std::int64_t> timeout_us = request_timeout_us(request.header("x-request-timeout"));
    if (!timeout_us.ok()) return refuse(timeout_us.status());
    const std::string_view key =
        request_key(request.header("authorization"), request.header("x-api-key"));
    const Result<KvSharing> sharing =
        kv_sharing(options.sharing, client_of(request), keys.place(key),
                   request.header("x-fathom-traffic-class"));
    if (!sharing.ok()) return refuse(sharing.status());
    AnswerCall call;
    call.sharing = *sharing;
    call.api = rule.api;
    call.errors = errors_of(rule);
    call.request_id = request_id(request.header("x-request-id"));
    call.client = client_of(request);
    call.timeout_us = *timeout_us;
    call.body = std::move(request.body);
    start_answer(jobs, std::move(call), std::move(exchange));
}

void Server::Impl::inspect(const RouteRule& rule, HttpRequest request,
                           std::shared_ptr<HttpExchange> exchange) {
    Preparation::Reading reading;
    reading.client = client_of(request);
    reading.body_bytes = request.body.size();
    const auto shared = std::make_shared<const HttpRequest>(std::move(request));
    const auto body = std::make_shared<Result<std::string>>(std::string());
    reading.read = [this, rule, shared, body](const EarlierItems& earlier_items) {
        const Result<Api> api = inspected_api(rule, *shared);
        *body = api.ok()
                    ? inspect_request({.kind = rule.inspection, .api = *api, .body = shared->body},
                                      jobs.api, earlier_items, *owners.tokenizer(), owners.limits())
                    : Result<std::string>(api.status());
    };
    reading.done = [shared, body, errors = errors_of(rule),
                    exchange = std::move(exchange)](const Status& status) {
        const Status& fault = status.ok() ? body->status() : status;
        HttpResponse response =
            fault.ok() ? json_response(200, std::move(**body)) : api_error(fault, errors);
        add_request_id(response, *shared);
        exchange->respond(response);
    };
    preparation.run(std::move(reading));
}

void Server::Impl::stored_response(const HttpRequest& request,
                                   const std::shared_ptr<HttpExchange>& exchange) {
    const std::string id(request.path().substr(kResponsePrefix.size()));
    const std::string client = client_of(request);
    const auto answer = [&]() -> Result<std::string> {
        FATHOM_ASSIGN(const StoredResponsePtr stored, store.find(client, id));
        if (request.method != "DELETE") return stored->response;
        FATHOM_RETURN_IF_ERROR(store.erase(client, id));
        std::string text;
        JsonWriter json(text);
        json.begin_object().key("id").value(id).key("object").value("response");
        json.key("deleted").value(true).end_object();
        return text;
    };
    Result<std::string> body = answer();
    HttpResponse response =
        body.ok() ? json_response(200, std::move(*body)) : api_error(body.status());
    add_request_id(response, request);
    exchange->respond(response);
}

HttpResponse Server::Impl::models() const {
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("object").value("list").key("data").begin_array();
    for (const std::string& name : model_names)
        write_model(json, name, started_s, owners.limits().context_tokens);
    json.end_array().end_object();
    return json_response(200, std::move(text));
}

HttpResponse Server::Impl::answer(Route route, std::string_view path) const {
    switch (route) {
        case Route::models:
            return models();
        case Route::model: {
            const std::string_view name = path.substr(kModelPrefix.size());
            if (std::find(model_names.begin(), model_names.end(), name) == model_names.end())
                return api_error(404, fmt::format("There is no model {}.", name));
            std::string text;
            JsonWriter json(text);
            write_model(json, name, started_s, owners.limits().context_tokens);
            return json_response(200, std::move(text));
        }
        case Route::health:
            return health();
        case Route::liveness:
            return json_response(200, R"({"status":"alive"})");
        case Route::readiness:
            return readiness();
        case Route::metrics: {
            HttpResponse response = json_response(200, metrics.expose());
            response.content_type = "text/plain; version=0.0.4; charset=utf-8";
            return response;
        }
        case Route::answer:
        case Route::inspection:
        case Route::response:
        case Route::unknown:
            break;
    }
    return api_error(404, fmt::format("There is no route {}.", path));
}

HttpResponse Server::Impl::health() const {
    const std::int64_t stalled_us = engine.stalled_us();
    if (stalled_us > options.stall_us)
        return api_error(503, fmt::format("The engine has work and finished no step for {} s.",
                                          stalled_us / 1'000'000));
    const bool degraded = options.degraded && options.degraded();
    return json_response(200, degraded ? R"({"status":"degraded"})" : R"({"status":"ok"})");
}

HttpResponse Server::Impl::readiness() const {
    if (!ready) return api_error(503, "The server is not ready yet.");
    if (http->draining()) return api_error(503, "The server is shutting down.");
    return health();
}

Result<std::unique_ptr<Server>> Server::create(const ServerOptions& options, Engine& engine,
                                               std::shared_ptr<const Tokenizer> tokenizer,
                                               MetricsRegistry& metrics, const Clock& clock) {
    if (options.owner.model_name.empty())
        return invalid_argument("the model name is empty, expected the name that clients ask for");
    FATHOM_ASSIGN(ApiKeys keys, ApiKeys::create(options.api_keys));
    FATHOM_ASSIGN(const bool loopback, HttpServer::is_loopback(options.host));
    if (!loopback && !keys.required())
        return invalid_argument(
            "refusing to listen on {} without an API key: set at least one, or use 127.0.0.1",
            options.host);
    FATHOM_ASSIGN(std::unique_ptr<HttpServer> http,
                  HttpServer::create(http_options(options), clock, metrics));
    auto impl = std::make_unique<Impl>(options, std::move(keys), std::move(http), engine,
                                       std::move(tokenizer), metrics, clock);
    impl->http->start(*impl);
    return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
    shutdown(Shutdown::cancel);
    wait();
}

std::uint16_t Server::port() const {
    return impl_->http->port();
}
std::string Server::url() const {
    return impl_->http->url();
}
void Server::set_ready(bool ready) {
    impl_->ready = ready;
}
void Server::shutdown(Shutdown how) {
    impl_->http->shutdown(how == Shutdown::cancel);
}
void Server::wait() {
    impl_->http->wait();
}
OwnerRegistry& Server::owners() {
    return impl_->owners;
}

}  // namespace fathom
