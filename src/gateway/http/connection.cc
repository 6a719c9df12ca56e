#include "gateway/http/connection.h"

#include <utility>

namespace fathom {

using State = HttpRequestParser::State;

namespace {

// After its last answer a connection is half closed and read empty for a while: closing it with
// unread input would reset it, and the client could lose the answer.
constexpr std::int64_t kLingerUs = 2'000'000;

}  // namespace

class Connection::Exchange : public HttpExchange {
  public:
    explicit Exchange(Connection& connection) : connection_(connection.weak_from_this()) {}
    void attach(std::shared_ptr<HttpJob> job) override {
        if (auto connection = connection_.lock()) connection->job_ = std::move(job);
    }
    void respond(const HttpResponse& response) override {
        if (auto connection = connection_.lock()) connection->respond(response);
    }
    void begin(const HttpResponse& head) override {
        if (auto connection = connection_.lock()) connection->begin(head);
    }
    void write(std::string_view bytes) override {
        if (auto connection = connection_.lock()) connection->write_body(bytes);
    }
    void end(std::string_view bytes) override {
        if (auto connection = connection_.lock()) connection->end(bytes);
    }
    void detach() { connection_.reset(); }

  private:
    std::weak_ptr<Connection> connection_;
};

Connection::Connection(std::unique_ptr<Wire> wire, ConnectionHost& host)
    : wire_(std::move(wire)), host_(host), parser_(host.options().limits) {}

void Connection::start() {
    request_since_us_ = host_.now_us();
    read();
}

void Connection::close() {
    if (closed_) return;
    closed_ = true;
    const auto keep = shared_from_this();
    const auto job = job_;
    release();
    wire_->close();
    host_.closed(*this);
    if (job) job->on_gone();
}

void Connection::drop(const char* reason) {
    host_.count_dropped(reason);
    close();
}

void Connection::begin_drain() {
    keep_alive_ = false;
    if (exchange_ || lingering_) return;
    if (parser_.started() || !input_.empty()) return;  // its answer will close it
    // An answer that was made before the drain promised to keep the connection.
    close_when_flushed_ = true;
    if (unsent() == 0) close();
}

// ---- input ----

void Connection::read() {
    const std::size_t input_max = host_.options().limits.header_bytes_max + chunk_.size();
    if (closed_ || reading_ || end_of_input_ || input_.size() > input_max) return;
    reading_ = true;
    wire_->read_some(chunk_, [self = shared_from_this()](bool ok, std::size_t bytes) {
        self->reading_ = false;
        if (self->closed_) return;
        if (ok) {
            self->on_read(bytes);
        } else {
            self->on_end_of_input();
        }
    });
}

void Connection::on_read(std::size_t bytes) {
    if (!lingering_) {
        input_.append(chunk_.data(), bytes);
        process();
    }
    read();
}

void Connection::on_end_of_input() {
    end_of_input_ = true;
    if (exchange_ || lingering_) return close();
    process();  // what came before the end is still answered, if that needs no waiting
}

void Connection::process() {
    while (!closed_ && !exchange_ && !close_when_flushed_ && !lingering_ && step()) {
    }
    if (end_of_input_ && !closed_ && (exchange_ || unsent() == 0)) return close();
    read();  // the input buffer may have room again
}

bool Connection::step() {
    // The next request waits until the answer to the last one is written: a client that sends and
    // does not read stops itself.
    if (input_.empty() || (!parser_.started() && unsent() > 0)) return false;
    input_.erase(0, parser_.feed(input_));
    if (parser_.started() != timed_started_ || parser_.state() != timed_state_) {
        timed_started_ = parser_.started();
        timed_state_ = parser_.state();
        request_since_us_ = host_.now_us();
    }
    switch (parser_.state()) {
        case State::header:
            return false;
        case State::body:
            if (!head_checked_) check_head();
            return false;
        case State::complete:
            if (!head_checked_ && !check_head()) return false;
            answer(parser_.take());
            return true;
        case State::failed:
            fail(parser_.error_status(), parser_.error_message());
            return false;
    }
    return false;
}

bool Connection::check_head() {
    head_checked_ = true;
    const HttpRequest& head = parser_.head();
    head_only_ = head.method == "HEAD";
    if (const std::optional<HttpResponse> refusal = host_.handler().refuse(head)) {
        // With the body still to come, the end of this request cannot be found without reading it.
        keep_alive_ = head.keep_alive && parser_.state() == State::complete;
        const bool again = keep_alive_ && !host_.is_draining();
        refuse(*refusal);
        if (again) next_request();
        return false;
    }
    if (head.wants_continue && parser_.state() == State::body)
        send("HTTP/1.1 100 Continue\r\n\r\n");
    return true;
}

void Connection::next_request() {
    parser_ = HttpRequestParser(host_.options().limits);
    head_checked_ = false;
    timed_started_ = false;
    timed_state_ = State::header;
}

void Connection::answer(HttpRequest request) {
    next_request();
    keep_alive_ = request.keep_alive;
    http_1_0_ = request.http_1_0;
    head_only_ = request.method == "HEAD";
    exchange_ = std::make_shared<Exchange>(*this);
    last_sent_us_ = host_.now_us();
    host_.handler().handle(std::move(request), exchange_);
}

void Connection::refuse(const HttpResponse& response) {
    exchange_ = std::make_shared<Exchange>(*this);
    respond(response);
}

void Connection::fail(int status, std::string_view message) {
    keep_alive_ = false;
    refuse(host_.handler().error(status, message));
}

// ---- answers ----

void Connection::respond(const HttpResponse& response) {
    if (closed_ || !exchange_) return;
    keep_alive_ = keep_alive_ && !host_.is_draining();
    send(http_response_head(response, HttpBody::sized, response.body.size(), keep_alive_));
    if (!head_only_) send(response.body);
    host_.count_response(response.status);
    close_when_flushed_ = close_when_flushed_ || !keep_alive_;
    release();
}

void Connection::begin(const HttpResponse& head) {
    if (closed_ || !exchange_) return;
    framing_ = http_1_0_ ? HttpBody::until_close : HttpBody::chunked;
    keep_alive_ = keep_alive_ && !host_.is_draining() && !http_1_0_;
    send(http_response_head(head, framing_, 0, keep_alive_));
    host_.count_response(head.status);
}

void Connection::write_body(std::string_view bytes) {
    if (closed_ || !exchange_) return;
    if (unsent() + bytes.size() > host_.options().output_bytes_max) return drop("slow_client");
    send_body(bytes);
}

void Connection::send_body(std::string_view bytes) {
    if (bytes.empty()) return;
    if (framing_ == HttpBody::chunked) {
        append_http_chunk(output_, bytes);
        bytes = {};
    }
    send(bytes);
}

void Connection::end(std::string_view bytes) {
    if (closed_ || !exchange_) return;
    send_body(bytes);
    if (framing_ == HttpBody::chunked) send(kHttpLastChunk);
    keep_alive_ = keep_alive_ && !host_.is_draining();
    close_when_flushed_ = close_when_flushed_ || !keep_alive_;
    release();
    schedule_write();
}

void Connection::release() {
    if (exchange_) exchange_->detach();
    exchange_ = nullptr;
    job_ = nullptr;
    request_since_us_ = host_.now_us();
}

// ---- output ----

void Connection::send(std::string_view bytes) {
    output_ += bytes;
    last_sent_us_ = host_.now_us();
    schedule_write();
}

// Writes start from a task of their own, so that all that one task produces goes out together.
void Connection::schedule_write() {
    if (closed_ || writing_ || write_scheduled_) return;
    write_scheduled_ = true;
    host_.network().post([self = shared_from_this()] {
        self->write_scheduled_ = false;
        if (!self->closed_ && !self->writing_) self->on_flushed();
    });
}

void Connection::write_some() {
    writing_ = true;
    wire_->write_some(std::string_view(in_flight_).substr(written_),
                      [self = shared_from_this()](bool ok, std::size_t bytes) {
                          self->writing_ = false;
                          if (self->closed_) return;
                          if (!ok) return self->close();
                          self->on_written(bytes);
                      });
}

void Connection::on_written(std::size_t bytes) {
    written_ += bytes;
    write_progress_us_ = host_.now_us();
    if (written_ < in_flight_.size()) return write_some();
    on_flushed();
}

// Nothing is in flight: send what has gathered, else go on with what waited for an empty buffer.
void Connection::on_flushed() {
    in_flight_.clear();
    written_ = 0;
    if (!output_.empty()) {
        in_flight_.swap(output_);
        write_progress_us_ = host_.now_us();
        return write_some();
    }
    if (close_when_flushed_) return linger();
    process();
}

void Connection::linger() {
    if (end_of_input_) return close();
    if (lingering_) return;
    lingering_ = true;
    linger_since_us_ = host_.now_us();
    input_.clear();
    wire_->shutdown_send();
    read();
}

// ---- time ----

void Connection::sweep() {
    if (closed_) return;
    const HttpServerOptions& options = host_.options();
    const std::int64_t now = host_.now_us();
    if (writing_ && now - write_progress_us_ >= options.write_timeout_us)
        return drop("write_timeout");
    if (lingering_) {
        if (now - linger_since_us_ >= kLingerUs) close();
        return;
    }
    if (exchange_) {
        if (job_ && now - last_sent_us_ >= options.keep_alive_us) {
            last_sent_us_ = now;
            const auto job = job_;
            job->on_quiet();
        }
        return;
    }
    if (close_when_flushed_) return;
    const std::int64_t waited = now - request_since_us_;
    if (!parser_.started()) {
        if (unsent() == 0 && waited >= options.idle_timeout_us) drop("idle_timeout");
    } else if (parser_.state() == State::header && waited >= options.header_timeout_us) {
        host_.count_dropped("header_timeout");
        fail(408, "The request header did not arrive in time.");
    } else if (parser_.state() == State::body && waited >= options.body_timeout_us) {
        host_.count_dropped("body_timeout");
        fail(408, "The request body did not arrive in time.");
    }
}

}  // namespace fathom
