#include <algorithm>

#include <fmt/core.h>

#include "base/sha256.h"
#include "recipe/vectors/difference.h"
#include "recipe/vectors/replay.h"
#include "recipe/vectors/row_checks.h"
#include "recipe/vectors/rows.h"

namespace fathom {
namespace {

std::vector<std::string> lines_of(const Json::Array& items) {
    std::vector<std::string> lines;
    for (const Json& item : items)
        lines.push_back(item.is_string() ? item.as_string() : item.dump());
    return lines;
}

// ------------------------------------------------------------------------------------ parser rows

std::string parser_difference(const Json& row, const Json& chunking) {
    OutputParser parser(row_parsing_options(row));
    OutputParser::Events events;
    Json::Array ours;
    std::size_t push = 0;
    std::int64_t completion_tokens = 0;
    const auto drain = [&] {
        for (const OutputEvent& event : events) {
            ours.push_back(neutral_event(push, event));
            completion_tokens = event.completion_tokens;
        }
        events.clear();
        ++push;
    };
    const std::string text = row_text(row, "text");
    for (const std::string_view piece : text_pieces(text, row_items(chunking, "lengths"))) {
        parser.push(TextChunk{.content = piece, .content_tokens = 1}, events);
        drain();
    }
    parser.push(BackendFinish::stop, events);
    drain();
    std::string difference =
        lines_difference("event", lines_of(row_items(chunking, "neutral")), lines_of(ours));
    if (!difference.empty()) return difference;
    return json_difference(".usage.completion_tokens",
                           row_member(row_member(chunking, "usage"), "completion_tokens"),
                           completion_tokens);
}

// ------------------------------------------------------------------------------------ stream rows

std::string sha256_of(const std::vector<std::string>& lines) {
    Sha256 digest;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (i > 0) digest.update(std::string_view("\n"));
        digest.update(lines[i]);
    }
    return hex_text(digest.finish());
}

// What of the stream is recorded: all of it, or its timing and a digest.
std::string stream_difference(const Json& golden, const ReplayedAnswer& ours) {
    const std::vector<std::string> payloads = ours.payloads();
    std::string difference;
    if (row_has(golden, "events"))
        difference = lines_difference("event", lines_of(row_items(golden, "events")), payloads);
    if (difference.empty() && row_has(golden, "per_push")) {
        // Pushes behind a stop sequence are not in the record.
        std::vector<std::string> counts = lines_of(row_items(golden, "per_push"));
        const std::vector<std::string> released = ours.per_push();
        counts.resize(std::max(counts.size(), released.size()), "0");
        difference = lines_difference("events of push", counts, released);
    }
    if (difference.empty() && row_has(golden, "neutral"))
        difference = lines_difference("event", lines_of(row_items(golden, "neutral")),
                                      lines_of(ours.neutral));
    if (difference.empty() && row_has(golden, "count"))
        difference = json_difference(".count", row_member(golden, "count"),
                                     static_cast<std::int64_t>(payloads.size()));
    if (difference.empty() && row_has(golden, "sha256"))
        difference = json_difference(".sha256", row_member(golden, "sha256"), sha256_of(payloads));
    return difference;
}

ReplayedAnswer fed_text(const Json& row, const Json& chunking, Protocol protocol,
                        const LoweredRequest& request) {
    Replay replay(protocol, request);
    if (const Json& ready = row_member(row, "ready"); !ready.is_null()) {
        replay.push(
            ReadyChunk{.system_fingerprint = row_text(ready, "system_fingerprint"),
                       .prompt_tokens = row_integer(ready, "prompt_tokens"),
                       .prompt_cache_hit_tokens = row_integer(ready, "prompt_cache_hit_tokens")});
    }
    const std::string text = row_text(row, "text");
    for (const std::string_view piece : text_pieces(text, row_items(chunking, "lengths")))
        replay.push(TextChunk{.content = piece, .content_tokens = 1});
    const Json& finish = row_member(row, "finish");
    if (finish.is_string()) {
        replay.push(backend_finish(finish.as_string()));
    } else {
        replay.end();
    }
    return replay.take();
}

// Of one protocol, in all chunkings.
std::string protocol_difference(const Json& row, const std::string& name, const Json& body) {
    const auto protocol = parse_protocol(name);
    if (!protocol.ok()) return protocol.status().message();
    const auto request = lower_request(*protocol, body.dump(), row_lower_options(row));
    if (!request.ok()) return "refused: " + request.status().message();
    Json whole;  // the answer of the first chunking
    for (const Json& chunking : row_items(row, "chunkings")) {
        const Json* golden = row_member(chunking, "protocols").find(name);
        if (golden == nullptr) continue;
        const ReplayedAnswer ours = fed_text(row, chunking, *protocol, *request);
        std::string difference = stream_difference(*golden, ours);
        if (row_has(*golden, "response")) {
            whole = row_member(*golden, "response");
        } else if (whole.is_object()) {
            whole.set("usage", row_member(*golden, "response_usage"));
        }
        if (difference.empty())
            difference = text_difference(
                "answer", whole.is_string() ? whole.as_string() : whole.dump(), ours.response);
        if (!difference.empty())
            return fmt::format("{}, chunking {}: {}", name, row_text(chunking, "name"), difference);
    }
    return "";
}

// ------------------------------------------------------------------------------------- token rows

// [log probability, [[id, log probability], …]] of one id.
TokenLogprob logprob_of(TokenId id, const Json& entry) {
    TokenLogprob result{.id = id};
    const auto number = [](const Json& pair, std::size_t i) {
        const bool there =
            pair.is_array() && i < pair.items().size() && pair.items()[i].is_number();
        return there ? pair.items()[i].as_double() : 0.0;
    };
    result.logprob = number(entry, 0);
    if (!entry.is_array() || entry.items().size() < 2 || !entry.items()[1].is_array())
        return result;
    for (const Json& top : entry.items()[1].items()) {
        const std::vector<TokenId> ids =
            row_ids(Json::Array{Json(static_cast<std::int64_t>(number(top, 0)))});
        result.top.emplace_back(ids[0], number(top, 1));
    }
    return result;
}

ReplayedAnswer fed_ids(const Json& row, Protocol protocol, const LoweredRequest& request,
                       const std::shared_ptr<const Tokenizer>& tokenizer) {
    Replay replay(protocol, request, tokenizer);
    replay.push(ReadyChunk{.prompt_tokens = 10, .prompt_cache_hit_tokens = 4});
    const Json::Array& groups = row_items(row, "groups");
    const Json::Array& logprobs = row_items(row, "logprobs");
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const std::vector<TokenId> ids = row_ids(groups[g]);
        std::vector<TokenLogprob> entries;
        for (std::size_t i = 0; g < logprobs.size() && i < ids.size(); ++i)
            if (logprobs[g].is_array() && i < logprobs[g].items().size())
                entries.push_back(logprob_of(ids[i], logprobs[g].items()[i]));
        replay.push(TokenChunk{.ids = ids, .logprobs = entries});
    }
    replay.push(BackendFinish::stop);
    return replay.take();
}

std::string token_difference(const Json& row, const std::string& name, const Json& golden,
                             const std::shared_ptr<const Tokenizer>& tokenizer) {
    const auto protocol = parse_protocol(name);
    if (!protocol.ok()) return protocol.status().message();
    const auto request = lower_request(*protocol, row_body(golden), row_lower_options(row));
    if (!request.ok()) return "refused: " + request.status().message();
    const ReplayedAnswer ours = fed_ids(row, *protocol, *request, tokenizer);
    std::string difference = ours.fault.ok() ? "" : ours.fault.message();
    if (difference.empty()) difference = stream_difference(golden, ours);
    if (difference.empty() && row_has(golden, "response"))
        difference =
            text_difference("answer", row_member(golden, "response").dump(), ours.response);
    return difference.empty() ? "" : fmt::format("{}: {}", name, difference);
}

}  // namespace

RowOutcome check_parser(const Json& row) {
    for (const Json& chunking : row_items(row, "chunkings")) {
        const std::string difference = parser_difference(row, chunking);
        if (!difference.empty())
            return RowOutcome::of(
                fmt::format("chunking {}: {}", row_text(chunking, "name"), difference));
    }
    return {};
}

RowOutcome check_stream(const Json& row) {
    for (const auto& [name, body] : row_members(row, "requests")) {
        std::string difference = protocol_difference(row, name, body);
        if (!difference.empty()) return RowOutcome::of(std::move(difference));
    }
    return {};
}

RowOutcome check_token_stream(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer) {
    for (const auto& [name, golden] : row_members(row, "protocols")) {
        std::string difference = token_difference(row, name, golden, tokenizer);
        if (!difference.empty()) return RowOutcome::of(std::move(difference));
    }
    return {};
}

RowOutcome check_token_fault(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer) {
    OutputParser parser(ParsingOptions{},
                        row_text(row, "id").ends_with("no_tokenizer") ? nullptr : tokenizer);
    OutputParser::Events events;
    if (row_flag(row, "finish_first")) parser.push(BackendFinish::stop, events);
    const std::vector<TokenId> ids{5, 6};
    const std::vector<TokenLogprob> logprobs{{.id = 5}};
    const Status status = parser.push(TokenChunk{.ids = ids, .logprobs = logprobs}, events);
    return RowOutcome::of(text_difference("error", row_text(row, "error"), status.message()));
}

}  // namespace fathom
