// Reads a streamed OpenAI answer (server-sent events) as a client: bytes in any pieces in, events
// out. It reads what all such servers send: chunks of chat.completion.chunk or text_completion,
// usage in any chunk, an error object, comments, and [DONE]. No I/O; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

struct CompletionEvent {
    bool has_text = false;  // content or reasoning that is not empty
    bool finished = false;  // a choice gave its finish_reason
    bool done = false;      // [DONE]
    std::optional<std::int64_t> prompt_tokens, completion_tokens, cached_tokens;  // usage
    std::string error;  // an error object's message
};

class CompletionStream {
  public:
    // One event may have this many bytes; more is an error, so that a server cannot fill memory.
    explicit CompletionStream(std::size_t event_bytes_max = 4 << 20)
        : event_bytes_max_(event_bytes_max) {}

    void feed(std::string_view bytes) { buffer_ += bytes; }
    // The next complete event, or nothing until more bytes come. data_loss: no JSON, or too long.
    Result<std::optional<CompletionEvent>> next();

  private:
    std::size_t event_bytes_max_;
    std::string buffer_;
    std::size_t begin_ = 0;  // what of buffer_ was read
    std::string data_;       // of the event that is being read
};

// The same reading of one JSON text: an event, or the body of an answer that is not streamed.
Result<CompletionEvent> read_completion_event(std::string_view json);

}  // namespace fathom
