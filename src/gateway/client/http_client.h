// HTTP requests to one server, many at a time, with kept connections: the sending half of load
// generation. Answers are given piece by piece as they arrive, so memory stays small whatever their
// length. A thread of its own does all work and calls the observers; Asio stays in the .cc file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gateway/client/url.h"
#include "gateway/http/message.h"

namespace fathom {

// Follows one exchange. Called on the client's thread; must not block.
class HttpExchange {
  public:
    virtual ~HttpExchange() = default;
    virtual void on_head(int status) = 0;
    virtual void on_body(std::string_view bytes) = 0;
    // Exactly once, last. ok: the answer is complete, whatever its HTTP status. unavailable: no
    // connection, or it broke; deadline_exceeded; cancelled; data_loss: not HTTP.
    virtual void on_end(const Status& status) = 0;
};

struct HttpClientOptions {
    HttpUrl url;
    HttpHeaders headers;  // sent with every request, beside those that the framing needs
    std::int64_t connect_timeout_us = 10'000'000;
    std::int64_t silence_timeout_us = 300'000'000;  // between bytes of an answer
};

class HttpClientPool {
  public:
    explicit HttpClientPool(const HttpClientOptions& options);
    ~HttpClientPool();  // cancels what is under way; its observers are told before this returns
    HttpClientPool(const HttpClientPool&) = delete;
    HttpClientPool& operator=(const HttpClientPool&) = delete;

    // Any thread. A POST of JSON, or a GET when `body` is empty; `path` comes behind the URL's
    // prefix. `timeout_us` bounds the whole exchange. A kept connection that the server has closed
    // meanwhile is replaced once; nothing else is repeated.
    void send(std::string path, std::string body, std::int64_t timeout_us,
              std::shared_ptr<HttpExchange> exchange);
    void cancel_all();  // any thread

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace fathom
