// Incremental parser of one HTTP/1.x response whose body is taken piece by piece, so that a stream
// of any length needs little memory. Behind it is Beast's parser. One owner.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace fathom {

class HttpResponseParser {
  public:
    HttpResponseParser();
    ~HttpResponseParser();
    HttpResponseParser(HttpResponseParser&&) noexcept;
    HttpResponseParser& operator=(HttpResponseParser&&) noexcept;

    enum class State { header, body, complete, failed };

    // Takes bytes as they arrive; returns how many it used, the rest is offered again with what
    // comes next. Interim answers (1xx) are skipped.
    std::size_t feed(std::string_view bytes);
    // The connection has ended: completes a body that is delimited by that, else fails.
    void feed_end();

    State state() const;
    int status() const;       // once body or complete
    bool keep_alive() const;  // once complete: the connection may carry another request
    std::string take_body();  // what arrived since the last call, decoded
    const std::string& error_message() const;  // once failed

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace fathom
