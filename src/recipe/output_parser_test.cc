// The output parser: what it gives must not depend on how the text was cut, and must leave as early
// as it can. What it gives for which text is compared with recorded results (recipe_vectors_test).
#include "recipe/output_parser.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/utf8.h"
#include "recipe/test_tokenizer.h"

namespace fathom {
namespace {

using Kind = OutputEvent::Kind;
using testing::tiny_tokenizer;

struct Parsed {
    std::string content;
    std::string reasoning;
    std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
    OutputFinish finish = OutputFinish::stop;
    std::string stop_sequence;
    friend bool operator==(const Parsed&, const Parsed&) = default;
};

Parsed joined(const OutputParser::Events& events) {
    Parsed parsed;
    for (const OutputEvent& event : events) {
        if (event.kind == Kind::content) parsed.content += event.text;
        if (event.kind == Kind::reasoning) parsed.reasoning += event.text;
        if (event.kind == Kind::tool_call) parsed.calls.emplace_back(event.text, "");
        if (event.kind == Kind::arguments) parsed.calls.back().second += event.text;
        if (event.kind != Kind::finish) continue;
        parsed.finish = event.finish;
        parsed.stop_sequence = event.text;
    }
    return parsed;
}

std::string without_spaces(std::string text) {
    std::erase(text, ' ');
    return text;
}

// Random cuts between characters.
std::vector<std::string_view> character_cuts(std::string_view text, std::size_t most) {
    std::vector<std::string_view> pieces;
    while (!text.empty()) {
        std::size_t end = 0;
        for (auto left = *rc::gen::inRange<std::size_t>(1, most + 1); left > 0 && end < text.size();
             --left)
            end += static_cast<std::size_t>(std::abs(utf8_sequence(text.substr(end))));
        pieces.push_back(text.substr(0, end));
        text.remove_prefix(end);
    }
    return pieces;
}

OutputParser::Events parse(const ParsingOptions& options,
                           const std::vector<std::string_view>& pieces) {
    OutputParser parser(options);
    OutputParser::Events events;
    for (const std::string_view piece : pieces)
        parser.push(TextChunk{.content = piece, .content_tokens = 1}, events);
    parser.end(events);
    return events;
}

rc::Gen<std::string> output_text() {
    static const std::vector<std::string> kParts = {
        "a",
        "Hello",
        " ",
        "\n",
        "\n\n",
        "é",
        "😀",
        "<",
        "</",
        "think>",
        "</think>",
        "</thi",
        "<｜DSML｜",
        "</｜DSML｜",
        "｜DSML｜",
        "<｜DS",
        " calls>",
        "tool_calls>",
        "invoke name=\"",
        " invoke name=\"f\">",
        "\"",
        " parameter name=\"x\" string=\"true\">",
        "parameter name=",
        "true\">",
        "false\">",
        "3",
        "\\",
        "STOP",
        "ST",
        "```json\n",
        "```\n",
        "\n```",
        "{\"a\":",
        "}",
        "[",
        "\t",
        " invoke>",
        " parameter>",
        "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"x\" "
        "string=\""};
    return rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(kParts)),
                        [](const std::vector<std::string>& parts) {
                            std::string text;
                            for (const std::string& part : parts)
                                text += part;
                            return text;
                        });
}

ParsingOptions any_options() {
    const std::vector<std::vector<std::string>> kStops = {
        {}, {"STOP"}, {"\n"}, {"STOP", "ST"}, {"</think>", "", "a"}, {"<｜DSML｜ c"}, {"\n\n<"}};
    return {.parse_tool_calls = *rc::gen::arbitrary<bool>(),
            .starts_in_tool_calls = *rc::gen::weightedElement<bool>({{4, false}, {1, true}}),
            .parse_json_output = *rc::gen::weightedElement<bool>({{2, false}, {1, true}}),
            .thinking_initial_stage = *rc::gen::element(
                ThinkingStage::none, ThinkingStage::reasoning_start,
                ThinkingStage::reasoning_continuation, ThinkingStage::content_continuation),
            .stop_sequences = *rc::gen::elementOf(kStops),
            .valid_arguments = *rc::gen::arbitrary<bool>()};
}

RC_GTEST_PROP(OutputParser, TheResultDoesNotDependOnTheCuts, ()) {
    const ParsingOptions options = any_options();
    const std::string text = *output_text();
    Parsed whole = joined(parse(options, {text}));
    Parsed cut = joined(parse(options, character_cuts(text, *rc::gen::element(1, 3, 20))));
    if (options.parse_json_output) {
        whole.content = without_spaces(whole.content);
        cut.content = without_spaces(cut.content);
    }
    RC_ASSERT(cut == whole);
}

RC_GTEST_PROP(OutputParser, ValidArgumentsAreJsonHoweverDamagedTheMarkup, ()) {
    const ParsingOptions options{.parse_tool_calls = true,
                                 .starts_in_tool_calls = *rc::gen::arbitrary<bool>(),
                                 .valid_arguments = true};
    const std::string text = *output_text();
    for (const auto& [name, arguments] : joined(parse(options, {text})).calls) {
        const auto json = parse_json(arguments);
        RC_LOG() << text << "\n" << arguments << "\n";
        RC_ASSERT(json.ok() && json->is_object());
    }
}

RC_GTEST_PROP(OutputParser, EventsStartOnceEndOnceAndAreNotEmpty, ()) {
    const std::string text = *output_text();
    const auto events = parse(any_options(), character_cuts(text, 4));
    RC_ASSERT(events.front().kind == Kind::start);
    RC_ASSERT(events.back().kind == Kind::finish);
    bool in_call = false;
    std::int64_t tokens = 0;
    for (std::size_t i = 1; i + 1 < events.size(); ++i) {
        const OutputEvent& event = events[i];
        RC_ASSERT(event.kind != Kind::start);
        RC_ASSERT(event.kind != Kind::finish);
        RC_ASSERT(!event.text.empty() || event.kind == Kind::tool_call);
        RC_ASSERT(utf8_valid_bytes(event.text) == event.text.size());
        if (event.kind == Kind::tool_call) in_call = true;
        RC_ASSERT(in_call == (event.kind == Kind::tool_call || event.kind == Kind::arguments));
        RC_ASSERT(event.completion_tokens >= tokens);
        tokens = event.completion_tokens;
    }
}

RC_GTEST_PROP(OutputParser, TextWithoutMarkupComesOutAtOnceAndUnchanged, ()) {
    const std::string text = *rc::gen::container<std::string>(rc::gen::inRange('b', 'z'));
    ParsingOptions options = any_options();
    options.starts_in_tool_calls = options.parse_json_output = false;
    OutputParser parser(options);
    for (const std::string_view piece : character_cuts(text, 5)) {
        OutputParser::Events events;
        parser.push(TextChunk{.content = piece, .content_tokens = 1}, events);
        RC_ASSERT(events.back().text == piece);
    }
}

// The texts of the events that each chunk releases, "start" aside.
std::vector<std::vector<std::string>> releases(const ParsingOptions& options,
                                               const std::vector<std::string_view>& pieces) {
    OutputParser parser(options);
    OutputParser::Events events;
    parser.push(ReadyChunk{}, events);
    std::vector<std::vector<std::string>> result;
    for (const std::string_view piece : pieces) {
        events.clear();
        parser.push(TextChunk{.content = piece, .content_tokens = 1}, events);
        result.emplace_back();
        for (const OutputEvent& event : events)
            result.back().push_back(event.text);
    }
    return result;
}

using Releases = std::vector<std::vector<std::string>>;

TEST(OutputParser, ChunksHeldBackTogetherComeOutApart) {
    const ParsingOptions tools{.parse_tool_calls = true};
    EXPECT_EQ(releases(tools, {"x", "\n", "\n", "y"}),
              (Releases{{"x"}, {}, {}, {"\n", "\n", "y"}}));
}

TEST(OutputParser, ALineFeedHoldsBackItsWholeChunk) {
    const ParsingOptions tools{.parse_tool_calls = true};
    EXPECT_EQ(releases(tools, {"abc\n", "<x"}), (Releases{{}, {"abc\n", "<x"}}));
    EXPECT_EQ(releases(tools, {"abc\n", "<｜DSML｜"}), (Releases{{}, {"abc"}}));
}

TEST(OutputParser, TheStopThatEndsFirstEndsTheAnswer) {
    const ParsingOptions options{.stop_sequences = {"END", "EN"}};
    EXPECT_EQ(releases(options, {"a E", "NDb", "c"}), (Releases{{}, {"a ", "EN"}, {}}));
}

TEST(OutputParser, AnUnfinishedCallKeepsWhatItHas) {
    const Parsed parsed = joined(parse(
        {.parse_tool_calls = true}, {"x\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
                                     "<｜DSML｜ parameter name=\"k\" string=\"true\">a\"b</｜DS"}));
    EXPECT_EQ(parsed.content, "x");
    ASSERT_EQ(parsed.calls.size(), 1U);
    EXPECT_EQ(parsed.calls[0].second, "{\"k\": \"a\\\"b</｜DS");
}

// As the markup stands, and with valid arguments.
TEST(OutputParser, DamagedArgumentsCanBeMadeValid) {
    struct Case {
        std::string parameters, copied, valid;
    };
    const std::string close = "</｜DSML｜ parameter>";
    for (const Case& c : {
             Case{" parameter name=\"a\" string=\"true\">x" + close, "{\"a\": \"x\"}",
                  "{\"a\": \"x\"}"},
             Case{" parameter name=\"a\" string=\"false\">[1, {}]" + close, "{\"a\": [1, {}]}",
                  "{\"a\": [1, {}]}"},
             Case{" parameter name=\"a\" string=\"false\">x \"y\"" + close, "{\"a\": x \"y\"}",
                  "{\"a\": \"x \\\"y\\\"\"}"},
             Case{" parameter name=a string=\"false\">1" + close, "{a: 1}", "{\"a\": 1}"},
             Case{" parameter name=\"a b\" string=\"false\">1" + close, "{\"a: 1}", "{\"a b\": 1}"},
             Case{" parameter name=\"a\\\" x=\"y\" string=\"true\">1" + close, "{\"a\\\": \"1\"}",
                  "{\"a\\\\\": \"1\"}"},
             Case{" parameter name=\"a\">x > y" + close,
                  "{\"a\">x> y</｜DSML｜: ", "{\"a\": \"x > y\"}"},
         }) {
        const std::string text =
            "<｜DSML｜ invoke name=\"f\">" + c.parameters + "</｜DSML｜ invoke>";
        for (const bool valid : {false, true}) {
            const Parsed parsed =
                joined(parse({.parse_tool_calls = true, .valid_arguments = valid}, {text}));
            ASSERT_EQ(parsed.calls.size(), 1U);
            if (!valid && c.parameters.find("string=") == std::string::npos) continue;
            EXPECT_EQ(parsed.calls[0].second, valid ? c.valid : c.copied);
        }
    }
}

TEST(OutputParser, ValidArgumentsAreClosedWhereTheModelEnds) {
    const std::string begin = "<｜DSML｜ invoke name=\"f\">";
    const std::string text = " parameter name=\"a\" string=\"true\">x";
    const std::string whole = text + "</｜DSML｜ parameter>";
    struct Case {
        std::string output, arguments;
    };
    for (const Case& c : {
             Case{begin, "{}"},
             Case{begin + text, "{\"a\": \"x\"}"},
             Case{begin + text + "</｜DSML｜", "{\"a\": \"x\"}"},
             Case{begin + whole, "{\"a\": \"x\"}"},
             Case{begin + whole + " parameter name=\"b", "{\"a\": \"x\"}"},
             Case{begin + " parameter name=\"b", "{}"},
             Case{begin + " parameter name=\"b\" string=\"false\">[1, 2", "{\"b\": \"[1, 2\"}"},
             Case{begin + " parameter name=\"b\" string=\"false\">12", "{\"b\": 12}"},
         })
        EXPECT_EQ(joined(parse({.parse_tool_calls = true, .valid_arguments = true}, {c.output}))
                      .calls.at(0)
                      .second,
                  c.arguments)
            << c.output;
    OutputParser parser({.parse_tool_calls = true, .valid_arguments = true});
    OutputParser::Events events;
    parser.push(TextChunk{.content = begin + text}, events);
    parser.push(BackendFinish::length, events);
    EXPECT_EQ(joined(events).calls.at(0).second, "{\"a\": \"x") << "a limit leaves it open";
}

TEST(OutputParser, MarkupIsTextWithoutTools) {
    const std::string text = "x\n\n<｜DSML｜ calls>";
    EXPECT_EQ(joined(parse({}, {text})).content, text);
}

TEST(OutputParser, IdsOfReasoningAreCountedAndLogprobsFollowTheirText) {
    OutputParser parser({.thinking_initial_stage = ThinkingStage::reasoning_start},
                        tiny_tokenizer());
    OutputParser::Events events;
    for (const std::string_view word : {"ab", "\n", "</think>", "c"}) {
        const std::vector<TokenId> ids = tiny_tokenizer()->encode(word, true);
        std::vector<TokenLogprob> logprobs;
        for (const TokenId id : ids)
            logprobs.push_back({.id = id, .logprob = -1});
        ASSERT_TRUE(parser.push(TokenChunk{.ids = ids, .logprobs = logprobs}, events).ok());
    }
    parser.end(events);
    const auto ids_of = [](std::string_view word) {
        return tiny_tokenizer()->encode(word, true).size();
    };
    ASSERT_EQ(events.size(), 4U);
    EXPECT_EQ(events[1].text, "ab");
    EXPECT_EQ(events[1].logprobs.size(), ids_of("ab"));
    EXPECT_EQ(events[2].text, "c");
    EXPECT_EQ(events[2].logprobs.size(), ids_of("c"));
    EXPECT_EQ(events[3].reasoning_tokens, static_cast<std::int64_t>(ids_of("ab")));
}

TEST(OutputParser, SilentIdsCountAndKeepTheirLogprobsButHaveNoText) {
    const auto tokenizer = tiny_tokenizer();
    ParsingOptions options;
    const std::vector<TokenId> a = tokenizer->encode("a", false), b = tokenizer->encode("b", false);
    const std::vector<TokenId> end = tokenizer->encode(kEndOfSentence, true);
    ASSERT_EQ(end.size(), 1u);
    options.silent_ids = end;
    OutputParser parser(options, tokenizer);
    OutputParser::Events events;
    for (const std::vector<TokenId>& ids : {a, end, b}) {
        const std::vector<TokenLogprob> logprobs{{.id = ids[0]}};
        ASSERT_TRUE(parser.push(TokenChunk{.ids = ids, .logprobs = logprobs}, events).ok());
    }
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[1].text, "a");
    EXPECT_EQ(events[2].text, "b");
    EXPECT_EQ(events[2].completion_tokens, 3);
    ASSERT_EQ(events[2].logprobs.size(), 2u);
    EXPECT_EQ(events[2].logprobs[0].id, end[0]);
}

TEST(OutputParser, RefusesIdsWithoutATokenizerAndUnpairedLogprobs) {
    const std::vector<TokenId> ids{1, 2};
    const std::vector<TokenLogprob> one{{.id = 1}};
    OutputParser::Events events;
    OutputParser blind(ParsingOptions{});
    EXPECT_EQ(blind.push(TokenChunk{.ids = ids}, events).code(), StatusCode::invalid_argument);
    OutputParser parser(ParsingOptions{}, tiny_tokenizer());
    EXPECT_EQ(parser.push(TokenChunk{.ids = ids, .logprobs = one}, events).code(),
              StatusCode::invalid_argument);
    EXPECT_TRUE(events.empty());
}

TEST(OutputParser, StopSequencesWaitForTheLeastTokens) {
    const ParsingOptions options{.stop_sequences = {"END"}, .stops_after_tokens = 3};
    OutputParser parser(options);
    OutputParser::Events events;
    // The third token completes the first END: too early, so it is text.
    for (const std::string_view piece : {"a", "EN", "D", "b", "EN", "D", "c"})
        parser.push(TextChunk{.content = piece, .content_tokens = 1}, events);
    EXPECT_TRUE(parser.finished());
    const Parsed parsed = joined(events);
    EXPECT_EQ(parsed.content, "aENDb");
    EXPECT_EQ(parsed.stop_sequence, "END");
}

}  // namespace
}  // namespace fathom
