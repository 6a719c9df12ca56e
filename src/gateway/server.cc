#include "gateway/server.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <utility>

#include "base/log.h"
#include "gateway/api_keys.h"
#include "gateway/completion_job.h"
#include "gateway/http/http_server.h"
#include "gateway/openai/errors.h"
#include "gateway/openai/response.h"
#include "gateway/random_id.h"
#include "gateway/thread_executor.h"

namespace fathom {

namespace {

enum class Route {
    chat_completions,
    completions,
    models,
    model,
    health,
    liveness,
    readiness,
    metrics,
    unknown
};

struct RouteRule {
    std::string_view path;
    Route route;
    bool post;
    bool key;  // needs a key when keys are set
};

constexpr RouteRule kRoutes[] = {
    {"/v1/chat/completions", Route::chat_completions, true, true},
    {"/v1/completions", Route::completions, true, true},
    {"/v1/models", Route::models, false, true},
    {"/health", Route::health, false, false},
    {"/liveness", Route::liveness, false, false},
    {"/readiness", Route::readiness, false, false},
    {"/metrics", Route::metrics, false, true},
};
constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr RouteRule kModelRule = {kModelPrefix, Route::model, false, true};
// An unknown path below /v1 tells nothing without a key either.
constexpr RouteRule kUnknownRule = {"", Route::unknown, false, false};

const RouteRule& find_route(std::string_view path) {
    for (const RouteRule& rule : kRoutes) {
        if (rule.path == path) return rule;
    }
    return path.substr(0, kModelPrefix.size()) == kModelPrefix ? kModelRule : kUnknownRule;
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
          jobs{.owners = owners,
               .network = http->executor(),
               .preparation = preparation,
               .clock = clock,
               .api = {.model_names = {options.owner.model_name},
                       .max_tokens = options.owner.max_tokens,
                       .reference_sampling = options.reference_sampling},
               .system_fingerprint = options.system_fingerprint} {
        auto& names = jobs.api.model_names;
        names.insert(names.end(), options.model_aliases.begin(), options.model_aliases.end());
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
    HttpResponse answer(Route route, std::string_view path) const;
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
    CompletionContext jobs;
    ThreadExecutor preparation;  // dies first: its tasks use all of the above
};

std::optional<HttpResponse> Server::Impl::refuse(const HttpRequest& head) {
    std::optional<HttpResponse> response = refusal(head);
    if (response) add_request_id(*response, head);
    return response;
}

std::optional<HttpResponse> Server::Impl::refusal(const HttpRequest& head) const {
    const RouteRule& rule = find_route(head.path());
    if (rule.key && keys.required() && !keys.accepts(head.header("authorization")))
        return api_error(
            401, "Missing or wrong API key: expected the header Authorization: Bearer KEY.");
    if (rule.route == Route::unknown)
        return api_error(404, fmt::format("There is no route {}.", head.path()));
    const bool get = head.method == "GET" || head.method == "HEAD";
    if (rule.post ? head.method != "POST" : !get) {
        HttpResponse response =
            api_error(405, fmt::format("{} does not support {}, expected {}.", head.path(),
                                       head.method, rule.post ? "POST" : "GET"));
        response.headers.emplace_back("allow", rule.post ? "POST" : "GET, HEAD");
        return response;
    }
    const std::string_view encoding = head.header("content-encoding");
    if (!encoding.empty() && encoding != "identity")
        return api_error(
            415, fmt::format("Content-Encoding {} is not supported, expected none.", encoding));
    if (rule.post && http->draining()) return api_error(503, "The server is shutting down.");
    return std::nullopt;
}

void Server::Impl::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    const Route route = find_route(request.path()).route;
    const bool completion = route == Route::chat_completions || route == Route::completions;
    const Result<std::int64_t> timeout_us = request_timeout_us(request.header("x-request-timeout"));
    if (!completion || !timeout_us.ok()) {
        HttpResponse response =
            completion ? api_error(timeout_us.status()) : answer(route, request.path());
        add_request_id(response, request);
        return exchange->respond(response);
    }
    CompletionCall call;
    call.kind = route == Route::chat_completions ? ApiKind::chat : ApiKind::completion;
    call.request_id = request_id(request.header("x-request-id"));
    call.timeout_us = *timeout_us;
    call.body = std::move(request.body);
    start_completion(jobs, std::move(call), std::move(exchange));
}

HttpResponse Server::Impl::answer(Route route, std::string_view path) const {
    const std::int64_t context = owners.limits().context_tokens;
    const auto& names = jobs.api.model_names;
    switch (route) {
        case Route::models:
            return json_response(200, models_json(names, started_s, context));
        case Route::model: {
            const std::string_view name = path.substr(kModelPrefix.size());
            if (std::find(names.begin(), names.end(), name) == names.end())
                return api_error(404, fmt::format("There is no model {}.", name));
            return json_response(200, model_json(name, started_s, context));
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
        case Route::chat_completions:
        case Route::completions:
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
    return json_response(200, R"({"status":"ok"})");
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
