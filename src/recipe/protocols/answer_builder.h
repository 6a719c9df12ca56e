// From the events of the output parser to the bytes of an HTTP answer. Each protocol has one
// builder (chat_events.h, messages_events.h, responses_events.h) behind this interface; the field
// order of every object is that of the reference (recipe.md 4.3 to 4.5).
//
// Framing is the server's: a payload is one JSON text, `name` the SSE event name. Chat payloads
// have no name, and a stream of them ends with the data `[DONE]`; the others name each frame and
// end with their last payload.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/output_parser.h"

namespace fathom {

struct StreamPayload {
    std::string_view name;  // a constant, or empty
    std::string json;
};

// Makes the id of the index-th tool call of an answer, from 0. Called once a call, in order. Of an
// answer with several choices the calls of choice c count from c << 32 on.
using CallIds = std::function<std::string(std::int64_t index)>;
// call_ + two digits of the index (in its choice) + _ + 24 letters and digits, a function of seed
// and index. A seed must not be used for two answers.
CallIds random_call_ids(std::uint64_t seed);

struct AnswerSettings {
    std::string id;            // of the response
    std::string model;         // as the request named it
    std::int64_t created = 0;  // Unix seconds
    bool stream = false;
    ThinkingStage thinking = ThinkingStage::none;  // that of the parser
    CallIds call_ids;
    std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // spells log probabilities
};

// `type` is the protocol's name of the kind of error (Chat and Responses: internal_error, Messages:
// api_error, overloaded_error, ...); `message` a sentence.
struct AnswerError {
    std::string_view type;
    std::string_view message;
};

// One owner, who feeds the parser's events in order.
class AnswerBuilder {
  public:
    virtual ~AnswerBuilder() = default;
    // Appends what the event adds to the stream; nothing if the answer is not streamed.
    virtual void add(const OutputEvent& event, std::vector<StreamPayload>& payloads) = 0;
    // Appends what tells the client of a streamed answer that it breaks off here; nothing may be
    // added after it. Errors before the stream has begun have an HTTP status and are the server's.
    virtual void fail(const AnswerError& error, std::vector<StreamPayload>& payloads) = 0;
    // The whole answer, once the finish event was added, if it is not streamed.
    virtual std::string answer() const = 0;
};

}  // namespace fathom
