#include "gateway/client/http_client.h"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "gateway/client/response_parser.h"

namespace fathom {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::size_t kIdleConnectionsMax = 4096;

class Exchange;

// What exchanges share; of the client's thread.
struct Shared {
    HttpClientOptions options;
    asio::io_context context;
    std::vector<tcp::socket> idle;  // kept connections, the last used at the end
    std::set<std::shared_ptr<Exchange>> live;
    bool closing = false;
};

std::chrono::microseconds us(std::int64_t value) {
    return std::chrono::microseconds(value);
}

// One request from connecting to its end. Every handler holds the exchange; close() lets the
// pending ones return.
class Exchange : public std::enable_shared_from_this<Exchange> {
  public:
    Exchange(Shared& shared, std::string message, std::shared_ptr<HttpExchange> observer)
        : shared_(shared),
          message_(std::move(message)),
          observer_(std::move(observer)),
          socket_(shared.context),
          resolver_(shared.context),
          whole_(shared.context),
          stage_(shared.context) {}

    void start(std::int64_t timeout_us) {
        arm(whole_, timeout_us, "the request took longer than its time limit");
        if (shared_.idle.empty()) return connect();
        socket_ = std::move(shared_.idle.back());
        shared_.idle.pop_back();
        is_kept_ = true;
        write();
    }
    void cancel() { end(Status(StatusCode::cancelled, "cancelled")); }

  private:
    void arm(asio::steady_timer& timer, std::int64_t timeout_us, const char* what) {
        timer.expires_after(us(timeout_us));
        timer.async_wait([self = shared_from_this(), &timer, what](const error_code& code) {
            // It may have been set again while this call was already on its way.
            if (code || timer.expiry() > std::chrono::steady_clock::now()) return;
            self->end(error(StatusCode::deadline_exceeded, "{}", what));
        });
    }

    void connect() {
        is_kept_ = false;
        arm(stage_, shared_.options.connect_timeout_us, "connecting took longer than its limit");
        const HttpUrl& url = shared_.options.url;
        resolver_.async_resolve(
            url.host, url.port,
            [self = shared_from_this()](const error_code& code,
                                        const tcp::resolver::results_type& found) {
                if (self->ended_) return;
                if (code) return self->fail("cannot find the host", code);
                asio::async_connect(self->socket_, found,
                                    [self](const error_code& failed, const tcp::endpoint&) {
                                        if (self->ended_) return;
                                        if (failed) return self->fail("cannot connect", failed);
                                        error_code ignored;
                                        self->socket_.set_option(tcp::no_delay(true), ignored);
                                        self->write();
                                    });
            });
    }

    void write() {
        arm_silence();
        asio::async_write(socket_, asio::buffer(message_),
                          [self = shared_from_this()](const error_code& code, std::size_t) {
                              if (self->ended_) return;
                              if (code) return self->broken(code);
                              self->read();
                          });
    }

    void read() {
        socket_.async_read_some(asio::buffer(chunk_),
                                [self = shared_from_this()](const error_code& code, std::size_t n) {
                                    if (self->ended_) return;
                                    if (code && code != asio::error::eof) return self->broken(code);
                                    if (code && self->pending_.empty() && !self->seen_)
                                        return self->broken(code);
                                    self->take(n, code == asio::error::eof);
                                });
    }

    void take(std::size_t bytes, bool at_end) {
        using State = HttpResponseParser::State;
        if (bytes > 0) {
            seen_ = true;
            arm_silence();
        }
        pending_.append(chunk_.data(), bytes);
        pending_.erase(0, parser_.feed(pending_));
        if (at_end) parser_.feed_end();
        const State state = parser_.state();
        if (!head_told_ && (state == State::body || state == State::complete)) {
            head_told_ = true;
            observer_->on_head(parser_.status());
        }
        if (ended_) return;
        if (head_told_) {
            const std::string body = parser_.take_body();
            if (!body.empty()) observer_->on_body(body);
        }
        if (ended_) return;
        if (state == State::failed)
            return end(Status(StatusCode::data_loss, parser_.error_message()));
        if (state != State::complete) return read();
        if (parser_.keep_alive() && !at_end && pending_.empty() && !shared_.closing &&
            shared_.idle.size() < kIdleConnectionsMax)
            shared_.idle.push_back(std::move(socket_));
        end({});
    }

    void arm_silence() {
        arm(stage_, shared_.options.silence_timeout_us, "the server was silent for too long");
    }

    // A kept connection that the server has closed in the meantime says nothing about the server.
    void broken(const error_code& code) {
        if (!is_kept_ || seen_) return fail("the connection broke", code);
        error_code ignored;
        socket_.close(ignored);
        socket_ = tcp::socket(shared_.context);
        shared_.idle.clear();
        connect();
    }
    void fail(const char* what, const error_code& code) {
        end(error(StatusCode::unavailable, "{}: {}", what, code.message()));
    }

    void end(const Status& status) {
        if (std::exchange(ended_, true)) return;
        whole_.cancel();
        stage_.cancel();
        resolver_.cancel();
        error_code ignored;
        socket_.close(ignored);
        const auto self = shared_from_this();
        shared_.live.erase(self);
        observer_->on_end(status);
    }

    Shared& shared_;
    std::string message_;
    std::shared_ptr<HttpExchange> observer_;
    tcp::socket socket_;
    tcp::resolver resolver_;
    asio::steady_timer whole_, stage_;
    HttpResponseParser parser_;
    std::array<char, 16 << 10> chunk_;
    std::string pending_;
    bool is_kept_ = false, seen_ = false, head_told_ = false, ended_ = false;
};

}  // namespace

struct HttpClientPool::Impl {
    explicit Impl(const HttpClientOptions& options) : work(asio::make_work_guard(shared.context)) {
        shared.options = options;
        thread = std::thread([this] { shared.context.run(); });
    }

    std::string message(const std::string& path, std::string_view body) const {
        const HttpUrl& url = shared.options.url;
        std::string text =
            fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\n",
                        body.empty() ? "GET" : "POST", url.prefix, path, url.authority());
        for (const auto& [name, value] : shared.options.headers)
            text += fmt::format("{}: {}\r\n", name, value);
        if (!body.empty())
            text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n",
                                body.size());
        text += "\r\n";
        text += body;
        return text;
    }

    void cancel_live() {
        const auto live = shared.live;
        for (const std::shared_ptr<Exchange>& exchange : live)
            exchange->cancel();
    }

    Shared shared;
    asio::executor_work_guard<asio::io_context::executor_type> work;
    std::thread thread;
};

HttpClientPool::HttpClientPool(const HttpClientOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

HttpClientPool::~HttpClientPool() {
    asio::post(impl_->shared.context, [impl = impl_.get()] {
        impl->shared.closing = true;
        impl->cancel_live();
        impl->shared.idle.clear();
        impl->work.reset();
    });
    impl_->thread.join();
}

void HttpClientPool::send(std::string path, std::string body, std::int64_t timeout_us,
                          std::shared_ptr<HttpExchange> exchange) {
    asio::post(impl_->shared.context, [impl = impl_.get(), message = impl_->message(path, body),
                                       timeout_us, observer = std::move(exchange)]() mutable {
        Shared& shared = impl->shared;
        auto live = std::make_shared<Exchange>(shared, std::move(message), std::move(observer));
        shared.live.insert(live);
        if (shared.closing) return live->cancel();
        live->start(timeout_us);
    });
}

void HttpClientPool::cancel_all() {
    asio::post(impl_->shared.context, [impl = impl_.get()] { impl->cancel_live(); });
}

}  // namespace fathom
