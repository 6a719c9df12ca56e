#include "recipe/output_parser.h"

#include <algorithm>
#include <iterator>

#include <fmt/core.h>

#include "base/json.h"

namespace fathom {

namespace {

// The name in ` "name" string=" ` or ` name string=" `, which stands before the kind of a value.
std::string_view parameter_name(std::string_view attributes) {
    const bool quoted = attributes.starts_with('"');
    if (quoted) attributes.remove_prefix(1);
    return attributes.substr(0, attributes.find_first_of(quoted ? "\"" : " >"));
}

// `text` without what stands before the first `mark`, and the mark; nothing where there is none.
std::string_view behind(std::string_view text, char mark) {
    const std::size_t at = text.find(mark);
    return at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
}

}  // namespace

OutputParser::OutputParser(const ParsingOptions& options,
                           std::shared_ptr<const Tokenizer> tokenizer)
    : OutputParser(std::make_shared<const OutputRules>(options), std::move(tokenizer)) {}

OutputParser::OutputParser(std::shared_ptr<const OutputRules> rules,
                           std::shared_ptr<const Tokenizer> tokenizer)
    : rules_(std::move(rules)),
      stops_act_(rules_->stops_after_tokens() == 0),
      tokenizer_(std::move(tokenizer)) {
    if (tokenizer_ != nullptr) detokenizer_.emplace(tokenizer_, rules_->silent_ids());
    if (rules_->orphans() != nullptr) orphans_.emplace(*rules_->orphans());
    enter(rules_->first_stage());
}

void OutputParser::enter(Stage stage) {
    if (orphans_ && is_content(stage) && !is_content(stage_)) orphans_->begin(received_);
    stage_ = stage;
    matcher_.begin(rules().patterns);
}

void OutputParser::start(const ReadyChunk& chunk, Events& events) {
    if (started_) return;
    started_ = true;
    emit({.kind = OutputEvent::Kind::start, .prompt = chunk}, events);
}

void OutputParser::push(const ReadyChunk& chunk, Events& events) {
    if (!finished_) start(chunk, events);
}

void OutputParser::push(const TextChunk& chunk, Events& events) {
    if (finished_) return;
    read(chunk.content, chunk.content_tokens, {}, events);
}

Status OutputParser::push(const TokenChunk& chunk, Events& events) {
    if (finished_) return {};
    if (!detokenizer_) {
        return {StatusCode::invalid_argument, "token chunk received without a tokenizer"};
    }
    if (!chunk.logprobs.empty() && chunk.logprobs.size() != chunk.ids.size()) {
        return {StatusCode::invalid_argument,
                fmt::format("invalid log probabilities: {} log probabilities for {} token IDs",
                            chunk.logprobs.size(), chunk.ids.size())};
    }
    reads_tokens_ = true;
    for (const TokenId id : chunk.ids)
        held_token_bytes_.push_back(detokenizer_->bytes(id).size());
    // Log probabilities pair with ids; those that come without are not made up later.
    if (held_logprobs_.size() + chunk.logprobs.size() == held_token_bytes_.size()) {
        held_logprobs_.insert(held_logprobs_.end(), chunk.logprobs.begin(), chunk.logprobs.end());
    } else {
        held_logprobs_.clear();
    }
    const Detokenizer::Piece piece = detokenizer_->push(chunk.ids);
    if (piece.text.empty()) {
        start({}, events);
        return {};
    }
    Share share{.logprobs = std::exchange(held_logprobs_, {})};
    std::uint64_t at = arrived();
    const std::uint64_t end = at + piece.text.size();
    // Where bytes were replaced the text has another length; the last id ends with it anyway.
    for (const std::uint64_t bytes : std::exchange(held_token_bytes_, {}))
        share.token_ends.push_back(at = std::min(at + bytes, end));
    share.token_ends.back() = end;
    read(piece.text, piece.token_count, std::move(share), events);
    return {};
}

void OutputParser::push(BackendFinish reason, Events& events) {
    if (finished_) return;
    start({}, events);
    advance(true);
    if (!stop_sequence_.empty()) return finish(OutputFinish::stop_sequence, stop_sequence_, events);
    decide_unmatched(received_);
    if (!shares_.empty()) give_logprobs(shares_.back(), shares_.back().logprobs.size());
    if (reason == BackendFinish::stop && rules_->valid_arguments()) {
        std::string rest = missing_end();
        if (!rest.empty())
            pending_.push_back(
                {.event = {.kind = OutputEvent::Kind::arguments, .text = std::move(rest)}});
    }
    switch (reason) {
        case BackendFinish::stop:
            return finish(called_tool_ ? OutputFinish::tool_calls : OutputFinish::stop, {}, events);
        case BackendFinish::length:
            return finish(OutputFinish::length, {}, events);
        case BackendFinish::content_filter:
            return finish(OutputFinish::content_filter, {}, events);
    }
}

// From here on stop sequences act. What was held as the beginning of a match is to be read again.
void OutputParser::begin_stops() {
    stops_act_ = true;
    if (stage_ > Stage::reasoning) return;
    received_ -= matcher_.partial();
    Stage stage = stage_;
    if (!matcher_.is_fresh()) {
        if (stage == Stage::common_lead) stage = Stage::common;
        if (stage == Stage::reasoning_lead) stage = Stage::reasoning;
    }
    enter(stage);
}

void OutputParser::read(std::string_view text, std::int64_t tokens, Share share, Events& events) {
    start({}, events);
    completion_tokens_ += tokens;
    if (text.empty()) return;
    share.end = arrived() + text.size();
    if (!stops_act_ && completion_tokens_ > rules_->stops_after_tokens()) begin_stops();
    text_ += text;
    shares_.push_back(std::move(share));
    advance(false);
    if (!stop_sequence_.empty()) {
        return finish(OutputFinish::stop_sequence, stop_sequence_, events);
    }
    give_logprobs(shares_.back(), shares_.back().logprobs.size());
    drop_decided_shares();
    release(false, events);
    // Erasing only when half is decided keeps the cost linear.
    const std::size_t decided_bytes = decided_ - text_begin_;
    if (decided_bytes * 2 >= text_.size()) {
        text_.erase(0, decided_bytes);
        text_begin_ = decided_;
    }
}

// Reads all text, but for what may yet be a call outside of a block; at the end that too.
void OutputParser::advance(bool at_end) {
    const std::uint64_t end = arrived();
    while (stop_sequence_.empty()) {
        std::uint64_t until = end;
        if (looks_for_orphans() && !at_end) {
            orphans_->scan(text_, text_begin_);
            until = orphans_->settled();
        }
        if (received_ < until) {
            feed(until);
        } else if (until < end && orphans_->found()) {
            take_orphan();
        } else {
            return;
        }
    }
}

// Up to the end of a match, or to `until`.
void OutputParser::feed(std::uint64_t until) {
    const OutputMatcher::Scan scan =
        matcher_.feed(std::string_view(text_).substr(received_ - text_begin_, until - received_));
    received_ += scan.fed;
    if (scan.pattern >= 0) {
        match(rules().branches[static_cast<std::size_t>(scan.pattern)], scan.length);
    } else {
        decide_unmatched(received_ - matcher_.partial());
    }
}

// The matcher has read what is before the element. Content behind it begins as an answer does.
void OutputParser::take_orphan() {
    OrphanScanner::Element element = orphans_->take();
    decide_unmatched(element.begin);
    settle_logprobs(share_of(element.end), Action::skip, element.end);
    if (!pending_.empty()) pending_.back().closed = true;
    drop_decided_shares();
    const Pending event{.chunk_end = shares_.front().end, .match_end = element.end};
    received_ = decided_ = element.end;
    ++segment_;
    enter(Stage::common_lead);
    if (element.name.empty()) return;
    called_tool_ = true;
    pending_.push_back(event);
    pending_.back().event = {.kind = OutputEvent::Kind::tool_call, .text = std::move(element.name)};
    pending_.push_back(event);
    pending_.back().event = {.kind = OutputEvent::Kind::arguments,
                             .text = std::move(element.arguments)};
}

// The chunk that holds the byte before `end`.
OutputParser::Share& OutputParser::share_of(std::uint64_t end) {
    auto share = shares_.rbegin();
    for (auto before = std::next(share); before != shares_.rend() && before->end >= end; ++before)
        share = before;
    return *share;
}

void OutputParser::drop_decided_shares() {
    while (!shares_.empty() && shares_.front().end <= decided_)
        shares_.pop_front();
}

void OutputParser::decide_unmatched(std::uint64_t until) {
    while (decided_ < until) {
        while (shares_.front().end <= decided_)
            shares_.pop_front();
        Share& share = shares_.front();
        const std::uint64_t end = std::min(until, share.end);
        take_unmatched(share,
                       std::string_view(text_).substr(decided_ - text_begin_, end - decided_));
        decided_ = end;
    }
}

void OutputParser::take_unmatched(Share& share, std::string_view text) {
    switch (rules().unmatched) {
        case Unmatched::skip:
            break;
        case Unmatched::content:
            add_piece(share, OutputEvent::Kind::content, text);
            break;
        case Unmatched::space:
            if (open_piece(share) == nullptr) add_piece(share, OutputEvent::Kind::content, " ");
            break;
        case Unmatched::reasoning:
            count_reasoning(share, decided_, decided_ + text.size());
            add_piece(share, OutputEvent::Kind::reasoning, text);
            break;
        case Unmatched::name:
            tool_name_ += text;
            break;
        case Unmatched::collect:
            collected_ += text;
            break;
        case Unmatched::raw:
            add_piece(share, OutputEvent::Kind::arguments, text);
            break;
        case Unmatched::escaped: {
            std::string escaped;
            append_json_escaped(escaped, text);
            add_piece(share, OutputEvent::Kind::arguments, escaped);
            break;
        }
    }
}

OutputParser::Pending* OutputParser::open_piece(const Share& share) {
    if (pending_.empty()) return nullptr;
    Pending& last = pending_.back();
    const bool same = last.segment == segment_ && last.chunk_end == share.end && !last.closed;
    return same ? &last : nullptr;
}

void OutputParser::add_piece(Share& share, OutputEvent::Kind kind, std::string_view text) {
    if (Pending* piece = open_piece(share)) {
        piece->event.text += text;
        return;
    }
    pending_.push_back({.event = {.kind = kind, .text = std::string(text)},
                        .segment = segment_,
                        .chunk_end = share.end});
    // A chunk that was wholly held back until now: its log probabilities have waited with it.
    if (&share != &shares_.back()) give_logprobs(share, share.logprobs.size());
}

void OutputParser::count_reasoning(Share& share, std::uint64_t begin, std::uint64_t end) {
    const std::vector<std::uint64_t>& ends = share.token_ends;
    std::size_t& next = share.tokens_seen;
    while (next < ends.size() && ends[next] <= begin)
        ++next;
    // The token at `next` ends behind `begin`; those that begin before `end` have text in it.
    while (next < ends.size() && (next == 0 || ends[next - 1] < end)) {
        ++reasoning_tokens_;
        ++next;
    }
}

// Gives the log probabilities of the first `count` tokens, as far as nobody has them, to the piece
// of this chunk that is open. Without one they wait.
void OutputParser::give_logprobs(Share& share, std::size_t count) {
    if (share.logprobs_used >= count) return;
    Pending* piece = open_piece(share);
    if (piece == nullptr) return;
    if (piece->event.kind == OutputEvent::Kind::arguments) {
        share.logprobs_used = count;  // of a call there are none
    }
    for (; share.logprobs_used < count; ++share.logprobs_used)
        piece->event.logprobs.push_back(std::move(share.logprobs[share.logprobs_used]));
}

// The tokens that a match swallows lose their log probabilities; those of its chunk before the one
// that completes it go to the text before the match, if there is any. Line feeds that are dropped
// leave theirs to the text behind them, and a stop sequence to the text before it, with the rest of
// the chunk.
void OutputParser::settle_logprobs(Share& share, Action action, std::uint64_t match_end) {
    if (share.logprobs.empty() || action == Action::skip_newline) return;
    if (action == Action::stop) return give_logprobs(share, share.logprobs.size());
    std::size_t count = share.logprobs_used;
    while (count < share.token_ends.size() && share.token_ends[count] < match_end)
        ++count;
    give_logprobs(share, count);
    while (count < share.token_ends.size() && share.token_ends[count] == match_end)
        ++count;
    share.logprobs_used = count;
}

void OutputParser::match(const Branch& branch, std::size_t length) {
    decide_unmatched(received_ - length);
    settle_logprobs(share_of(received_), branch.action, received_);
    if (!pending_.empty()) pending_.back().closed = true;
    drop_decided_shares();  // leaves the chunk that holds the first byte of the match in front
    Pending event{.chunk_end = shares_.front().end, .match_end = received_};
    decided_ = received_;
    ++segment_;
    enter(branch.next);
    std::optional<OutputEvent> shown = event_of(branch);
    if (!shown) return;
    event.event = *std::move(shown);
    pending_.push_back(std::move(event));
}

// What a match shows, if anything.
std::optional<OutputEvent> OutputParser::event_of(const Branch& branch) {
    const auto arguments = [](std::string text) {
        return OutputEvent{.kind = OutputEvent::Kind::arguments, .text = std::move(text)};
    };
    switch (branch.action) {
        case Action::skip:
        case Action::skip_newline:
            return {};
        case Action::stop:
            stop_sequence_ = branch.label;
            return {};
        case Action::content:
            return OutputEvent{.kind = OutputEvent::Kind::content, .text = branch.label};
        case Action::arguments:
            return arguments(branch.label);
        case Action::tool_name:
            called_tool_ = true;
            return OutputEvent{.kind = OutputEvent::Kind::tool_call,
                               .text = std::exchange(tool_name_, {})};
        case Action::begin_parameter:
            parameter_ = branch.label;
            return {};
        case Action::text_parameter:
        case Action::json_parameter:
            append_json_string(parameter_, parameter_name(collected_));
            parameter_ += ": ";
            collected_.clear();
            if (branch.action == Action::json_parameter) return {};
            return arguments(std::exchange(parameter_, {}) + "\"");
        case Action::json_value:
            return arguments(collected_value());
        case Action::untyped_parameter: {
            std::string text = std::exchange(parameter_, {});
            const std::string_view name = parameter_name(collected_);
            append_json_string(text, name);
            text += ": ";
            append_json_string(text, behind(std::string_view(collected_).substr(name.size()), '>'));
            collected_.clear();
            return arguments(std::move(text));
        }
    }
    return {};
}

// A parameter whose value was collected: as it is when it is JSON, else as a text.
std::string OutputParser::collected_value() {
    std::string text = std::exchange(parameter_, {});
    const std::string value = std::exchange(collected_, {});
    if (parse_json(value).ok()) return text + value;
    append_json_string(text, value);
    return text;
}

// What the arguments of an unfinished call lack to be JSON.
std::string OutputParser::missing_end() {
    switch (stage_) {
        case Stage::arguments_first:
            return "{}";
        case Stage::arguments:
            return "}";
        case Stage::parameter_name:  // of which nothing was shown
            return parameter_ == "{" ? "{}" : "}";
        case Stage::string_value:
            return "\"}";
        case Stage::raw_value:
            return collected_value() + "}";
        default:
            return {};
    }
}

void OutputParser::release(bool all, Events& events) {
    while (!pending_.empty()) {
        Pending& next = pending_.front();
        const bool is_match = next.match_end > 0;
        const bool leaves = all || next.chunk_end <= decided_ ||
                            (is_match ? next.match_end < decided_ : next.closed);
        if (!leaves) return;
        emit(std::move(next.event), events);
        pending_.pop_front();
    }
}

void OutputParser::emit(OutputEvent event, Events& events) {
    event.completion_tokens = completion_tokens_;
    if (rules_->thinking() && reads_tokens_) event.reasoning_tokens = reasoning_tokens_;
    events.push_back(std::move(event));
}

void OutputParser::finish(OutputFinish reason, std::string stop_sequence, Events& events) {
    release(true, events);
    emit({.kind = OutputEvent::Kind::finish, .text = std::move(stop_sequence), .finish = reason},
         events);
    finished_ = true;
    text_.clear();
    shares_.clear();
}

}  // namespace fathom
