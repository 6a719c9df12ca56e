// Feeds recorded output of a model through the parser and the answer of a protocol, and keeps what
// comes out: what each chunk released, as events of the parser and as payloads of the stream, and
// the whole answer. What is random or timed in answers is fixed: the id is RID, the model m, calls
// are call_NN_RANDOM, times are 0.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "recipe/output_parser.h"
#include "recipe/recipe.h"

namespace fathom {

// [push, kind, text], kind: s start, r reasoning, c content, t tool name, a arguments, f finish.
Json neutral_event(std::size_t push, const OutputEvent& event);

// The pieces of a text, lengths in code points. What lengths leave over is missing.
std::vector<std::string_view> text_pieces(std::string_view text, const Json::Array& lengths);

// "stop", "length", "content_filter".
BackendFinish backend_finish(std::string_view name);

struct ReplayedAnswer {
    std::vector<std::vector<StreamPayload>> pushes;  // payloads by chunk
    Json::Array neutral;
    std::string response;  // the whole answer, not streamed
    Status fault;          // of token chunks
    bool failed = false;   // fail() was the end: there is no whole answer

    std::vector<std::string> payloads() const;  // all, in order
    std::vector<std::string> per_push() const;  // how many, by chunk
};

class Replay {
  public:
    Replay(Protocol protocol, const LoweredRequest& request,
           std::shared_ptr<const Tokenizer> tokenizer = nullptr);

    void push(const ReadyChunk& chunk);
    void push(const TextChunk& chunk);
    void push(const TokenChunk& chunk);
    void push(BackendFinish finish);
    void end();                           // the source has ended
    void fail(const AnswerError& error);  // the answer breaks off
    ReplayedAnswer take();

  private:
    void drain();

    OutputParser parser_;
    std::unique_ptr<AnswerBuilder> streamed_, whole_;
    OutputParser::Events events_;
    ReplayedAnswer answer_;
};

}  // namespace fathom
