#include "recipe/synthetic_tokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "recipe/engram_token_map.h"
#include "recipe/prompt.h"
#include "recipe/tokenizer.h"

namespace fathom {
namespace {

std::shared_ptr<const Tokenizer> made(std::int64_t vocab_size) {
    const auto json = make_synthetic_tokenizer(vocab_size);
    EXPECT_TRUE(json.ok()) << json.status().message();
    const auto tokenizer = Tokenizer::parse(json->dump(), "made");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return *tokenizer;
}

TEST(SyntheticTokenizer, HasEveryIdAndADistinctTextForIt) {
    for (const std::int64_t vocab_size : {kSyntheticVocabMin, std::int64_t{32'768}}) {
        const auto tokenizer = made(vocab_size);
        EXPECT_EQ(tokenizer->vocab_size(), vocab_size);
        for (TokenId id = 0; id < vocab_size; ++id)
            ASSERT_FALSE(tokenizer->bytes(id).empty()) << id;
    }
}

TEST(SyntheticTokenizer, HasTheSpecialTokensOfAPrompt) {
    const auto tokenizer = made(2000);
    EXPECT_EQ(tokenizer->added_id(kBeginOfSentence), 0);
    EXPECT_EQ(tokenizer->added_id(kEndOfSentence), 1);
    Conversation conversation;
    conversation.messages.resize(2);
    conversation.messages[0].role = Role::system;
    conversation.messages[0].content = "a";
    conversation.messages[1].content = "<｜ref｜>";
    const auto segments = render_prompt(conversation);
    ASSERT_TRUE(segments.ok());
    const auto ids = encode_prompt(*segments, *tokenizer);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(tokenizer->decode(*ids), prompt_text(*segments));
    EXPECT_TRUE(tokenizer->added_id(kSyntheticImageToken).has_value());
}

TEST(SyntheticTokenizer, MergesEnglishWords) {
    const auto tokenizer = made(32'768);
    const std::string text = "the rest of that line is not here, 12345 or 日本";
    const auto ids = tokenizer->encode(text, false);
    EXPECT_EQ(tokenizer->decode(ids), text);
    EXPECT_LT(ids.size() * 3, text.size() * 2);
}

TEST(SyntheticTokenizer, GivesWordsWithAndWithoutSpaceOneEngramKey) {
    const auto tokenizer = made(32'768);
    const EngramTokenMap map = make_engram_token_map(*tokenizer, 32'768);
    EXPECT_LT(map.distinct, 20'000);
    EXPECT_GT(map.distinct, 15'000);
}

TEST(SyntheticTokenizer, RefusesAVocabularyThatTheRuleCannotMake) {
    EXPECT_FALSE(make_synthetic_tokenizer(kSyntheticVocabMin - 1).ok());
    EXPECT_FALSE(make_synthetic_tokenizer(kSyntheticVocabMax + 1).ok());
    EXPECT_TRUE(make_synthetic_tokenizer(kSyntheticVocabMin).ok());
}

}  // namespace
}  // namespace fathom
