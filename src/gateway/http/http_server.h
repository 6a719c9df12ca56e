// The transport: one thread, one listening socket, many connections. It knows HTTP's framing,
// limits and time-outs, and nothing of what is asked; a handler answers through HttpExchange.
//
// A connection always has a read outstanding (until its input buffer is full), so that a client
// that leaves is seen at once: end of file while a request is being answered counts as the client
// going away, since a closed socket and a half-closed one look alike. Requests on one connection
// are answered one after the other; what a client pipelines waits in the bounded input buffer.
// Output goes through one buffer with at most one write in flight: what is produced meanwhile joins
// the next write.
//
// Handlers, jobs and exchanges are called and used on the network thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/executor.h"
#include "base/metrics.h"
#include "base/result.h"
#include "gateway/http/message.h"
#include "gateway/http/request_parser.h"

namespace fathom {

struct HttpServerOptions {
    std::string host = "127.0.0.1";
    std::uint16_t port = 0;
    HttpLimits limits;
    std::size_t connections_max = 1024;
    std::size_t output_bytes_max = 4 << 20;
    std::int64_t header_timeout_us = 10'000'000;
    std::int64_t body_timeout_us = 60'000'000;
    std::int64_t idle_timeout_us = 75'000'000;
    std::int64_t write_timeout_us = 60'000'000;
    std::int64_t keep_alive_us = 15'000'000;
    std::int64_t drain_us = 60'000'000;
    bool handle_signals = false;
};

// The work behind one request, told about its client. Held by the connection until the answer ends
// or the client is gone, whichever comes first; exactly then it is released.
class HttpJob {
  public:
    virtual ~HttpJob() = default;
    // The client left, does not read, or the connection had to be closed. Nothing can be sent.
    virtual void on_gone() = 0;
    // Nothing was sent for keep_alive_us: a chance to send a sign of life.
    virtual void on_quiet() = 0;
};

// One request being answered. Calls after the answer ended or the client left do nothing.
class HttpExchange {
  public:
    virtual ~HttpExchange() = default;
    virtual void attach(std::shared_ptr<HttpJob> job) = 0;
    virtual void respond(const HttpResponse& response) = 0;  // the whole answer
    // A streamed answer: begin (the body of `head` is ignored), write …, end with the last bytes. A
    // client whose unsent bytes would pass output_bytes_max by a write() is dropped.
    virtual void begin(const HttpResponse& head) = 0;
    virtual void write(std::string_view bytes) = 0;
    virtual void end(std::string_view bytes) = 0;
};

class HttpHandler {
  public:
    virtual ~HttpHandler() = default;
    // Called when the head is complete, before the body is read: an answer here refuses the request
    // and closes the connection if a body is still to come.
    virtual std::optional<HttpResponse> refuse(const HttpRequest& head) = 0;
    virtual void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
    // The answer to what is not a request: framing faults, limits, time-outs.
    virtual HttpResponse error(int status, std::string_view message) = 0;
    virtual void tick() = 0;        // about every 50 ms
    virtual void cancel_all() = 0;  // at a shutdown that does not wait (any longer)
    virtual bool idle() const = 0;  // nothing runs that was not asked for by a connection either
};

class HttpServer {
  public:
    // Binds and listens; nothing is accepted before start().
    static Result<std::unique_ptr<HttpServer>> create(const HttpServerOptions& options,
                                                      const Clock& clock, MetricsRegistry& metrics);
    ~HttpServer();  // shutdown(at_once) and wait()

    static Result<bool> is_loopback(const std::string& host);

    Executor& executor();  // tasks run on the network thread, from start() on
    std::uint16_t port() const;
    std::string url() const;
    void start(HttpHandler& handler);
    void shutdown(bool at_once);  // any thread
    bool draining() const;        // any thread
    void wait();

    struct Impl;  // shared with the connections; see http_server.cc

  private:
    explicit HttpServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace fathom
