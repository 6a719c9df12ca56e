// Incremental parser of one HTTP/1.x request, with limits. Bytes come in any pieces; the same
// stream gives the same request however it is cut. Behind it is Beast's parser. One owner.
//
//   parser.feed(buffer) → how many bytes it took; the rest stays in the caller's buffer and is
//   offered again together with what arrives next. After `complete` the rest belongs to the next
//   request (pipelining): make a new parser for it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "gateway/http/message.h"

namespace fathom {

struct HttpLimits {
    std::size_t header_bytes_max = 16 << 10;  // request line and headers
    std::size_t body_bytes_max = 16 << 20;
};

class HttpRequestParser {
  public:
    explicit HttpRequestParser(const HttpLimits& limits);
    ~HttpRequestParser();
    HttpRequestParser(HttpRequestParser&&) noexcept;
    HttpRequestParser& operator=(HttpRequestParser&&) noexcept;

    enum class State { header, body, complete, failed };

    std::size_t feed(std::string_view bytes);
    State state() const;
    bool started() const;  // a byte of this request was seen

    // Everything but the body, once state() is body or complete.
    const HttpRequest& head() const;
    // The whole request, once complete.
    HttpRequest take();

    // Once failed: the status to answer with (400, 413, 431, 501, 505) and one sentence.
    int error_status() const;
    const std::string& error_message() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace fathom
