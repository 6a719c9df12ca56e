// What the detokenizer gives must not depend on how the stream was cut.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "recipe/detokenizer.h"
#include "recipe/test_tokenizer.h"

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

}  // namespace
}  // namespace fathom
