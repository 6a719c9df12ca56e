// The codec from end to end: what a server needs of this library, in one header.
//
//   body ── Codec::encode ──> prompt ids, settings ──> (a model) ──> ids ── AnswerStream ──> bytes
//
//   FATHOM_ASSIGN(const Codec codec, Codec::load("tokenizer.json", {}));
//   FATHOM_ASSIGN(const EncodedRequest request, codec.encode(Protocol::chat, body));
//   AnswerStream answer = codec.answer(request, {.id = "1", .call_id_seed = 7});
//   send(answer.start({.prompt_tokens = n}));
//   while (…) { FATHOM_ASSIGN(const std::string bytes, answer.push(ids)); send(bytes); }
//   send(answer.finish(BackendFinish::stop));
//
// Neither knows HTTP: a refused body is a Status, which request_error() turns into status and body;
// an answer is the bytes of an event stream, or one JSON text at the end if the request asked for
// no stream. examples/codec is a program that does nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "recipe/output_parser.h"
#include "recipe/prompt.h"
#include "recipe/protocols/answer_builder.h"
#include "recipe/protocols/lower_options.h"
#include "recipe/protocols/lowered_request.h"
#include "recipe/protocols/request_error.h"
#include "recipe/tokenizer.h"

namespace fathom {

enum class Protocol { chat, messages, responses };
const char* protocol_name(Protocol protocol);  // "chat"
// invalid_argument for another name.
Result<Protocol> parse_protocol(std::string_view name);

// The three lower_…_request and make_…_answer behind one name each.
Result<LoweredRequest> lower_request(Protocol protocol, std::string_view body,
                                     const LowerOptions& options);
// settings.model, .stream and .thinking are taken from the request.
std::unique_ptr<AnswerBuilder> make_answer(Protocol protocol, const LoweredRequest& request,
                                           AnswerSettings settings);

// One frame of an event stream: the event's name, if it has one, and its data.
void append_event(std::string& stream, const StreamPayload& payload);
// What stands behind the last frame: Chat has a frame of its own.
std::string_view stream_end(Protocol protocol);

struct EncodedRequest {
    Protocol protocol = Protocol::chat;
    LoweredRequest lowered;
    // One id stands for each image; the model's input has image_token_count of them in its place.
    std::vector<TokenId> prompt;
};

// What one answer is known by.
struct AnswerIdentity {
    std::string id;
    std::int64_t created = 0;        // Unix seconds
    std::uint64_t call_id_seed = 0;  // for the ids of tool calls; each answer needs its own
};

// Turns the output of one generation into the bytes of its answer. Each call gives what has to be
// sent now, which is nothing for long stretches of an answer that is not streamed. One owner.
class AnswerStream {
  public:
    AnswerStream(const EncodedRequest& request, std::shared_ptr<const Tokenizer> tokenizer,
                 AnswerIdentity identity);

    // The prompt's counts, before anything else; without it they are 0.
    std::string start(const ReadyChunk& prompt);
    // Ids as the model makes them, without the one that ends the sentence. With `logprobs`: one for
    // each id. invalid_argument when their number differs.
    Result<std::string> push(std::span<const TokenId> ids,
                             std::span<const TokenLogprob> logprobs = {});
    std::string finish(BackendFinish finish);
    // Instead of the rest of a streamed answer.
    std::string fail(const AnswerError& error);
    // A stop sequence was found, or finish() was called: what is pushed now has no effect, and the
    // generation can be ended.
    bool finished() const { return parser_.finished(); }

  private:
    std::string drain();

    Protocol protocol_;
    bool stream_;
    OutputParser parser_;
    std::unique_ptr<AnswerBuilder> builder_;
    OutputParser::Events events_;
    bool ended_ = false;  // the last bytes were given
};

struct CodecOptions {
    LowerOptions lower = {.profile = Profile::open};
    EffortDialect effort_dialect = EffortDialect::v4_0731;  // of V4
};

// Immutable; any thread.
class Codec {
  public:
    // `tokenizer_path`: a tokenizer.json.
    static Result<Codec> load(const std::string& tokenizer_path, CodecOptions options);
    Codec(std::shared_ptr<const Tokenizer> tokenizer, CodecOptions options);

    // invalid_argument: the request is refused. Anything else: the tokenizer lacks a special token.
    Result<EncodedRequest> encode(Protocol protocol, std::string_view body) const;
    AnswerStream answer(const EncodedRequest& request, AnswerIdentity identity) const;
    const Tokenizer& tokenizer() const { return *tokenizer_; }

  private:
    std::shared_ptr<const Tokenizer> tokenizer_;
    CodecOptions options_;
    SpecialTokens tokens_;
};

// The spellings of prompts with this tokenizer: images have two, of which it knows one.
SpecialTokens special_tokens_of(const Tokenizer& tokenizer);

}  // namespace fathom
