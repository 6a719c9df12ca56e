// One connection of an HttpServer: bytes to requests, answers to bytes, and its time-outs. It sees
// the network through Wire, so that Asio stays in http_server.cc. Network thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gateway/http/http_server.h"

namespace fathom {

class Connection;

// One TCP stream. At most one read and one write at a time; their callbacks come later, from the
// network thread's loop, also after close(), and their buffers must live until then.
class Wire {
  public:
    using Done = std::function<void(bool ok, std::size_t bytes)>;
    virtual ~Wire() = default;
    virtual void read_some(std::span<char> into, Done done) = 0;
    virtual void write_some(std::string_view bytes, Done done) = 0;
    virtual void shutdown_send() = 0;
    virtual void close() = 0;
};

// What connections share. `closed` takes a connection out of the server's set.
class ConnectionHost {
  public:
    virtual ~ConnectionHost() = default;
    virtual const HttpServerOptions& options() const = 0;
    virtual HttpHandler& handler() = 0;
    virtual Executor& network() = 0;
    virtual std::int64_t now_us() const = 0;
    virtual bool is_draining() const = 0;
    virtual void count_response(int status) = 0;
    virtual void count_dropped(const char* reason) = 0;
    virtual void closed(Connection& connection) = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
  public:
    Connection(std::unique_ptr<Wire> wire, ConnectionHost& host);

    void start();
    void sweep();        // enforces time-outs; called about every 50 ms
    void begin_drain();  // closes when idle, else after the answer that is due
    void close();        // now; a job that is answering is told

  private:
    class Exchange;

    void read();
    void on_read(std::size_t bytes);
    void on_end_of_input();
    void process();
    bool step();        // one feed of the parser; false: nothing more to do now
    bool check_head();  // false: the request was refused and answered
    void next_request();
    void answer(HttpRequest request);
    void refuse(const HttpResponse& response);
    void fail(int status, std::string_view message);

    void respond(const HttpResponse& response);
    void begin(const HttpResponse& head);
    void write_body(std::string_view bytes);
    void send_body(std::string_view bytes);
    void end(std::string_view bytes);
    void release();  // the exchange is over

    void send(std::string_view bytes);
    void schedule_write();
    void write_some();
    void on_written(std::size_t bytes);
    void on_flushed();
    void linger();
    void drop(const char* reason);
    std::size_t unsent() const { return output_.size() + in_flight_.size() - written_; }

    const std::unique_ptr<Wire> wire_;
    ConnectionHost& host_;
    bool closed_ = false;

    // input
    std::array<char, 16 << 10> chunk_;
    std::string input_;
    HttpRequestParser parser_;
    bool reading_ = false;
    bool end_of_input_ = false;
    bool head_checked_ = false;
    std::int64_t request_since_us_ = 0;  // idle, header or body: since when
    HttpRequestParser::State timed_state_ = HttpRequestParser::State::header;
    bool timed_started_ = false;

    // the request being answered
    std::shared_ptr<Exchange> exchange_;
    std::shared_ptr<HttpJob> job_;
    HttpBody framing_ = HttpBody::sized;
    bool keep_alive_ = true;
    bool http_1_0_ = false;
    bool head_only_ = false;

    // output
    std::string output_;
    std::string in_flight_;
    std::size_t written_ = 0;
    bool write_scheduled_ = false;
    bool writing_ = false;
    bool close_when_flushed_ = false;
    bool lingering_ = false;
    std::int64_t write_progress_us_ = 0;
    std::int64_t last_sent_us_ = 0;
    std::int64_t linger_since_us_ = 0;
};

}  // namespace fathom
