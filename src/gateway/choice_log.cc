#include "gateway/choice_log.h"

#include <algorithm>
#include <utility>

namespace fathom {

namespace {

constexpr std::int64_t kMarkerBytes = 8;  // </think>

std::int64_t size_of(std::string_view text) {
    return static_cast<std::int64_t>(text.size());
}

std::int64_t characters_of(std::string_view text) {
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

ChoiceLog::ChoiceLog(std::shared_ptr<const Tokenizer> tokenizer, const PreparedRequest& request)
    : tokenizer_(std::move(tokenizer)),
      request_(request),
      detokenizer_(tokenizer_),
      thinking_(request.starts_in_thinking),
      stops_(request.stop_strings) {}

ChoiceLog::State ChoiceLog::append(TokenId token, const TokenLogprobs* logprobs,
                                   GenerationDelta& delta) {
    tokens_.push_back(token);
    const auto& stop_tokens = request_.stop_tokens;
    if (std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end())
        return State::stopped;
    if (logprobs != nullptr) note_logprobs(token, *logprobs);
    show(detokenizer_.push(token).text, delta);
    if (!matched_stop_.empty()) return State::stopped;
    return size() < request_.max_tokens ? State::open : State::full;
}

void ChoiceLog::finish(GenerationDelta& delta) {
    show(detokenizer_.finish().text, delta);
    show_split(thinking_.finish(), delta);
    if (matched_stop_.empty()) {
        const std::string rest = stops_.finish();
        delta.content += rest;
        content_shown_bytes_ += size_of(rest);
    }
    show_entries(delta);
}

TokenText ChoiceLog::token_text(TokenId id, float logprob) const {
    return {.id = id, .bytes = std::string(tokenizer_->bytes(id)), .logprob = logprob};
}

void ChoiceLog::note_logprobs(TokenId token, const TokenLogprobs& logprobs) {
    PendingEntry& pending = entries_.emplace_back();
    pending.entry.token = token_text(token, logprobs.logprob);
    for (const TokenLogprob& top : logprobs.top)
        pending.entry.top.push_back(token_text(top.id, top.logprob));
    pending.entry.text_offset = text_characters_;
}

void ChoiceLog::show(std::string_view text, GenerationDelta& delta) {
    if (text.empty()) return;
    text_bytes_ += size_of(text);
    text_characters_ += characters_of(text);
    for (auto it = entries_.rbegin(); it != entries_.rend() && it->end_bytes < 0; ++it)
        it->end_bytes = text_bytes_;
    show_split(thinking_.push(text), delta);
    show_entries(delta);
}

void ChoiceLog::show_split(const ThinkingSplitter::Output& split, GenerationDelta& delta) {
    delta.reasoning += split.reasoning;
    reasoning_bytes_ += size_of(split.reasoning);
    if (split.content.empty()) return;
    content_bytes_ += size_of(split.content);
    // Stop strings act on content only (recipe.md 3.3), and not before min_tokens.
    if (size() <= request_.sampling.min_tokens) {
        delta.content += split.content;
        content_shown_bytes_ += size_of(split.content);
        return;
    }
    const StopStrings::Output checked = stops_.push(split.content);
    delta.content += checked.text;
    content_shown_bytes_ += size_of(checked.text);
    if (checked.stopped) matched_stop_ = checked.matched;
}

void ChoiceLog::show_entries(GenerationDelta& delta) {
    const bool marker = request_.starts_in_thinking && content_bytes_ > 0;
    const std::int64_t content_begin = reasoning_bytes_ + (marker ? kMarkerBytes : 0);
    const std::int64_t shown =
        content_bytes_ > 0 ? content_begin + content_shown_bytes_ : reasoning_bytes_;
    std::size_t done = 0;
    for (; done < entries_.size(); ++done) {
        PendingEntry& pending = entries_[done];
        if (pending.end_bytes < 0 || pending.end_bytes > shown) break;
        if (pending.end_bytes > content_begin)
            delta.content_logprobs.push_back(std::move(pending.entry));
        else if (pending.end_bytes <= reasoning_bytes_)
            delta.reasoning_logprobs.push_back(std::move(pending.entry));
    }
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace fathom
