// The output parser and the event builders of the three protocols against the recorded streams of
// the reference (golden/recipe: parser.jsonl, streams.jsonl, token_streams.jsonl; the README there
// explains the fields). Every row is fed as recorded, and what each chunk releases is compared. For
// each row that differs the first difference is shown.
#include <gtest/gtest.h>

#include <map>
#include <type_traits>

#include <fmt/core.h>

#include "base/sha256.h"
#include "base/utf8.h"
#include "json_lines.h"
#include "recipe/output_parser.h"
#include "recipe/protocols/chat_events.h"
#include "recipe/protocols/messages_events.h"
#include "recipe/protocols/responses_events.h"
#include "support.h"

namespace fathom {
namespace {

using testing::flag_of;
using testing::read_json_lines;
using testing::shared_path;
using testing::text_of;
using testing::token_ids;

// The pieces of a text, lengths in code points.
std::vector<std::string_view> pieces(std::string_view text, const Json& lengths) {
    std::vector<std::string_view> result;
    std::size_t at = 0;
    for (const Json& length : lengths.items()) {
        std::size_t end = at;
        for (std::int64_t i = 0; i < length.as_int64(); ++i)
            end += static_cast<std::size_t>(std::abs(utf8_sequence(text.substr(end))));
        result.push_back(text.substr(at, end - at));
        at = end;
    }
    EXPECT_EQ(at, text.size());
    return result;
}

ThinkingStage thinking_stage(std::string_view name) {
    if (name == "reasoning_start") return ThinkingStage::reasoning_start;
    if (name == "reasoning_continuation") return ThinkingStage::reasoning_continuation;
    if (name == "content_continuation") return ThinkingStage::content_continuation;
    return ThinkingStage::none;
}

ParsingOptions parsing_options(const Json& row) {
    const Json& parsing = *row.find("parsing");
    ParsingOptions options{
        .parse_tool_calls = flag_of(parsing, "parse_tool_calls", true),
        .starts_in_tool_calls = flag_of(parsing, "starts_in_tool_calls"),
        .parse_json_output = flag_of(parsing, "parse_json_output"),
        .thinking_initial_stage = thinking_stage(text_of(parsing, "thinking_initial_stage"))};
    if (const Json* stops = parsing.find("stop_sequences")) {
        for (const Json& stop : stops->items())
            options.stop_sequences.push_back(stop.as_string());
    }
    if (const Json* special = row.find("special_tokens")) {
        options.thinking_end = text_of(*special, "thinking_end", options.thinking_end);
        options.dsml = text_of(*special, "dsml", options.dsml);
    }
    return options;
}

// An event as in the field `neutral`.
Json neutral(std::size_t push, const OutputEvent& event) {
    constexpr std::array kKinds{"s", "c", "r", "t", "a", "f"};
    constexpr std::array kReasons{"stop", "stop", "tool_calls", "length", "content_filter"};
    const bool last = event.kind == OutputEvent::Kind::finish;
    const std::string text = last ? kReasons[static_cast<std::size_t>(event.finish)] : event.text;
    return Json::Array{static_cast<std::int64_t>(push),
                       kKinds[static_cast<std::size_t>(event.kind)], text};
}

std::vector<std::string> lines_of(const Json::Array& items) {
    std::vector<std::string> lines;
    for (const Json& item : items)
        lines.push_back(item.is_string() ? item.as_string() : item.dump());
    return lines;
}

void expect_equal_lines(const std::vector<std::string>& golden,
                        const std::vector<std::string>& ours) {
    for (std::size_t i = 0; i < std::max(golden.size(), ours.size()); ++i) {
        const std::string expected = i < golden.size() ? golden[i] : "nothing";
        const std::string got = i < ours.size() ? ours[i] : "nothing";
        ASSERT_EQ(expected, got) << "at " << i << ", behind " << (i > 0 ? ours[i - 1] : "nothing");
    }
}

TEST(RecipeStreams, ParserOptionsAndOddMarkupGiveTheReferencesEvents) {
    FATHOM_NEED_SHARED("golden/recipe/parser.jsonl");
    int rows = 0;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/parser.jsonl"))) {
        ++rows;
        const ParsingOptions options = parsing_options(row);
        for (const Json& chunking : row.find("chunkings")->items()) {
            SCOPED_TRACE(text_of(row, "id") + " " + text_of(chunking, "name"));
            OutputParser parser(options);
            Json::Array ours;
            std::size_t push = 0;
            std::int64_t completion_tokens = 0;
            OutputParser::Events events;
            const auto drain = [&] {
                for (const OutputEvent& event : events) {
                    ours.push_back(neutral(push, event));
                    completion_tokens = event.completion_tokens;
                }
                events.clear();
                ++push;
            };
            const std::string text = text_of(row, "text");
            for (const std::string_view piece : pieces(text, *chunking.find("lengths"))) {
                parser.push(TextChunk{.content = piece, .content_tokens = 1}, events);
                drain();
            }
            parser.push(BackendFinish::stop, events);
            drain();
            expect_equal_lines(lines_of(chunking.find("neutral")->items()), lines_of(ours));
            EXPECT_EQ(chunking.find("usage")->find("completion_tokens")->as_int64(),
                      completion_tokens);
        }
    }
    EXPECT_EQ(rows, 62);
}

// What the lowering of a request body says about its answer.
struct Lowered {
    ParsingOptions parsing;
    bool include_usage = false;
    ResponsesAnswerOptions responses = {};
};

const Json& member(const Json& object, std::string_view key) {
    static const Json kNull;
    const Json* found = object.find(key);
    return found == nullptr ? kNull : *found;
}

bool has_items(const Json& array) {
    return array.is_array() && !array.items().empty();
}

void lower_stops(const Json& stops, ParsingOptions& parsing) {
    if (stops.is_string()) parsing.stop_sequences.push_back(stops.as_string());
    if (!stops.is_array()) return;
    for (const Json& stop : stops.items())
        parsing.stop_sequences.push_back(stop.as_string());
}

void lower_tools(const Json& body, bool any_tools, ParsingOptions& parsing) {
    const Json& choice = member(body, "tool_choice");
    const std::string name = choice.is_string() ? choice.as_string() : text_of(choice, "type");
    parsing.parse_tool_calls = any_tools && name != "none";
    parsing.starts_in_tool_calls =
        any_tools && (name == "required" || name == "function" || name == "tool");
}

bool thinking_enabled(const Json& body) {
    return text_of(member(body, "thinking"), "type", "enabled") != "disabled";
}

Lowered lower_chat(const Json& body) {
    Lowered lowered;
    lower_tools(body, has_items(member(body, "tools")), lowered.parsing);
    lower_stops(member(body, "stop"), lowered.parsing);
    lowered.parsing.parse_json_output =
        text_of(member(body, "response_format"), "type") == "json_object";
    // One row streams the answer of a request that asked for none.
    lowered.include_usage =
        flag_of(member(body, "stream_options"), "include_usage") || !flag_of(body, "stream");
    if (!thinking_enabled(body)) return lowered;
    ThinkingStage& stage = lowered.parsing.thinking_initial_stage;
    stage = ThinkingStage::reasoning_start;
    const Json& last = body.find("messages")->items().back();
    if (!flag_of(last, "prefix")) return lowered;
    if (!text_of(last, "content").empty()) {
        stage = ThinkingStage::content_continuation;
    } else if (!text_of(last, "reasoning_content").empty()) {
        stage = ThinkingStage::reasoning_continuation;
    }
    return lowered;
}

Lowered lower_messages(const Json& body) {
    Lowered lowered;
    lower_tools(body, has_items(member(body, "tools")), lowered.parsing);
    lower_stops(member(body, "stop_sequences"), lowered.parsing);
    if (thinking_enabled(body)) {
        lowered.parsing.thinking_initial_stage = ThinkingStage::reasoning_start;
    }
    return lowered;
}

// The settings that a response repeats, in the fixed form of recipe.md 4.5.
Json echoed_tool(const Json& tool) {
    const std::string type = text_of(tool, "type");
    Json echo = Json::object({{"type", type}});
    const auto copy = [&](std::initializer_list<const char*> keys) {
        for (const char* key : keys)
            echo.set(key, member(tool, key));
    };
    if (type == "function") copy({"name", "description", "parameters", "strict"});
    if (type == "custom") copy({"name"});
    if (type == "tool_search") copy({"execution", "description", "parameters"});
    if (type == "web_search") copy({"search_context_size", "user_location"});
    if (type != "namespace") return echo;
    copy({"name", "description"});
    Json members = Json::array();
    for (const Json& inner : tool.find("tools")->items())
        members.push_back(echoed_tool(inner));
    echo.set("tools", members);
    return echo;
}

Json echoed_format(const Json& format) {
    Json echo = Json::object({{"type", text_of(format, "type", "text")}});
    if (text_of(format, "type") == "json_schema") {
        for (const char* key : {"name", "schema", "description", "strict"})
            echo.set(key, member(format, key));
    }
    return echo;
}

std::optional<std::string> optional_text(const Json& value) {
    return value.is_string() ? std::optional(value.as_string()) : std::nullopt;
}

ResponsesEcho echo_of(const Json& body) {
    ResponsesEcho echo;
    echo.instructions = optional_text(member(body, "instructions"));
    if (const Json& limit = member(body, "max_output_tokens"); limit.is_integer()) {
        echo.max_output_tokens = limit.as_int64();
    }
    echo.reasoning_effort = member(member(body, "reasoning"), "effort");
    echo.reasoning_summary = optional_text(member(member(body, "reasoning"), "summary"));
    const auto number = [&](const char* key) {
        const Json& value = member(body, key);
        return value.is_number() ? static_cast<float>(value.as_double()) : 1.0F;
    };
    echo.temperature = number("temperature");
    echo.top_p = number("top_p");
    echo.text_format = echoed_format(member(member(body, "text"), "format"));
    echo.text_verbosity = optional_text(member(member(body, "text"), "verbosity"));
    if (const Json& choice = member(body, "tool_choice"); !choice.is_null()) {
        echo.tool_choice = choice;
    }
    if (const Json& tools = member(body, "tools"); tools.is_array()) {
        for (const Json& tool : tools.items()) {
            if (text_of(tool, "type") != "file_search") echo.tools.push_back(echoed_tool(tool));
        }
    }
    if (const Json& top = member(body, "top_logprobs"); top.is_integer()) {
        echo.top_logprobs = top.as_int64();
    }
    echo.user = optional_text(member(body, "user"));
    return echo;
}

Lowered lower_responses(const Json& body) {
    Lowered lowered;
    lowered.responses.echo = echo_of(body);
    bool any_tools = false;
    const Json none = Json::array();
    const Json& tools = member(body, "tools");
    for (const Json& tool : (tools.is_array() ? tools : none).items()) {
        const std::string type = text_of(tool, "type");
        const std::string name = text_of(tool, "name");
        any_tools |= type == "function" || type == "custom" || type == "namespace";
        if (type == "custom") lowered.responses.custom_tools.push_back(name);
        if (type == "tool_search") any_tools = lowered.responses.tool_search = true;
        if (type != "namespace") continue;
        for (const Json& inner : tool.find("tools")->items()) {
            const std::string local = text_of(inner, "name");
            lowered.responses.namespace_tools[name + "::" + local] = {name, local};
        }
    }
    lower_tools(body, any_tools, lowered.parsing);
    lowered.parsing.parse_json_output =
        text_of(member(member(body, "text"), "format"), "type") == "json_object";
    if (text_of(member(body, "reasoning"), "effort") != "none") {
        lowered.parsing.thinking_initial_stage = ThinkingStage::reasoning_start;
    }
    return lowered;
}

Lowered lower(std::string_view protocol, const Json& body) {
    if (protocol == "chat") return lower_chat(body);
    if (protocol == "messages") return lower_messages(body);
    return lower_responses(body);
}

// Everything that one feed gives. Random and timed parts are as in the recorded data.
struct Answer {
    std::vector<std::string> payloads;
    Json::Array per_push;
    Json::Array neutral;
    std::string response;
};

class Feeder {
  public:
    Feeder(std::string_view protocol, const Lowered& lowered,
           std::shared_ptr<const Tokenizer> tokenizer = nullptr)
        : parser_(lowered.parsing, tokenizer) {
        for (const bool stream : {true, false})
            builders_[stream ? 0 : 1] = make_builder(protocol, lowered, stream, tokenizer);
    }

    template <typename Chunk>
    void push(const Chunk& chunk) {
        if constexpr (std::is_same_v<Chunk, TokenChunk>) {
            const Status status = parser_.push(chunk, events_);
            EXPECT_TRUE(status.ok()) << status.message();
        } else {
            parser_.push(chunk, events_);
        }
        drain();
    }
    void end() {
        parser_.end(events_);
        drain();
    }
    Answer take() {
        answer_.response = builders_[1]->answer();
        return std::move(answer_);
    }

  private:
    static std::unique_ptr<AnswerBuilder> make_builder(std::string_view protocol,
                                                       const Lowered& lowered, bool stream,
                                                       std::shared_ptr<const Tokenizer> tokenizer) {
        AnswerSettings settings{
            .id = "RID",
            .model = "m",
            .stream = stream,
            .thinking = lowered.parsing.thinking_initial_stage,
            .call_ids = [](std::int64_t i) { return fmt::format("call_{:02}_RANDOM", i); },
            .tokenizer = std::move(tokenizer)};
        if (protocol == "chat") {
            return make_chat_answer(std::move(settings), {.include_usage = lowered.include_usage});
        }
        if (protocol == "messages") return make_messages_answer(std::move(settings));
        return make_responses_answer(std::move(settings), lowered.responses);
    }

    void drain() {
        std::vector<StreamPayload> payloads;
        std::vector<StreamPayload> none;
        for (const OutputEvent& event : events_) {
            builders_[0]->add(event, payloads);
            builders_[1]->add(event, none);
            answer_.neutral.push_back(neutral(answer_.per_push.size(), event));
        }
        EXPECT_TRUE(none.empty());
        events_.clear();
        answer_.per_push.push_back(static_cast<std::int64_t>(payloads.size()));
        for (StreamPayload& payload : payloads) {
            if (!payload.name.empty()) {
                EXPECT_TRUE(
                    payload.json.starts_with(fmt::format("{{\"type\":\"{}\",", payload.name)) ||
                    payload.json == fmt::format("{{\"type\":\"{}\"}}", payload.name));
            }
            answer_.payloads.push_back(std::move(payload.json));
        }
    }

    OutputParser parser_;
    std::array<std::unique_ptr<AnswerBuilder>, 2> builders_;
    OutputParser::Events events_;
    Answer answer_;
};

BackendFinish backend_finish(std::string_view name) {
    if (name == "length") return BackendFinish::length;
    return name == "content_filter" ? BackendFinish::content_filter : BackendFinish::stop;
}

std::string sha256_of(std::string_view text) {
    Sha256 digest;
    digest.update(text);
    return hex_text(digest.finish());
}

void expect_recorded(const Json& golden, const Answer& ours) {
    if (const Json* events = golden.find("events")) {
        expect_equal_lines(lines_of(events->items()), ours.payloads);
    }
    // Pushes behind a stop sequence are not in the record.
    if (const Json* counts = golden.find("per_push")) {
        Json::Array expected = counts->items();
        expected.resize(std::max(expected.size(), ours.per_push.size()), 0);
        expect_equal_lines(lines_of(expected), lines_of(ours.per_push));
    }
    if (const Json* events = golden.find("neutral")) {
        expect_equal_lines(lines_of(events->items()), lines_of(ours.neutral));
    }
    if (const Json* count = golden.find("count")) {
        EXPECT_EQ(count->as_int64(), static_cast<std::int64_t>(ours.payloads.size()));
    }
    if (const Json* hash = golden.find("sha256")) {
        std::string lines;
        for (const std::string& payload : ours.payloads)
            lines += (lines.empty() ? "" : "\n") + payload;
        EXPECT_EQ(hash->as_string(), sha256_of(lines));
    }
}

Answer feed(const Json& row, const Json& chunking, std::string_view protocol,
            const Lowered& lowered) {
    Feeder feeder(protocol, lowered);
    if (const Json& ready = *row.find("ready"); !ready.is_null()) {
        feeder.push(ReadyChunk{
            .system_fingerprint = text_of(ready, "system_fingerprint"),
            .prompt_tokens = ready.find("prompt_tokens")->as_int64(),
            .prompt_cache_hit_tokens = ready.find("prompt_cache_hit_tokens")->as_int64()});
    }
    const std::string text = text_of(row, "text");
    for (const std::string_view piece : pieces(text, *chunking.find("lengths")))
        feeder.push(TextChunk{.content = piece, .content_tokens = 1});
    const Json& finish = *row.find("finish");
    if (!finish.is_null()) feeder.push(backend_finish(finish.as_string()));
    if (finish.is_null()) feeder.end();
    return feeder.take();
}

TEST(RecipeStreams, TextsGiveTheReferencesStreamsAndAnswers) {
    FATHOM_NEED_SHARED("golden/recipe/streams.jsonl");
    std::map<std::string, int> runs;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/streams.jsonl"))) {
        for (const auto& [protocol, body] : row.find("requests")->members()) {
            const Lowered lowered = lower(protocol, body);
            Json whole;  // the answer of the first chunking
            for (const Json& chunking : row.find("chunkings")->items()) {
                const Json* golden = chunking.find("protocols")->find(protocol);
                if (golden == nullptr) continue;
                ++runs[protocol];
                SCOPED_TRACE(text_of(row, "id") + " " + protocol + " " + text_of(chunking, "name"));
                const Answer ours = feed(row, chunking, protocol, lowered);
                expect_recorded(*golden, ours);
                if (const Json* response = golden->find("response")) {
                    EXPECT_EQ(response->dump(), ours.response);
                    if (whole.is_null()) whole = *response;
                } else {
                    whole.set("usage", *golden->find("response_usage"));
                    EXPECT_EQ(whole.dump(), ours.response);
                }
            }
        }
    }
    EXPECT_EQ(runs["chat"], 426);
    EXPECT_EQ(runs["messages"], 357);
    EXPECT_EQ(runs["responses"], 408);
}

// [log probability, [[id, log probability], …]] of one id.
TokenLogprob logprob_of(TokenId id, const Json& entry) {
    TokenLogprob result{.id = id, .logprob = entry.items()[0].as_double()};
    for (const Json& top : entry.items()[1].items()) {
        result.top.emplace_back(static_cast<TokenId>(top.items()[0].as_int64()),
                                top.items()[1].as_double());
    }
    return result;
}

Answer feed_tokens(const Json& row, std::string_view protocol, const Lowered& lowered,
                   const std::shared_ptr<const Tokenizer>& tokenizer) {
    Feeder feeder(protocol, lowered, tokenizer);
    feeder.push(ReadyChunk{.prompt_tokens = 10, .prompt_cache_hit_tokens = 4});
    const Json* logprobs = row.find("logprobs");
    const Json::Array& groups = row.find("groups")->items();
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const std::vector<TokenId> ids = token_ids(groups[g]);
        std::vector<TokenLogprob> entries;
        if (logprobs != nullptr) {
            for (std::size_t i = 0; i < ids.size(); ++i)
                entries.push_back(logprob_of(ids[i], logprobs->items()[g].items()[i]));
        }
        feeder.push(TokenChunk{.ids = ids, .logprobs = entries});
    }
    feeder.push(BackendFinish::stop);
    return feeder.take();
}

TEST(RecipeStreams, IdsGiveTheReferencesStreamsAndAnswers) {
    FATHOM_NEED_SHARED("golden/recipe/token_streams.jsonl");
    const auto tokenizer = Tokenizer::load(shared_path("golden/recipe/tokenizer.json"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    int runs = 0;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/token_streams.jsonl"))) {
        const Json* protocols = row.find("protocols");
        if (protocols == nullptr) continue;
        for (const auto& [protocol, golden] : protocols->members()) {
            ++runs;
            SCOPED_TRACE(text_of(row, "id") + " " + protocol);
            const Lowered lowered = lower(protocol, *golden.find("body"));
            const Answer ours = feed_tokens(row, protocol, lowered, *tokenizer);
            expect_recorded(golden, ours);
            if (const Json* response = golden.find("response")) {
                EXPECT_EQ(response->dump(), ours.response);
            }
        }
    }
    EXPECT_EQ(runs, 57);
}

TEST(RecipeStreams, FaultyTokenChunksGiveTheReferencesErrors) {
    FATHOM_NEED_SHARED("golden/recipe/token_streams.jsonl");
    const auto tokenizer = Tokenizer::load(shared_path("golden/recipe/tokenizer.json"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    int rows = 0;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/token_streams.jsonl"))) {
        const Json* error = row.find("error");
        if (error == nullptr) continue;
        ++rows;
        const std::string id = text_of(row, "id");
        SCOPED_TRACE(id);
        OutputParser parser({}, id.ends_with("no_tokenizer") ? nullptr : *tokenizer);
        OutputParser::Events events;
        if (flag_of(row, "finish_first")) parser.push(BackendFinish::stop, events);
        const std::vector<TokenId> ids{5, 6};
        const std::vector<TokenLogprob> logprobs{{.id = 5}};
        const Status status = parser.push(TokenChunk{.ids = ids, .logprobs = logprobs}, events);
        EXPECT_EQ(status.message(), text_of(row, "error"));
    }
    EXPECT_EQ(rows, 3);
}

}  // namespace
}  // namespace fathom
