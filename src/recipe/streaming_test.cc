// Detokenizer, StopStrings and ThinkingSplitter: what they give must not depend on how the stream
// was cut.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "recipe/detokenizer.h"
#include "recipe/stop_strings.h"
#include "recipe/test_tokenizer.h"
#include "recipe/thinking.h"

namespace fathom {
namespace {

using testing::random_cuts;
using testing::tiny_tokenizer;

TEST(Detokenizer, HoldsIdsThatEndInsideACharacter) {
    Detokenizer detokenizer(tiny_tokenizer());
    const std::vector<TokenId> ids = tiny_tokenizer()->encode("中!", false);
    ASSERT_EQ(ids.size(), 4u);
    EXPECT_EQ(detokenizer.push(ids[0]).text, "");
    EXPECT_EQ(detokenizer.push(ids[1]).text, "");
    const Detokenizer::Piece piece = detokenizer.push(ids[2]);
    EXPECT_EQ(piece.text, "中");
    EXPECT_EQ(piece.token_count, 3);
    EXPECT_EQ(detokenizer.push(ids[3]).text, "!");
    EXPECT_EQ(detokenizer.finish().token_count, 0);
}

TEST(Detokenizer, HoldsReplacementCharactersUntilAnotherFollows) {
    const TokenId bad = tiny_tokenizer()->encode("\xFF", false)[0];
    const TokenId good = tiny_tokenizer()->encode("a", false)[0];
    for (std::vector<TokenId> ids :
         {std::vector<TokenId>{bad, bad}, tiny_tokenizer()->encode("\uFFFD", false)}) {
        Detokenizer detokenizer(tiny_tokenizer());
        const std::string text = tiny_tokenizer()->decode(ids);
        for (const TokenId id : ids)
            EXPECT_EQ(detokenizer.push(id).text, "");
        const Detokenizer::Piece piece = detokenizer.push(good);
        EXPECT_EQ(piece.text, text + "a");
        EXPECT_EQ(piece.token_count, static_cast<std::int64_t>(ids.size()) + 1);
    }
}

TEST(Detokenizer, CountsAnIdOutsideTheVocabularyWithTheNextText) {
    Detokenizer detokenizer(tiny_tokenizer());
    EXPECT_EQ(detokenizer.push(999999999).token_count, 0);
    const Detokenizer::Piece piece = detokenizer.push(tiny_tokenizer()->encode("a", false)[0]);
    EXPECT_EQ(piece.text, "a");
    EXPECT_EQ(piece.token_count, 2);
}

TEST(Detokenizer, FinishGivesTheRestAndStartsAnew) {
    Detokenizer detokenizer(tiny_tokenizer());
    detokenizer.push(tiny_tokenizer()->encode("中", false)[0]);
    const Detokenizer::Piece rest = detokenizer.finish();
    EXPECT_EQ(rest.text, "\uFFFD");
    EXPECT_EQ(rest.token_count, 1);
    EXPECT_EQ(detokenizer.finish().text, "");
}

RC_GTEST_PROP(Detokenizer, PiecesJoinedAreTheDecodedWhole, ()) {
    const auto ids = *rc::gen::container<std::vector<TokenId>>(
        rc::gen::oneOf(rc::gen::inRange<TokenId>(-2, 4200), rc::gen::inRange<TokenId>(3, 260)));
    Detokenizer detokenizer(tiny_tokenizer());
    std::string text;
    std::int64_t count = 0;
    for (const TokenId id : ids) {
        const Detokenizer::Piece piece = detokenizer.push(id);
        RC_ASSERT(utf8_lossy(piece.text) == piece.text);
        RC_ASSERT(piece.text.empty() == (piece.token_count == 0));
        RC_ASSERT(!piece.text.ends_with("\uFFFD"));
        text += piece.text;
        count += piece.token_count;
    }
    const Detokenizer::Piece rest = detokenizer.finish();
    RC_ASSERT(text + rest.text == tiny_tokenizer()->decode(ids));
    RC_ASSERT(count + rest.token_count == static_cast<std::int64_t>(ids.size()));
}

TEST(StopStrings, TheStopThatEndsFirstWins) {
    struct Case {
        std::vector<std::string> stops;
        std::string text;
        std::string shown;
        std::string matched;
    };
    const std::vector<Case> cases = {
        {{"END", "EN"}, "a END", "a ", "EN"},
        {{"b", "ab"}, "xab", "xa", "b"},  // equal ends: the order of the list
        {{"ab", "b"}, "xab", "x", "ab"},
        {{"aab"}, "aaab!", "a", "aab"},
        {{"abab"}, "abaabab", "aba", "abab"},
        {{"", "x"}, "ax", "a", "x"},
        {{"\n\nHuman:"}, "hi\n\n\nHuman: ?", "hi\n", "\n\nHuman:"},
        {{"。"}, "好。吗", "好", "。"},
    };
    for (const Case& c : cases) {
        StopStrings stops(c.stops);
        const StopStrings::Output output = stops.push(c.text);
        EXPECT_EQ(output.text, c.shown);
        EXPECT_TRUE(output.stopped);
        EXPECT_EQ(output.matched, c.matched);
        const StopStrings::Output after = stops.push("more");
        EXPECT_EQ(after.text, "");
        EXPECT_TRUE(after.stopped);
        EXPECT_EQ(stops.finish(), "");
    }
}

TEST(StopStrings, HoldsOnlyWhatMayGrow) {
    StopStrings stops({"</stop>"});
    EXPECT_EQ(stops.push("a<").text, "a");
    EXPECT_EQ(stops.push("/st").text, "");
    EXPECT_EQ(stops.push("x</").text, "</stx");
    EXPECT_EQ(stops.finish(), "</");
    StopStrings none({});
    EXPECT_EQ(none.push("anything").text, "anything");
}

// The first match by definition: the smallest end, then the order of the list.
struct FirstStop {
    std::string shown;
    std::string matched;
};
std::optional<FirstStop> first_stop(const std::vector<std::string>& stops,
                                    const std::string& text) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        for (const std::string& stop : stops) {
            if (stop.empty() || stop.size() > end) continue;
            if (text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
            return FirstStop{text.substr(0, end - stop.size()), stop};
        }
    }
    return {};
}

RC_GTEST_PROP(StopStrings, FoundHoweverTheTextIsCut, ()) {
    // Two letters make matches, overlaps and near misses common.
    const auto letters = rc::gen::container<std::string>(rc::gen::element('a', 'b'));
    const auto stops = *rc::gen::container<std::vector<std::string>>(
        rc::gen::resize(5, rc::gen::container<std::string>(rc::gen::element('a', 'b'))));
    const std::string text = *letters;
    StopStrings finder(stops);
    std::string shown;
    std::optional<std::string> matched;
    std::size_t fed = 0;
    for (const std::string& piece : random_cuts(text)) {
        const StopStrings::Output output = finder.push(piece);
        shown += output.text;
        fed += piece.size();
        if (output.stopped) {
            matched = output.matched;
            RC_ASSERT(shown.size() + output.matched.size() + output.rest_bytes == fed);
            break;
        }
    }
    if (!matched) shown += finder.finish();
    const auto expected = first_stop(stops, text);
    RC_ASSERT(matched.has_value() == expected.has_value());
    RC_ASSERT(shown == (expected ? expected->shown : text));
    if (expected) RC_ASSERT(*matched == expected->matched);
}

RC_GTEST_PROP(StopStrings, NothingShownIsTakenBack, ()) {
    const std::string text = *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
    const std::vector<std::string> stops = {"aab", "bca", "cccc"};
    StopStrings finder(stops);
    std::string shown;
    for (const std::string& piece : random_cuts(text))
        shown += finder.push(piece).text;
    RC_ASSERT(text.starts_with(shown));
    for (const std::string& stop : stops)
        RC_ASSERT(shown.find(stop) == std::string::npos);
}

TEST(ThinkingSplitter, SplitsAtTheFirstMarker) {
    ThinkingSplitter splitter(true);
    const auto output = splitter.push("Let me see.</think>\n\nFour.</think>");
    EXPECT_EQ(output.reasoning, "Let me see.");
    EXPECT_EQ(output.content, "\n\nFour.</think>");
    EXPECT_EQ(splitter.push(" Yes").content, " Yes");
}

TEST(ThinkingSplitter, WithoutThinkingEverythingIsContent) {
    ThinkingSplitter splitter(false);
    EXPECT_EQ(splitter.push("</think>a").content, "</think>a");
    EXPECT_EQ(splitter.finish().content, "");
}

TEST(ThinkingSplitter, APartialMarkerAtTheEndIsReasoning) {
    ThinkingSplitter splitter(true);
    EXPECT_EQ(splitter.push("hm </thi").reasoning, "hm ");
    EXPECT_EQ(splitter.finish().reasoning, "</thi");
}

RC_GTEST_PROP(ThinkingSplitter, KeepsEveryByteHoweverTheTextIsCut, (bool thinking)) {
    const std::string text = *testing::tricky_text();
    ThinkingSplitter splitter(thinking);
    std::string reasoning;
    std::string content;
    for (const std::string& piece : random_cuts(text)) {
        const auto output = splitter.push(piece);
        reasoning += output.reasoning;
        content += output.content;
    }
    const auto rest = splitter.finish();
    reasoning += rest.reasoning;
    content += rest.content;
    const std::size_t marker = thinking ? text.find("</think>") : std::string::npos;
    if (marker == std::string::npos) {
        RC_ASSERT((thinking ? reasoning : content) == text);
        RC_ASSERT((thinking ? content : reasoning).empty());
    } else {
        RC_ASSERT(reasoning == text.substr(0, marker));
        RC_ASSERT(content == text.substr(marker + 8));
    }
}

}  // namespace
}  // namespace fathom
