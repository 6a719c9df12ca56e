#include "recipe/recipe.h"

#include <array>
#include <utility>

#include "recipe/protocols/chat_events.h"
#include "recipe/protocols/chat_request.h"
#include "recipe/protocols/messages_events.h"
#include "recipe/protocols/messages_request.h"
#include "recipe/protocols/responses_events.h"
#include "recipe/protocols/responses_request.h"

namespace fathom {
namespace {

constexpr std::array<const char*, 3> kNames = {"chat", "messages", "responses"};
constexpr std::string_view kOtherImageToken = "<｜deepseek_image｜>";

}  // namespace

const char* protocol_name(Protocol protocol) {
    return kNames[static_cast<std::size_t>(protocol)];
}

Result<Protocol> parse_protocol(std::string_view name) {
    for (std::size_t i = 0; i < kNames.size(); ++i)
        if (name == kNames[i]) return static_cast<Protocol>(i);
    return invalid_argument("protocol \"{}\" is none of chat, messages, responses", name);
}

Result<LoweredRequest> lower_request(Protocol protocol, std::string_view body,
                                     const LowerOptions& options) {
    switch (protocol) {
        case Protocol::messages:
            return lower_messages_request(body, options);
        case Protocol::responses:
            return lower_responses_request(body, options);
        case Protocol::chat:
            break;
    }
    return lower_chat_request(body, options);
}

std::unique_ptr<AnswerBuilder> make_answer(Protocol protocol, const LoweredRequest& request,
                                           AnswerSettings settings) {
    settings.model = request.model;
    settings.stream = request.stream;
    settings.thinking = request.parsing.thinking_initial_stage;
    switch (protocol) {
        case Protocol::messages:
            return make_messages_answer(std::move(settings));
        case Protocol::responses:
            return make_responses_answer(std::move(settings), request.responses);
        case Protocol::chat:
            break;
    }
    return make_chat_answer(std::move(settings), {.include_usage = request.include_usage});
}

void append_event(std::string& stream, const StreamPayload& payload) {
    if (!payload.name.empty()) {
        stream += "event: ";
        stream += payload.name;
        stream += '\n';
    }
    stream += "data: ";
    stream += payload.json;
    stream += "\n\n";
}

std::string_view stream_end(Protocol protocol) {
    return protocol == Protocol::chat ? "data: [DONE]\n\n" : "";
}

// ------------------------------------------------------------------------------------ one answer

AnswerStream::AnswerStream(const EncodedRequest& request,
                           std::shared_ptr<const Tokenizer> tokenizer, AnswerIdentity identity)
    : protocol_(request.protocol),
      stream_(request.lowered.stream),
      parser_(request.lowered.parsing, tokenizer) {
    AnswerSettings settings;
    settings.id = std::move(identity.id);
    settings.created = identity.created;
    settings.call_ids = random_call_ids(identity.call_id_seed);
    settings.tokenizer = std::move(tokenizer);
    builder_ = make_answer(protocol_, request.lowered, std::move(settings));
}

std::string AnswerStream::drain() {
    if (ended_) events_.clear();
    std::vector<StreamPayload> payloads;
    for (const OutputEvent& event : events_)
        builder_->add(event, payloads);
    events_.clear();
    std::string bytes;
    for (const StreamPayload& payload : payloads)
        append_event(bytes, payload);
    if (ended_ || !parser_.finished()) return bytes;
    ended_ = true;
    bytes += stream_ ? std::string(stream_end(protocol_)) : builder_->answer();
    return bytes;
}

std::string AnswerStream::start(const ReadyChunk& prompt) {
    parser_.push(prompt, events_);
    return drain();
}

Result<std::string> AnswerStream::push(std::span<const TokenId> ids,
                                       std::span<const TokenLogprob> logprobs) {
    FATHOM_RETURN_IF_ERROR(parser_.push(TokenChunk{.ids = ids, .logprobs = logprobs}, events_));
    return drain();
}

std::string AnswerStream::finish(BackendFinish finish) {
    parser_.push(finish, events_);
    return drain();
}

std::string AnswerStream::fail(const AnswerError& error) {
    std::string bytes;
    if (ended_ || !stream_) return bytes;
    ended_ = true;
    std::vector<StreamPayload> payloads;
    builder_->fail(error, payloads);
    for (const StreamPayload& payload : payloads)
        append_event(bytes, payload);
    return bytes;
}

// ------------------------------------------------------------------------------------- the codec

Result<Codec> Codec::load(const std::string& tokenizer_path, CodecOptions options) {
    FATHOM_ASSIGN(std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::load(tokenizer_path));
    return Codec(std::move(tokenizer), std::move(options));
}

Codec::Codec(std::shared_ptr<const Tokenizer> tokenizer, CodecOptions options)
    : tokenizer_(std::move(tokenizer)),
      options_(std::move(options)),
      tokens_(special_tokens_of(*tokenizer_)) {}

Result<EncodedRequest> Codec::encode(Protocol protocol, std::string_view body) const {
    EncodedRequest request;
    request.protocol = protocol;
    FATHOM_ASSIGN(request.lowered, lower_request(protocol, body, options_.lower));
    RenderOptions render;
    render.dialect = request.lowered.dialect;
    render.effort_dialect = options_.effort_dialect;
    render.tokens = tokens_;
    FATHOM_ASSIGN(const std::vector<PromptSegment> segments,
                  render_prompt(request.lowered.conversation, render));
    auto ids = encode_prompt(segments, *tokenizer_);
    if (!ids.ok())
        return error(StatusCode::unsupported, "the tokenizer does not fit the prompt: {}",
                     ids.status().message());
    request.prompt = *std::move(ids);
    return request;
}

AnswerStream Codec::answer(const EncodedRequest& request, AnswerIdentity identity) const {
    return AnswerStream(request, tokenizer_, std::move(identity));
}

SpecialTokens special_tokens_of(const Tokenizer& tokenizer) {
    SpecialTokens tokens;
    if (!tokenizer.added_id(tokens.image) && tokenizer.added_id(kOtherImageToken))
        tokens.image = kOtherImageToken;
    return tokens;
}

}  // namespace fathom
