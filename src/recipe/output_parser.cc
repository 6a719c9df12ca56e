#include "recipe/output_parser.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/json.h"

namespace fathom {

namespace {

OutputPattern text_pattern(std::string text) {
    return {.kind = OutputPattern::Kind::text, .text = std::move(text)};
}

OutputPattern after_newlines(std::string text) {
    return {.kind = OutputPattern::Kind::text_after_newlines, .text = std::move(text)};
}

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
    : tokenizer_(std::move(tokenizer)), valid_arguments_(options.valid_arguments) {
    if (tokenizer_ != nullptr) detokenizer_.emplace(tokenizer_);
    const bool stops_wait = options.stops_after_tokens > 0;
    if (stops_wait) late_stops_ = options;
    add_content_stages(options, !stops_wait);
    if (options.parse_tool_calls || options.starts_in_tool_calls) add_tool_stages(options);
    add_stage(Stage::done, Unmatched::skip, {});
    thinking_ = options.thinking_initial_stage != ThinkingStage::none;
    switch (options.thinking_initial_stage) {
        case ThinkingStage::none:
            stage_ = Stage::common_lead;
            break;
        case ThinkingStage::reasoning_start:
            stage_ = Stage::reasoning_lead;
            break;
        case ThinkingStage::reasoning_continuation:
            stage_ = Stage::reasoning;
            break;
        case ThinkingStage::content_continuation:
            stage_ = Stage::common;
            break;
    }
    if (options.starts_in_tool_calls) stage_ = Stage::tool_calls;
}

void OutputParser::add_stage(Stage stage, Unmatched unmatched, std::vector<Branch> branches) {
    std::vector<OutputPattern> patterns;
    for (const Branch& branch : branches)
        patterns.push_back(branch.pattern);
    StageRules& rules = rules_[static_cast<std::size_t>(stage)];
    rules.unmatched = unmatched;
    rules.branches = std::move(branches);
    rules.matcher = OutputMatcher(patterns);
}

void OutputParser::add_content_stages(const ParsingOptions& options, bool with_stops) {
    std::vector<Branch> stops;
    for (const std::string& stop : options.stop_sequences) {
        if (with_stops && !stop.empty())
            stops.push_back({text_pattern(stop), Action::stop, Stage::done, stop});
    }
    std::vector<Branch> tools;
    if (options.parse_tool_calls) {
        tools.push_back({after_newlines("<" + options.dsml), Action::skip, Stage::tool_calls});
    }
    const auto leading = [](Stage again) {
        return Branch{{.kind = OutputPattern::Kind::leading_newline}, Action::skip_newline, again};
    };
    const Branch stray_end{text_pattern(options.thinking_end), Action::skip, Stage::common};
    const Branch thinking_end{after_newlines(options.thinking_end), Action::skip,
                              Stage::common_lead};

    std::vector<Branch> common = stops;
    if (options.parse_json_output) {
        common = {{text_pattern("```json\n"), Action::skip, Stage::json},
                  {text_pattern("```\n"), Action::skip, Stage::json},
                  {text_pattern("{"), Action::content, Stage::json, "{"},
                  {text_pattern("["), Action::content, Stage::json, "["}};
    }
    common.insert(common.end(), tools.begin(), tools.end());
    std::vector<Branch> common_lead = common;
    common_lead.push_back(leading(Stage::common_lead));
    common.push_back(stray_end);
    common_lead.push_back(stray_end);
    const Unmatched shown = options.parse_json_output ? Unmatched::space : Unmatched::content;
    add_stage(Stage::common, shown, std::move(common));
    add_stage(Stage::common_lead, shown, std::move(common_lead));

    std::vector<Branch> json = std::move(stops);
    json.push_back({text_pattern("\n```"), Action::skip, Stage::json_end});
    add_stage(Stage::json, Unmatched::content, std::move(json));
    add_stage(Stage::json_end, Unmatched::space, tools);

    std::vector<Branch> reasoning_lead = tools;
    reasoning_lead.push_back(leading(Stage::reasoning_lead));
    reasoning_lead.push_back(thinking_end);
    std::vector<Branch> reasoning = std::move(tools);
    reasoning.push_back(thinking_end);
    add_stage(Stage::reasoning_lead, Unmatched::reasoning, std::move(reasoning_lead));
    add_stage(Stage::reasoning, Unmatched::reasoning, std::move(reasoning));
}

void OutputParser::add_tool_stages(const ParsingOptions& options) {
    const std::string close = "</" + options.dsml;
    const auto skip = [](std::string pattern, Stage next) {
        return Branch{text_pattern(std::move(pattern)), Action::skip, next};
    };
    add_stage(Stage::tool_calls, Unmatched::skip,
              {skip("invoke name=\"", Stage::tool_name), skip(close + "tool_calls>", Stage::done),
               skip(close + " calls>", Stage::done)});
    add_stage(Stage::tool_name, Unmatched::name,
              {{text_pattern("\""), Action::tool_name, Stage::arguments_first}});
    if (options.valid_arguments) {
        add_valid_parameter_stages(close);
    } else {
        add_parameter_stages(close);
    }
}

void OutputParser::add_parameter_stages(const std::string& close) {
    const auto label = [](std::string pattern, std::string text, Stage next) {
        return Branch{text_pattern(std::move(pattern)), Action::arguments, next, std::move(text)};
    };
    const auto skip = [](std::string pattern, Stage next) {
        return Branch{text_pattern(std::move(pattern)), Action::skip, next};
    };
    add_stage(Stage::arguments_first, Unmatched::skip,
              {label("parameter name=", "{", Stage::parameter_name),
               label(close, "{}", Stage::tool_calls)});
    add_stage(Stage::arguments, Unmatched::skip,
              {label("parameter name=", ", ", Stage::parameter_name),
               label(close, "}", Stage::tool_calls)});
    add_stage(Stage::parameter_name, Unmatched::raw, {label(" ", ": ", Stage::parameter_type)});
    add_stage(Stage::parameter_type, Unmatched::skip,
              {label("true\">", "\"", Stage::string_value), skip("false\">", Stage::raw_value)});
    add_stage(Stage::string_value, Unmatched::escaped, {label(close, "\"", Stage::arguments)});
    add_stage(Stage::raw_value, Unmatched::raw, {skip(close, Stage::arguments)});
}

// The same, but a parameter begins to be shown only when its kind is known.
void OutputParser::add_valid_parameter_stages(const std::string& close) {
    const auto branch = [](std::string pattern, Action action, Stage next, std::string text = "") {
        return Branch{text_pattern(std::move(pattern)), action, next, std::move(text)};
    };
    const std::string begin = "parameter name=";
    add_stage(Stage::arguments_first, Unmatched::skip,
              {branch(begin, Action::begin_parameter, Stage::parameter_name, "{"),
               branch(close, Action::arguments, Stage::tool_calls, "{}")});
    add_stage(Stage::arguments, Unmatched::skip,
              {branch(begin, Action::begin_parameter, Stage::parameter_name, ", "),
               branch(close, Action::arguments, Stage::tool_calls, "}")});
    add_stage(Stage::parameter_name, Unmatched::collect,
              {branch("true\">", Action::text_parameter, Stage::string_value),
               branch("false\">", Action::json_parameter, Stage::raw_value),
               branch(close, Action::untyped_parameter, Stage::arguments)});
    add_stage(Stage::string_value, Unmatched::escaped,
              {branch(close, Action::arguments, Stage::arguments, "\"")});
    add_stage(Stage::raw_value, Unmatched::collect,
              {branch(close, Action::json_value, Stage::arguments)});
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
        held_token_bytes_.push_back(tokenizer_->bytes(id).size());
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
    const std::uint64_t begin = received_;
    const std::uint64_t end = begin + piece.text.size();
    std::uint64_t at = begin;
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
    decide_unmatched(received_);
    if (!shares_.empty()) give_logprobs(shares_.back(), shares_.back().logprobs.size());
    if (reason == BackendFinish::stop && valid_arguments_) {
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
std::string OutputParser::begin_stops() {
    const bool in_content = stage_ <= Stage::reasoning;
    const std::size_t held = in_content ? rules().matcher.partial() : 0;
    if (in_content && !rules().matcher.is_fresh()) {
        if (stage_ == Stage::common_lead) stage_ = Stage::common;
        if (stage_ == Stage::reasoning_lead) stage_ = Stage::reasoning;
    }
    add_content_stages(*late_stops_, true);
    late_stops_.reset();
    received_ -= held;
    return text_.substr(text_.size() - held);
}

void OutputParser::read(std::string_view text, std::int64_t tokens, Share share, Events& events) {
    start({}, events);
    completion_tokens_ += tokens;
    if (text.empty()) return;
    share.end = received_ + text.size();
    std::string again;
    if (late_stops_ && completion_tokens_ > late_stops_->stops_after_tokens) {
        again = begin_stops().append(text);
    }
    text_ += text;
    shares_.push_back(std::move(share));
    if (!again.empty()) text = again;
    while (!text.empty() && stop_sequence_.empty()) {
        StageRules& current = rules();
        const OutputMatcher::Scan scan = current.matcher.feed(text);
        text.remove_prefix(scan.fed);
        received_ += scan.fed;
        if (scan.pattern >= 0) {
            match(current.branches[static_cast<std::size_t>(scan.pattern)], scan.length);
        } else {
            decide_unmatched(received_ - current.matcher.partial());
        }
    }
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
    settle_logprobs(shares_.back(), branch.action, received_);
    if (!pending_.empty()) pending_.back().closed = true;
    drop_decided_shares();  // leaves the chunk that holds the first byte of the match in front
    Pending event{.chunk_end = shares_.front().end, .match_end = received_};
    decided_ = received_;
    ++segment_;
    stage_ = branch.next;
    rules().matcher.reset();
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
    if (thinking_ && reads_tokens_) event.reasoning_tokens = reasoning_tokens_;
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
