// The HTTP front door: one network thread that holds all connections and all request owners.
//
//   POST /v1/chat/completions, /v1/completions, /v1/responses    OpenAI, streamed (SSE) or not
//   POST /v1/messages                                            Anthropic, streamed or not
//   GET, DELETE /v1/responses/ID                                 what is stored
//   POST /v1/messages/count_tokens, /v1/responses/input_tokens, /v1/tokenize, /v1/prompt
//   GET  /v1/models /health /liveness /readiness /metrics
//
// docs/http_api.md has the fields.
//
//   ServerOptions options;            // loopback, port 8000, no key
//   FATHOM_ASSIGN(auto server, Server::create(options, engine, tokenizer, metrics));
//   fmt::print("listening on {}\n", server->url());
//   server->wait();                   // until SIGINT/SIGTERM (handle_signals) or shutdown()
//
// A client that goes away cancels its request, streamed or not; a client that does not read is
// dropped when its buffered output reaches output_bytes_max. Bodies are parsed, rendered and
// tokenized on threads of their own (preparation.h), so that a huge one does not stall others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/result.h"
#include "engine/engine.h"
#include "gateway/api_error.h"
#include "gateway/api_request.h"
#include "gateway/kv_sharing.h"
#include "gateway/owner.h"
#include "gateway/response_store.h"
#include "recipe/tokenizer.h"

namespace fathom {

struct ServerOptions {
    std::string host = "127.0.0.1";  // a numeric address; "localhost" is 127.0.0.1
    std::uint16_t port = 8000;       // 0: any free port, see Server::port()
    // Keys that /v1/* and /metrics then require (Authorization: Bearer KEY, or x-api-key). An
    // address that is not loopback needs at least one. Never logged.
    std::vector<std::string> api_keys;
    std::vector<std::string> model_aliases;     // accepted beside owner.model_name
    std::string system_fingerprint = "fathom";  // of every answer: model and build
    OwnerOptions owner;  // model name, context, requests in flight, time-outs
    // Profile and switches of the codec; the models and their bounds are set by the server.
    ApiOptions api;
    ErrorShape messages_errors = ErrorShape::anthropic;  // of the routes of Messages
    ResponseStoreOptions responses;                      // that later requests may name
    KvSharingOptions sharing;                            // of cached KV, between keys

    std::size_t connections_max = 1024;           // further ones are closed at once
    std::size_t body_bytes_max = 16 << 20;        // 413 above
    std::size_t header_bytes_max = 16 << 10;      // 431 above
    std::size_t output_bytes_max = 4 << 20;       // unsent bytes of one connection; then dropped
    std::int64_t header_timeout_us = 10'000'000;  // from the first byte to the end of the header
    std::int64_t body_timeout_us = 60'000'000;    // from there to the end of the body
    std::int64_t idle_timeout_us = 75'000'000;    // kept-alive connection without a request
    std::int64_t write_timeout_us = 60'000'000;   // a write that makes no progress
    std::int64_t keep_alive_us = 15'000'000;      // comment or blank line while nothing is sent
    std::int64_t stall_us = 30'000'000;  // /health: engine without a step while it has work
    std::int64_t drain_us = 60'000'000;  // graceful shutdown, then requests are cancelled
    // Whether something is impaired although requests are served as ever: /health then says
    // "degraded". Any thread, without waiting; may be empty. Lives as long as the server.
    std::function<bool()> degraded;
    bool handle_signals = false;  // SIGINT, SIGTERM: the first drains, the second cancels at once
};

class Server {
  public:
    // Checks the options, binds, listens and starts the threads. Errors: invalid_argument for a bad
    // address or a public address without a key, unavailable when the port is taken.
    static Result<std::unique_ptr<Server>> create(const ServerOptions& options, Engine& engine,
                                                  std::shared_ptr<const Tokenizer> tokenizer,
                                                  MetricsRegistry& metrics,
                                                  const Clock& clock = real_clock());
    ~Server();  // shutdown(cancel) and wait()
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    std::uint16_t port() const;
    std::string url() const;  // "http://127.0.0.1:8000"

    // /readiness answers 503 until this is called with true: after one real token was generated,
    // say. A new server is not ready. Any thread.
    void set_ready(bool ready);

    enum class Shutdown { drain, cancel };
    // Stops accepting; lets live requests end for drain_us (drain) or cancels them now. Returns at
    // once; any thread; repeatable, `cancel` cuts a drain short.
    void shutdown(Shutdown how);
    void wait();  // returns when the server has shut down

    OwnerRegistry& owners();  // the same registry that serves requests, for a first token at start

  private:
    struct Impl;
    explicit Server(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace fathom
