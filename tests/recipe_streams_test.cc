// The output parser and the event builders of the three protocols against the recorded streams of
// the reference (golden/recipe: parser.jsonl, streams.jsonl, token_streams.jsonl; the README there
// explains the fields). Every row is fed as recorded, and what each chunk releases is compared. For
// each row that differs the first difference is shown.
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "json_lines.h"
#include "recipe/output_parser.h"
#include "support.h"

namespace fathom {
namespace {

using testing::flag_of;
using testing::read_json_lines;
using testing::shared_path;
using testing::text_of;

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

void expect_equal_lists(const Json::Array& golden, const Json::Array& ours) {
    for (std::size_t i = 0; i < std::max(golden.size(), ours.size()); ++i) {
        const std::string expected = i < golden.size() ? golden[i].dump() : "nothing";
        const std::string got = i < ours.size() ? ours[i].dump() : "nothing";
        ASSERT_EQ(expected, got) << "at " << i << ", previous "
                                 << (i > 0 ? ours[i - 1].dump() : "none");
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
            expect_equal_lists(chunking.find("neutral")->items(), ours);
            EXPECT_EQ(chunking.find("usage")->find("completion_tokens")->as_int64(),
                      completion_tokens);
        }
    }
    EXPECT_EQ(rows, 62);
}

}  // namespace
}  // namespace fathom
