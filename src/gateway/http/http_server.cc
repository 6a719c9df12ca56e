#include "gateway/http/http_server.h"

#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "gateway/http/connection.h"

namespace fathom {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kSweepPeriod{50};
// Cancelled requests get this long to write their last words.
constexpr std::int64_t kCancelGraceUs = 5'000'000;

class AsioExecutor : public Executor {
  public:
    explicit AsioExecutor(asio::io_context& context) : context_(context) {}
    void post(std::function<void()> task) override { asio::post(context_, std::move(task)); }

  private:
    asio::io_context& context_;
};

class AsioWire : public Wire {
  public:
    explicit AsioWire(tcp::socket socket) : socket_(std::move(socket)) {
        error_code ignored;
        socket_.set_option(tcp::no_delay(true), ignored);
    }
    void read_some(std::span<char> into, Done done) override {
        socket_.async_read_some(asio::buffer(into.data(), into.size()), Adapter{std::move(done)});
    }
    void write_some(std::string_view bytes, Done done) override {
        socket_.async_write_some(asio::buffer(bytes.data(), bytes.size()),
                                 Adapter{std::move(done)});
    }
    void shutdown_send() override {
        error_code ignored;
        socket_.shutdown(tcp::socket::shutdown_send, ignored);
    }
    void close() override {
        error_code ignored;
        socket_.close(ignored);
    }

  private:
    struct Adapter {
        Done done;
        void operator()(const error_code& code, std::size_t bytes) { done(!code, bytes); }
    };
    tcp::socket socket_;
};

Result<asio::ip::address> parse_address(const std::string& host) {
    error_code code;
    const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, code);
    if (code)
        return invalid_argument(
            "host is \"{}\", expected a numeric IPv4 or IPv6 address such as 127.0.0.1", host);
    return address;
}

}  // namespace

struct HttpServer::Impl : ConnectionHost {
    Impl(const HttpServerOptions& options_in, const Clock& clock_in, MetricsRegistry& metrics_in)
        : config(options_in),
          clock(clock_in),
          metrics(metrics_in),
          acceptor(context),
          timer(context),
          signals(context),
          work(asio::make_work_guard(context)),
          executor(context),
          open_gauge(metrics.gauge("fathom_http_connections", "Open HTTP connections.")),
          accepted(metrics.counter("fathom_http_connections_total",
                                   "HTTP connections accepted since the start.")) {}

    Status listen();
    void run(HttpHandler& handler_in);
    void accept();
    void schedule_sweep();
    void sweep();
    void begin_shutdown(bool at_once);
    void wait_for_signal();

    const HttpServerOptions& options() const override { return config; }
    HttpHandler& handler() override { return *http_handler; }
    Executor& network() override { return executor; }
    std::int64_t now_us() const override { return clock.now_us(); }
    bool is_draining() const override { return draining; }
    void count_response(int status) override {
        metrics
            .counter("fathom_http_responses_total", "HTTP answers by status.",
                     {{"status", std::to_string(status)}})
            .add();
    }
    void count_dropped(const char* reason) override {
        metrics
            .counter("fathom_http_dropped_total",
                     "Connections that were closed because of a limit or a time-out.",
                     {{"reason", reason}})
            .add();
    }
    void closed(Connection& connection) override {
        connections.erase(connection.shared_from_this());
        open_gauge.set(static_cast<double>(connections.size()));
    }

    const HttpServerOptions config;
    const Clock& clock;
    MetricsRegistry& metrics;
    asio::io_context context{1};
    tcp::acceptor acceptor;
    asio::steady_timer timer;
    asio::signal_set signals;
    asio::executor_work_guard<asio::io_context::executor_type> work;
    AsioExecutor executor;
    Gauge& open_gauge;
    Counter& accepted;
    HttpHandler* http_handler = nullptr;
    std::uint16_t bound_port = 0;

    std::set<std::shared_ptr<Connection>> connections;
    bool accepting = false;
    bool cancelling = false;
    std::int64_t drain_until_us = 0;
    std::int64_t close_at_us = 0;
    std::atomic<bool> draining{false};

    std::mutex join_mutex;
    std::thread thread;
};

Status HttpServer::Impl::listen() {
    FATHOM_ASSIGN(const asio::ip::address address, parse_address(config.host));
    const tcp::endpoint endpoint(address, config.port);
    error_code code;
    acceptor.open(endpoint.protocol(), code);
    if (!code) acceptor.set_option(tcp::acceptor::reuse_address(true), code);
    if (!code) acceptor.bind(endpoint, code);
    if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
    if (code)
        return error(StatusCode::unavailable, "cannot listen on {} port {}: {}", config.host,
                     config.port, code.message());
    bound_port = acceptor.local_endpoint(code).port();
    return {};
}

void HttpServer::Impl::run(HttpHandler& handler_in) {
    http_handler = &handler_in;
    if (config.handle_signals) {
        error_code ignored;
        signals.add(SIGINT, ignored);
        signals.add(SIGTERM, ignored);
        wait_for_signal();
    }
    accept();
    schedule_sweep();
    thread = std::thread([this] { context.run(); });
}

void HttpServer::Impl::wait_for_signal() {
    signals.async_wait([this](const error_code& code, int) {
        if (code) return;
        begin_shutdown(draining);
        wait_for_signal();
    });
}

void HttpServer::Impl::accept() {
    accepting = true;
    acceptor.async_accept([this](const error_code& code, tcp::socket socket) {
        accepting = false;
        if (draining) return;
        if (code) {  // out of descriptors, say: the sweep tries again
            log_warning("accept failed: {}", code.message());
            return;
        }
        if (connections.size() >= config.connections_max) {
            count_dropped("connections_max");
        } else {
            auto connection =
                std::make_shared<Connection>(std::make_unique<AsioWire>(std::move(socket)), *this);
            connections.insert(connection);
            accepted.add();
            open_gauge.set(static_cast<double>(connections.size()));
            connection->start();
        }
        accept();
    });
}

void HttpServer::Impl::schedule_sweep() {
    timer.expires_after(kSweepPeriod);
    timer.async_wait([this](const error_code& code) {
        if (code) return;
        sweep();
        schedule_sweep();
    });
}

void HttpServer::Impl::sweep() {
    http_handler->tick();
    // A sweep may close connections, which leave the set.
    const std::vector<std::shared_ptr<Connection>> all(connections.begin(), connections.end());
    for (const auto& connection : all)
        connection->sweep();
    if (!draining) {
        if (!accepting) accept();
        return;
    }
    if (!cancelling && now_us() >= drain_until_us) begin_shutdown(true);
    if (cancelling && now_us() >= close_at_us) {
        for (const auto& connection : all)
            connection->close();
    }
    if (connections.empty() && http_handler->idle()) context.stop();
}

void HttpServer::Impl::begin_shutdown(bool at_once) {
    if (!draining) {
        draining = true;
        drain_until_us = now_us() + config.drain_us;
        log_info("shutting down: {} connections open", connections.size());
        error_code ignored;
        acceptor.close(ignored);
        const std::vector<std::shared_ptr<Connection>> all(connections.begin(), connections.end());
        for (const auto& connection : all)
            connection->begin_drain();
    }
    if (at_once && !cancelling) {
        cancelling = true;
        close_at_us = now_us() + kCancelGraceUs;
        http_handler->cancel_all();
    }
}

Result<std::unique_ptr<HttpServer>> HttpServer::create(const HttpServerOptions& options,
                                                       const Clock& clock,
                                                       MetricsRegistry& metrics) {
    auto impl = std::make_unique<Impl>(options, clock, metrics);
    FATHOM_RETURN_IF_ERROR(impl->listen());
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
    if (impl_->http_handler == nullptr) return;
    shutdown(true);
    wait();
}

Result<bool> HttpServer::is_loopback(const std::string& host) {
    FATHOM_ASSIGN(const asio::ip::address address, parse_address(host));
    return address.is_loopback();
}

Executor& HttpServer::executor() {
    return impl_->executor;
}

std::uint16_t HttpServer::port() const {
    return impl_->bound_port;
}

std::string HttpServer::url() const {
    const std::string& host = impl_->config.host;
    const bool v6 = host.find(':') != std::string::npos;
    return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port());
}

void HttpServer::start(HttpHandler& handler) {
    impl_->run(handler);
}

void HttpServer::shutdown(bool at_once) {
    asio::post(impl_->context, [impl = impl_.get(), at_once] { impl->begin_shutdown(at_once); });
}

bool HttpServer::draining() const {
    return impl_->draining;
}

void HttpServer::wait() {
    std::lock_guard lock(impl_->join_mutex);
    if (impl_->thread.joinable()) impl_->thread.join();
}

}  // namespace fathom
