#include "recipe/vectors/replay.h"

#include <cstdlib>
#include <utility>

#include <fmt/core.h>

#include "base/utf8.h"

namespace fathom {
namespace {

std::unique_ptr<AnswerBuilder> builder(Protocol protocol, LoweredRequest request, bool stream,
                                       std::shared_ptr<const Tokenizer> tokenizer) {
    AnswerSettings settings;
    settings.id = "RID";
    settings.call_ids = [](std::int64_t i) { return fmt::format("call_{:02}_RANDOM", i); };
    settings.tokenizer = std::move(tokenizer);
    request.model = "m";
    // The reference counts on every chunk too when it streams what was not to be streamed.
    request.include_usage |= !request.stream;
    request.stream = stream;
    return make_answer(protocol, request, std::move(settings));
}

}  // namespace

Json neutral_event(std::size_t push, const OutputEvent& event) {
    static constexpr std::array kKinds{"s", "c", "r", "t", "a", "f"};
    static constexpr std::array kReasons{"stop", "stop", "tool_calls", "length", "content_filter"};
    const bool last = event.kind == OutputEvent::Kind::finish;
    const std::string text = last ? kReasons[static_cast<std::size_t>(event.finish)] : event.text;
    return Json::Array{static_cast<std::int64_t>(push),
                       kKinds[static_cast<std::size_t>(event.kind)], text};
}

std::vector<std::string_view> text_pieces(std::string_view text, const Json::Array& lengths) {
    std::vector<std::string_view> pieces;
    for (const Json& length : lengths) {
        std::size_t end = 0;
        const std::int64_t count = length.kind() == Json::Kind::integer ? length.as_int64() : 0;
        for (std::int64_t i = 0; i < count && end < text.size(); ++i)
            end += static_cast<std::size_t>(std::abs(utf8_sequence(text.substr(end))));
        pieces.push_back(text.substr(0, end));
        text.remove_prefix(end);
    }
    return pieces;
}

BackendFinish backend_finish(std::string_view name) {
    if (name == "length") return BackendFinish::length;
    return name == "content_filter" ? BackendFinish::content_filter : BackendFinish::stop;
}

std::vector<std::string> ReplayedAnswer::payloads() const {
    std::vector<std::string> all;
    for (const std::vector<StreamPayload>& push : pushes)
        for (const StreamPayload& payload : push)
            all.push_back(payload.json);
    return all;
}

std::vector<std::string> ReplayedAnswer::per_push() const {
    std::vector<std::string> counts;
    for (const std::vector<StreamPayload>& push : pushes)
        counts.push_back(fmt::format("{}", push.size()));
    return counts;
}

Replay::Replay(Protocol protocol, const LoweredRequest& request,
               std::shared_ptr<const Tokenizer> tokenizer)
    : parser_(request.parsing, tokenizer),
      streamed_(builder(protocol, request, true, tokenizer)),
      whole_(builder(protocol, request, false, tokenizer)) {}

void Replay::push(const ReadyChunk& chunk) {
    parser_.push(chunk, events_);
    drain();
}

void Replay::push(const TextChunk& chunk) {
    parser_.push(chunk, events_);
    drain();
}

void Replay::push(const TokenChunk& chunk) {
    Status status = parser_.push(chunk, events_);
    if (answer_.fault.ok()) answer_.fault = std::move(status);
    drain();
}

void Replay::push(BackendFinish finish) {
    parser_.push(finish, events_);
    drain();
}

void Replay::end() {
    parser_.end(events_);
    drain();
}

void Replay::fail(const AnswerError& error) {
    answer_.failed = true;
    streamed_->fail(error, answer_.pushes.emplace_back());
}

ReplayedAnswer Replay::take() {
    answer_.response = whole_->answer();
    return std::move(answer_);
}

void Replay::drain() {
    std::vector<StreamPayload> payloads, none;
    for (const OutputEvent& event : events_) {
        streamed_->add(event, payloads);
        whole_->add(event, none);
        answer_.neutral.push_back(neutral_event(answer_.pushes.size(), event));
    }
    events_.clear();
    answer_.pushes.push_back(std::move(payloads));
}

}  // namespace fathom
