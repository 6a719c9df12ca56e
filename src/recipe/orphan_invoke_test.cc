// Damaged calls outside of a block: which are calls, what of all others stays, and that neither
// depends on how the text was cut.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "recipe/orphan_invoke.h"
#include "recipe/output_parser.h"

namespace fathom {
namespace {

using Kind = OutputEvent::Kind;

ParsingOptions recovering() {
    ParsingOptions options{.parse_tool_calls = true};
    options.valid_arguments = true;
    options.dsml_recovery = DsmlRecovery::orphan_invoke;
    options.tool_names = {"f", "get_weather"};
    return options;
}

// Content as it is, calls as [name arguments], the end as {reason}.
std::string shown(const OutputParser::Events& events) {
    std::string text;
    bool in_call = false, in_reasoning = false;
    for (const OutputEvent& event : events) {
        if (in_reasoning != (event.kind == Kind::reasoning)) text += in_reasoning ? ")" : "(";
        in_reasoning = event.kind == Kind::reasoning;
        if (in_call && event.kind != Kind::arguments) text += "]";
        in_call = event.kind == Kind::tool_call || event.kind == Kind::arguments;
        if (event.kind == Kind::tool_call) text += "[" + event.text + " ";
        if (event.kind == Kind::content || event.kind == Kind::arguments) text += event.text;
        if (event.kind == Kind::reasoning) text += event.text;
        if (event.kind == Kind::finish) {
            text += event.finish == OutputFinish::tool_calls      ? "{calls}"
                    : event.finish == OutputFinish::stop_sequence ? "{stop}"
                                                                  : "{}";
        }
    }
    return text;
}

// `size`: bytes of a piece, up to the end of a character; 0: the whole text.
std::string parsed(const ParsingOptions& options, std::string_view text, std::size_t size = 0) {
    OutputParser parser(options);
    OutputParser::Events events;
    while (!text.empty()) {
        std::size_t end = size == 0 ? text.size() : size;
        while (end < text.size() && (text[end] & 0xc0) == 0x80)
            ++end;
        const std::string_view piece = text.substr(0, end);
        parser.push(TextChunk{.content = piece, .content_tokens = 1}, events);
        text.remove_prefix(piece.size());
    }
    parser.end(events);
    return shown(events);
}

// All spellings, whole and byte by byte.
void expect_parsed(const ParsingOptions& options, const std::string& text,
                   const std::string& expected) {
    for (const std::size_t size : {0, 1, 7})
        EXPECT_EQ(parsed(options, text, size), expected) << text << " by " << size;
}

// With @ for the spelling of the markup.
std::string spelled(std::string text, std::string_view dsml) {
    for (std::size_t at = 0; (at = text.find('@', at)) != std::string::npos; at += dsml.size())
        text.replace(at, 1, dsml);
    return text;
}

const char* const kCall =
    "<@ invoke name=\"f\">\n<@ parameter name=\"a\" string=\"true\">x<y \"</@ parameter>\n"
    "<@ parameter name=\"b\" string=\"false\">[1]</@ parameter>\n</@ invoke>";
const char* const kShown = "[f {\"a\": \"x<y \\\"\", \"b\": [1]}]";

TEST(OrphanInvoke, EachDamagedSpellingOfADeclaredToolIsACall) {
    for (const char* dsml : {"DSML｜", "｜｜DSML｜｜"}) {
        const std::string call = spelled(kCall, dsml);
        expect_parsed(recovering(), "see\n\n" + call, std::string("see") + kShown + "{calls}");
        expect_parsed(recovering(), call + "\n\n" + call + "\nbye",
                      std::string(kShown) + kShown + "bye{calls}");
        expect_parsed(recovering(), spelled("<@invoke name=\"f\"></@invoke>", dsml),
                      "[f {}]{calls}");
    }
}

TEST(OrphanInvoke, SoundTagsInsideAndTheTagsOfItsBlockGoWithIt) {
    expect_parsed(recovering(),
                  "<DSML｜ invoke name=\"f\">" + spelled(R"(
<@parameter name="a" string="true">v</@parameter></@invoke>)",
                                                         "｜DSML｜"),
                  "[f {\"a\": \"v\"}]{calls}");
    for (const char* block : {"tool_calls", " calls", "toolcalls"}) {
        const std::string open = std::string("<@") + block + ">\n",
                          close = std::string("\n</@") + block + ">";
        expect_parsed(recovering(),
                      "a\n" + spelled(open + kCall + "\n" + kCall + close, "｜｜DSML｜｜") + "\nb",
                      std::string("a") + kShown + kShown + "b{calls}");
    }
}

TEST(OrphanInvoke, AllElseStaysContentToTheByte) {
    for (const char* text : {
             "<@ invoke name=\"g\"></@ invoke>",  // not declared
             "<@ invoke name=\"f\" ></@ invoke>",
             "<@ invoke name=\"f\">text</@ invoke>",
             "<@ invoke name=\"f\"",
             "<@ invoke name=\"f\">\n<@ parameter name=\"a\" string=\"true\">x",
             "<@ invoke name=\"f\">\n<@ parameter name=\"a\" string=\"true\">x</@ invoke>",
             "<@ invoke name=\"f\">\n<@ parameter name=\"a\">x</@ parameter></@ invoke>",
             "<@ invoke name=\"f\">\n<@ parameter name=\"a\" string=\"false\">x</@ parameter></@ "
             "invoke>",
             "<@ invoke name=\"f\">\n<@ parameter name=\"a\" string=\"false\">1, \"b\": 2</@ "
             "parameter></@ invoke>",
             "<@ tool_calls>\n",
             "<@ tool_calls>\n<@ parameter",
             "</@ tool_calls>",
             "<@ x",
             "<\n\n<",
         }) {
        for (const char* dsml : {"DSML｜", "｜｜DSML｜｜"})
            expect_parsed(recovering(), "a\n\n" + spelled(text, dsml),
                          "a\n\n" + spelled(text, dsml) + "{}");
    }
}

TEST(OrphanInvoke, WhatIsNoCallIsReadAsContentIs) {
    ParsingOptions options = recovering();
    options.stop_sequences = {"STOP"};
    const std::string begin =
        "<DSML｜ invoke name=\"f\"><DSML｜ parameter name=\"a\" string=\"true\">";
    expect_parsed(options, begin + "STOP", begin + "{stop}");
    expect_parsed(options, begin + "STOP</DSML｜ parameter></DSML｜ invoke>STOPx",
                  "[f {\"a\": \"STOP\"}]{stop}");
    expect_parsed(options, begin + "</DSML｜ oh\n<｜DSML｜ invoke name=\"g\"></｜DSML｜ invoke>",
                  begin + "</DSML｜ oh[g {}]{calls}");
}

TEST(OrphanInvoke, ActsInContentAndWhenAskedForOnly) {
    const std::string call = spelled(kCall, "DSML｜");
    ParsingOptions options = recovering();
    options.dsml_recovery = DsmlRecovery::off;
    EXPECT_EQ(parsed(options, call), call + "{}");
    options = recovering();
    options.parse_tool_calls = false;
    EXPECT_EQ(parsed(options, call), call + "{}");
    options = recovering();
    options.thinking_initial_stage = ThinkingStage::reasoning_start;
    expect_parsed(options, call + "</think>\n" + call, "(" + call + ")" + kShown + "{calls}");
}

TEST(OrphanInvoke, LongerThanTheLimitIsContent) {
    const std::string begin =
        "<DSML｜invoke name=\"f\"><DSML｜parameter name=\"a\" string=\"true\">";
    const std::string end = "</DSML｜parameter></DSML｜invoke>";
    const std::string fits(kOrphanBytesMax - begin.size() - end.size(), 'x');
    for (const std::size_t size : {0, 1, 1000}) {
        EXPECT_EQ(parsed(recovering(), begin + fits + end, size),
                  "[f {\"a\": \"" + fits + "\"}]{calls}");
        EXPECT_EQ(parsed(recovering(), begin + fits + "x" + end, size),
                  begin + fits + "x" + end + "{}");
    }
    // It is released as soon as it is too long.
    OutputParser parser(recovering());
    OutputParser::Events events;
    parser.push(TextChunk{.content = begin + fits}, events);
    EXPECT_EQ(shown(events), "");
    parser.push(TextChunk{.content = std::string(100, 'x')}, events);
    EXPECT_EQ(shown(events), begin + fits + std::string(100, 'x'));
}

RC_GTEST_PROP(OrphanInvoke, DoesNotDependOnTheCuts, ()) {
    static const std::vector<std::string> kParts = {"<",
                                                    "\n",
                                                    "</",
                                                    "DSML｜",
                                                    "｜｜DSML｜｜",
                                                    "｜DSML｜",
                                                    "invoke name=\"",
                                                    "f\">",
                                                    " ",
                                                    "f",
                                                    "\"",
                                                    "<DSML｜ invoke name=\"f\">",
                                                    "</DSML｜ invoke>",
                                                    "parameter name=\"a\" string=\"true\">",
                                                    "<DSML｜parameter name=\"a\" string=\"false\">",
                                                    "1",
                                                    "</DSML｜parameter>",
                                                    "STOP",
                                                    "</think>",
                                                    "<｜｜DSML｜｜tool_calls>\n",
                                                    "</｜｜DSML｜｜tool_calls>",
                                                    "<｜DSML｜ calls>",
                                                    "x"};
    ParsingOptions options = recovering();
    options.stop_sequences = {"STOP"};
    std::string text;
    for (const int part : *rc::gen::container<std::vector<int>>(
             rc::gen::inRange(0, static_cast<int>(kParts.size()))))
        text += kParts[static_cast<std::size_t>(part)];
    const auto size = static_cast<std::size_t>(*rc::gen::inRange(1, 40));
    RC_ASSERT(parsed(options, text, size) == parsed(options, text));
}

}  // namespace
}  // namespace fathom
