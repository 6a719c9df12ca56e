#include "recipe/vectors/transcript.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <utility>

#include <fmt/core.h>

#include "base/input_file.h"
#include "base/utf8.h"
#include "recipe/synthetic_tokenizer.h"
#include "recipe/vectors/difference.h"
#include "recipe/vectors/replay.h"
#include "recipe/vectors/row_checks.h"
#include "recipe/vectors/rows.h"

namespace fathom {
namespace {

// Bytes and tokens of feeds are ids of a vocabulary that needs no file.
Result<std::shared_ptr<const Tokenizer>> feed_tokenizer() {
    static const Result<std::shared_ptr<const Tokenizer>> kTokenizer =
        []() -> Result<std::shared_ptr<const Tokenizer>> {
        FATHOM_ASSIGN(const Json json, make_synthetic_tokenizer(kSyntheticVocabMin));
        return Tokenizer::parse(json.dump(), "the made tokenizer");
    }();
    return kTokenizer;
}

// ------------------------------------------------------------------------------------- the request

// What nearly all requests have alike need not be said.
Json whole_request(const Json& row, Protocol protocol) {
    Json request = row_member(row, "request");
    if (request.is_null()) request = Json::object();
    if (!request.is_object()) return request;
    if (!row_has(request, "model")) request.set("model", "DeepSeek-V4.1-Flash");
    if (!row_has(request, "stream")) request.set("stream", true);
    if (protocol == Protocol::responses) {
        if (!row_has(request, "input")) request.set("input", "x");
    } else if (!row_has(request, "messages")) {
        request.set("messages", Json::array({Json::object({{"role", "user"}, {"content", "x"}})}));
    }
    return request;
}

// ---------------------------------------------------------------------------------------- the feed

std::vector<std::string> characters(std::string_view text) {
    std::vector<std::string> result;
    while (!text.empty()) {
        const auto size = static_cast<std::size_t>(std::abs(utf8_sequence(text)));
        result.emplace_back(text.substr(0, size));
        text.remove_prefix(size);
    }
    return result;
}

Result<std::vector<TokenId>> ids_of_bytes(const std::string& hex, const Tokenizer& tokenizer) {
    std::vector<TokenId> ids;
    for (std::size_t at = 0; at < hex.size(); at += 3) {
        unsigned byte = 0;
        const char* end = hex.data() + std::min(at + 2, hex.size());
        const auto [stop, fault] = std::from_chars(hex.data() + at, end, byte, 16);
        const bool apart = at + 2 >= hex.size() || hex[at + 2] == ' ';
        if (fault != std::errc() || stop != hex.data() + at + 2 || !apart)
            return invalid_argument("feed: bytes \"{}\": expected two hex digits a byte, apart",
                                    hex);
        const std::string one(1, static_cast<char>(byte));
        for (const TokenId id : tokenizer.encode(one, false))
            ids.push_back(id);
    }
    return ids;
}

class Feed {
  public:
    Feed(Protocol protocol, const LoweredRequest& request,
         std::shared_ptr<const Tokenizer> tokenizer)
        : tokenizer_(std::move(tokenizer)), replay_(protocol, request, tokenizer_) {}

    Status run(const Json& row) {
        const Json& ready = row_member(row, "ready");
        if (!row_has(row, "ready")) {
            replay_.push(ReadyChunk{.prompt_tokens = 10, .prompt_cache_hit_tokens = 4});
        } else if (ready.is_object()) {
            replay_.push(
                ReadyChunk{.prompt_tokens = row_integer(ready, "prompt_tokens"),
                           .prompt_cache_hit_tokens = row_integer(ready, "cached_tokens")});
        }
        for (const Json& item : row_items(row, "feed"))
            FATHOM_RETURN_IF_ERROR(push(item));
        if (!ended_) replay_.push(BackendFinish::stop);
        return {};
    }
    ReplayedAnswer take() { return replay_.take(); }

  private:
    Status push(const Json& item) {
        if (item.is_string()) {
            replay_.push(TextChunk{.content = item.as_string(), .content_tokens = 1});
        } else if (row_has(item, "text")) {
            const std::string text = row_text(item, "text");
            replay_.push(
                TextChunk{.content = text, .content_tokens = row_integer(item, "tokens", 1)});
        } else if (row_has(item, "chars")) {
            for (const std::string& one : characters(row_text(item, "chars")))
                replay_.push(TextChunk{.content = one, .content_tokens = 1});
        } else if (row_has(item, "bytes") || row_has(item, "tokens")) {
            return push_ids(item);
        } else if (row_has(item, "finish")) {
            replay_.push(backend_finish(row_text(item, "finish")));
            ended_ = true;
        } else if (row_has(item, "end")) {
            replay_.end();
            ended_ = true;
        } else if (row_has(item, "fail")) {
            replay_.fail({.type = "internal_error", .message = row_text(item, "fail")});
            ended_ = true;
        } else {
            return invalid_argument("feed: {} is no known item", item.dump());
        }
        return {};
    }

    Status push_ids(const Json& item) {
        std::vector<TokenId> ids;
        if (row_has(item, "bytes")) {
            FATHOM_ASSIGN(ids, ids_of_bytes(row_text(item, "bytes"), *tokenizer_));
        }
        for (const Json& text : row_items(item, "tokens")) {
            if (!text.is_string()) return invalid_argument("feed: tokens are texts");
            const std::vector<TokenId> one = tokenizer_->encode(text.as_string(), true);
            ids.insert(ids.end(), one.begin(), one.end());
        }
        std::vector<TokenLogprob> logprobs;
        for (const Json& value : row_items(item, "logprobs")) {
            if (!value.is_number() || logprobs.size() == ids.size())
                return invalid_argument("feed: logprobs are numbers, one for each id");
            const TokenId id = ids[logprobs.size()];
            logprobs.push_back({.id = id, .logprob = value.as_double()});
            logprobs.back().top.emplace_back(id, value.as_double());
        }
        replay_.push(TokenChunk{.ids = ids, .logprobs = logprobs});
        return {};
    }

    std::shared_ptr<const Tokenizer> tokenizer_;
    Replay replay_;
    bool ended_ = false;
};

// ------------------------------------------------------------------------------------- the outcome

// The members of `from` that are there and not null.
void copy_members(const Json& from, std::initializer_list<std::string_view> keys, Json& to) {
    for (const std::string_view key : keys)
        if (const Json& value = row_member(from, key); !value.is_null()) to.set(key, value);
}

Json chat_essence(const Json& payload) {
    if (row_has(payload, "error")) return payload;
    const Json::Array& choices = row_items(payload, "choices");
    const Json choice = choices.empty() ? Json::object() : choices[0];
    Json essence = row_has(choice, "delta") ? row_member(choice, "delta") : Json::object();
    copy_members(choice, {"message", "finish_reason", "logprobs"}, essence);
    if (row_has(payload, "usage")) essence.set("usage", row_member(payload, "usage"));
    return essence;
}

Json messages_essence(const Json& payload) {
    if (!row_has(payload, "message")) return payload;
    Json essence = Json::object({{"type", row_member(payload, "type")}});
    copy_members(row_member(payload, "message"), {"usage"}, essence);
    return essence;
}

Json response_essence(const Json& response) {
    Json essence = Json::object();
    copy_members(response, {"status", "incomplete_details", "error", "output", "usage"}, essence);
    return essence;
}

Json responses_essence(const Json& payload) {
    Json essence = Json::object();
    for (const auto& [key, value] : payload.members()) {
        if (key == "sequence_number") continue;
        essence.set(key, key == "response" ? response_essence(value) : value);
    }
    return essence;
}

Json essence_of(Protocol protocol, const Json& payload) {
    if (protocol == Protocol::chat) return chat_essence(payload);
    return protocol == Protocol::messages ? messages_essence(payload) : responses_essence(payload);
}

Json answer_essence(Protocol protocol, const Json& answer) {
    if (protocol == Protocol::chat) return chat_essence(answer);
    if (protocol == Protocol::responses) return response_essence(answer);
    Json essence = Json::object();
    copy_members(answer, {"content", "stop_reason", "stop_sequence", "usage"}, essence);
    return essence;
}

Result<Json> events_of(Protocol protocol, const ReplayedAnswer& answer) {
    Json events = Json::array();
    std::int64_t number = 0;
    for (std::size_t push = 0; push < answer.pushes.size(); ++push) {
        for (const StreamPayload& payload : answer.pushes[push]) {
            FATHOM_ASSIGN(const Json json, parse_json(payload.json));
            if (protocol != Protocol::chat && row_text(json, "type") != payload.name)
                return invalid_argument("event {}: its name is {}", payload.json, payload.name);
            if (protocol == Protocol::responses && row_integer(json, "sequence_number") != number++)
                return invalid_argument("event {}: expected number {}", payload.json, number - 1);
            events.push_back(
                Json::array({static_cast<std::int64_t>(push), essence_of(protocol, json)}));
        }
    }
    return events;
}

// -------------------------------------------------------------------------- independence of cuts

// The text of a feed that is text alone; nothing where it holds ids or breaks off.
std::optional<std::string> text_of_feed(const Json& row) {
    std::string text;
    for (const Json& item : row_items(row, "feed")) {
        if (row_has(item, "finish") || row_has(item, "end")) continue;
        if (!item.is_string() && !row_has(item, "text") && !row_has(item, "chars")) return {};
        text += item.is_string() ? item.as_string() : row_text(item, "text");
        text += row_text(item, "chars");
    }
    return text;
}

Json without_usage(const std::string& answer) {
    Json json = parse_json(answer).value_or(Json());
    if (json.is_object()) json.set("usage", Json());
    return json;
}

Status check_cuts(const Json& row, Protocol protocol, const LoweredRequest& request,
                  const std::string& answer) {
    const std::optional<std::string> text = text_of_feed(row);
    if (!text || request.parsing.parse_json_output || text->size() > 10'000) return {};
    Json end = Json::object({{"finish", "stop"}});
    for (const Json& item : row_items(row, "feed"))
        if (row_has(item, "finish")) end = item;
    for (const char* cut : {"text", "chars"}) {
        Json other = row;
        other.set("feed", Json::array({Json::object({{cut, *text}}), end}));
        Feed feed(protocol, request, nullptr);
        FATHOM_RETURN_IF_ERROR(feed.run(other));
        const std::string difference =
            json_difference("", without_usage(answer), without_usage(feed.take().response));
        if (!difference.empty())
            return invalid_argument("fed as one \"{}\" the answer is another: {}", cut, difference);
    }
    return {};
}

}  // namespace

Result<Json> transcript_outcome(const Json& row) {
    FATHOM_ASSIGN(const Protocol protocol, parse_protocol(row_text(row, "protocol")));
    LowerOptions options = row_lower_options(row);
    if (!row_has(row_member(row, "options"), "profile")) options.profile = Profile::open;
    const auto request = lower_request(protocol, whole_request(row, protocol).dump(), options);
    Json outcome = row;
    if (!request.ok()) {
        outcome.set("refused", request.status().message());
        return outcome;
    }
    FATHOM_ASSIGN(std::shared_ptr<const Tokenizer> tokenizer, feed_tokenizer());
    Feed feed(protocol, *request, std::move(tokenizer));
    FATHOM_RETURN_IF_ERROR(feed.run(row));
    const ReplayedAnswer answer = feed.take();
    FATHOM_RETURN_IF_ERROR(answer.fault);
    FATHOM_ASSIGN(Json events, events_of(protocol, answer));
    outcome.set("events", std::move(events));
    if (answer.failed) return outcome;
    FATHOM_ASSIGN(const Json whole, parse_json(answer.response));
    outcome.set("answer", answer_essence(protocol, whole));
    FATHOM_RETURN_IF_ERROR(check_cuts(row, protocol, *request, answer.response));
    return outcome;
}

RowOutcome check_transcript(const Json& row) {
    const auto ours = transcript_outcome(row);
    if (!ours.ok()) return RowOutcome::of(ours.status().message());
    for (const std::string_view key : {"refused", "events", "answer"}) {
        const Json& golden = row_member(row, key);
        const Json& own = row_member(*ours, key);
        if (golden.is_array() && own.is_array()) {
            std::vector<std::string> expected, got;
            for (const Json& event : golden.items())
                expected.push_back(event.dump());
            for (const Json& event : own.items())
                got.push_back(event.dump());
            std::string difference = lines_difference("event", expected, got);
            if (!difference.empty()) return RowOutcome::of(std::move(difference));
        } else if (golden.dump() != own.dump()) {
            return RowOutcome::of(text_difference(key, golden.dump(), own.dump()));
        }
    }
    return {};
}

std::string transcript_text(const Json& row) {
    std::string text = fmt::format("{} ({}): {}\n", row_text(row, "id"), row_text(row, "protocol"),
                                   row_text(row, "shows"));
    text += fmt::format("  request {}\n", row_member(row, "request").dump());
    for (const Json& item : row_items(row, "feed"))
        text += fmt::format("  < {}\n", item.dump());
    if (row_has(row, "refused")) text += "  > refused: " + row_text(row, "refused") + "\n";
    for (const Json& event : row_items(row, "events"))
        text += fmt::format("  > {}\n", event.dump());
    if (row_has(row, "answer")) text += "  = " + row_member(row, "answer").dump() + "\n";
    return text;
}

Result<TranscriptUpdate> update_transcripts(const std::string& path) {
    FATHOM_ASSIGN(std::string text, read_input_file(path));
    std::istringstream file(std::move(text));
    TranscriptUpdate update;
    std::int64_t number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        const auto row = parse_json(line);
        if (row.ok() && row_has(*row, "feed")) {
            auto outcome = transcript_outcome(*row);
            if (!outcome.ok())
                return outcome.status().with_context(fmt::format("{}:{}", path, number));
            if (outcome->dump() != row->dump()) {
                line = outcome->dump();
                update.changed.push_back(transcript_text(*outcome));
            }
        }
        update.text += line + "\n";
    }
    return update;
}

}  // namespace fathom
