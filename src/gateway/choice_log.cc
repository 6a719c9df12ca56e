#include "gateway/choice_log.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fathom {

namespace {

TokenLogprob entry_of(TokenId token, const TokenLogprobs& logprobs) {
    TokenLogprob entry{.id = token, .logprob = logprobs.logprob};
    for (const TopLogprob& top : logprobs.top)
        entry.top.emplace_back(top.id, top.logprob);
    return entry;
}

}  // namespace

ChoiceLog::ChoiceLog(std::shared_ptr<const Tokenizer> tokenizer, const PreparedRequest& request,
                     std::int64_t choice)
    : request_(request), choice_(choice), parser_(request.output_rules, std::move(tokenizer)) {}

void ChoiceLog::begin(std::int64_t cached_tokens, Events& events) {
    const std::size_t from = events.size();
    const auto prompt_tokens = static_cast<std::int64_t>(request_.prompt.size());
    parser_.push(
        ReadyChunk{.prompt_tokens = prompt_tokens, .prompt_cache_hit_tokens = cached_tokens},
        events);
    settle(events, from);
}

ChoiceLog::State ChoiceLog::append(TokenId token, const TokenLogprobs* logprobs, Events& events) {
    tokens_.push_back(token);
    const auto& stop_tokens = request_.stop_tokens;
    if (std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end())
        return State::stopped;
    const std::size_t from = events.size();
    TokenChunk chunk{.ids = {&tokens_.back(), 1}};
    TokenLogprob entry;
    if (logprobs != nullptr) {
        entry = entry_of(token, *logprobs);
        chunk.logprobs = {&entry, 1};
    }
    const Status status = parser_.push(chunk, events);
    FATHOM_CHECK(status.ok(), status.message());
    settle(events, from);
    if (parser_.finished()) return State::stopped;
    return size() < request_.max_tokens ? State::open : State::full;
}

void ChoiceLog::finish(BackendFinish reason, Events& events) {
    const std::size_t from = events.size();
    parser_.push(reason, events);
    settle(events, from);
}

void ChoiceLog::settle(Events& events, std::size_t from) {
    for (; from < events.size(); ++from) {
        OutputEvent& event = events[from];
        event.choice = choice_;
        if (event.kind != OutputEvent::Kind::finish) continue;
        event.completion_tokens = size();
        matched_stop_ = event.text;
    }
}

}  // namespace fathom
