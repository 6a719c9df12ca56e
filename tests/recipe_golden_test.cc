// The tokenizer, the detokenizer and the Engram map against the recorded results of the reference
// (golden/recipe, golden/kernels, golden/model; the READMEs there explain the fields). The number
// of rows that a filter lets through is asserted, so that it cannot shrink unseen.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "json_lines.h"
#include "recipe/detokenizer.h"
#include "recipe/engram_token_map.h"
#include "recipe/prompt.h"
#include "recipe_rows.h"
#include "support.h"

namespace fathom {
namespace {

using testing::golden_segments;
using testing::read_json_lines;
using testing::shared_path;
using testing::text_of;
using testing::token_ids;

std::shared_ptr<const Tokenizer> load(const std::string& path) {
    auto tokenizer = Tokenizer::load(path);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return tokenizer.ok() ? *tokenizer : nullptr;
}

// The recorded pieces have passed the reference's output parser in a stage that only drops
// `</think>`.
std::string without_think_end(std::string text) {
    for (;;) {
        const std::size_t at = text.find(kThinkEnd);
        if (at == std::string::npos) return text;
        text.erase(at, kThinkEnd.size());
    }
}

struct Streamed {
    std::vector<std::string> texts;  // after each group
    std::string rest;                // what finish() gives
    std::int64_t token_count = 0;    // before finish()
};

Streamed stream(const std::shared_ptr<const Tokenizer>& tokenizer,
                const std::vector<std::vector<TokenId>>& groups) {
    Streamed result;
    Detokenizer detokenizer(tokenizer);
    for (const std::vector<TokenId>& group : groups) {
        std::string text;
        for (const TokenId id : group) {
            const Detokenizer::Piece piece = detokenizer.push(id);
            text += without_think_end(piece.text);
            result.token_count += piece.token_count;
        }
        result.texts.push_back(std::move(text));
    }
    result.rest = detokenizer.finish().text;
    return result;
}

std::string joined(const Json& pieces) {
    std::string text;
    for (const Json& piece : pieces.items())
        text += piece.as_string();
    return text;
}

// What the reference releases at an id it holds because of a U+FFFD comes earlier here.
void expect_same_or_earlier(const Json& golden, const Streamed& ours) {
    std::string golden_so_far;
    std::string ours_so_far;
    for (std::size_t i = 0; i < ours.texts.size(); ++i) {
        golden_so_far += joined(golden.items()[i]);
        ours_so_far += ours.texts[i];
        EXPECT_TRUE(ours_so_far.starts_with(golden_so_far)) << "at group " << i;
    }
}

TEST(RecipeGolden, TextsEncodeAndStreamAsTheReference) {
    FATHOM_NEED_SHARED("golden/recipe/tokenizer.jsonl");
    const auto tokenizer = load(shared_path("golden/recipe/tokenizer.json"));
    ASSERT_NE(tokenizer, nullptr);
    int rows = 0;
    int with_replacement = 0;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/tokenizer.jsonl"))) {
        if (row.find("text") == nullptr) continue;
        ++rows;
        SCOPED_TRACE(text_of(row, "id"));
        const std::string& text = row.find("text")->as_string();
        const std::vector<TokenId> ids = token_ids(*row.find("ids"));
        EXPECT_EQ(tokenizer->encode(text, true), ids);
        EXPECT_EQ(tokenizer->decode(ids), text);

        std::vector<std::vector<TokenId>> groups;
        for (const TokenId id : ids)
            groups.push_back({id});
        const Streamed ours = stream(tokenizer, groups);
        const Json& golden = *row.find("per_token");
        ASSERT_EQ(golden.items().size(), ours.texts.size());
        if (text.find("\uFFFD") != std::string::npos) {
            ++with_replacement;
            expect_same_or_earlier(golden, ours);
            continue;
        }
        for (std::size_t i = 0; i < ours.texts.size(); ++i) {
            EXPECT_EQ(ours.texts[i], joined(golden.items()[i])) << "token " << i;
        }
        EXPECT_EQ(ours.token_count, row.find("completion_tokens")->as_int64());
    }
    EXPECT_EQ(rows, 178);
    EXPECT_EQ(with_replacement, 1);
}

TEST(RecipeGolden, ArbitraryIdsStreamAsTheReferenceUpToReplacementCharacters) {
    FATHOM_NEED_SHARED("golden/recipe/tokenizer.jsonl");
    const auto tokenizer = load(shared_path("golden/recipe/tokenizer.json"));
    ASSERT_NE(tokenizer, nullptr);
    int rows = 0;
    int equal = 0;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/tokenizer.jsonl"))) {
        if (row.find("groups") == nullptr) continue;
        ++rows;
        SCOPED_TRACE(text_of(row, "id"));
        std::vector<std::vector<TokenId>> groups;
        std::vector<TokenId> all;
        for (const Json& group : row.find("groups")->items()) {
            groups.push_back(token_ids(group));
            all.insert(all.end(), groups.back().begin(), groups.back().end());
        }
        const Streamed ours = stream(tokenizer, groups);
        const Json& golden = *row.find("per_group");
        expect_same_or_earlier(golden, ours);

        std::string whole;
        for (const std::string& text : ours.texts)
            whole += text;
        const std::string decoded = without_think_end(tokenizer->decode(all));
        EXPECT_EQ(whole + ours.rest, decoded);
        if (decoded.find("\uFFFD") != std::string::npos) continue;
        ++equal;
        for (std::size_t i = 0; i < ours.texts.size(); ++i) {
            EXPECT_EQ(ours.texts[i], joined(golden.items()[i])) << "group " << i;
        }
        EXPECT_EQ(ours.token_count, row.find("completion_tokens")->as_int64());
    }
    EXPECT_EQ(rows, 18);
    EXPECT_EQ(equal, 7);
}

TEST(RecipeGolden, EveryPromptEncodesToItsIds) {
    FATHOM_NEED_SHARED("golden/recipe/encode.jsonl");
    const auto tokenizer = load(shared_path("golden/recipe/tokenizer.json"));
    ASSERT_NE(tokenizer, nullptr);
    int rows = 0;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/encode.jsonl"))) {
        if (row.find("ids") == nullptr) continue;
        ++rows;
        SCOPED_TRACE(text_of(row, "id"));
        const auto ids = encode_prompt(golden_segments(row), *tokenizer);
        ASSERT_TRUE(ids.ok()) << ids.status().message();
        EXPECT_EQ(*ids, token_ids(*row.find("ids")));
    }
    EXPECT_EQ(rows, 131);
}

TEST(RecipeGolden, ASpellingOutsideTheAddedVocabularyIsAnError) {
    FATHOM_NEED_SHARED("golden/recipe/tokenizer.json");
    const auto tokenizer = load(shared_path("golden/recipe/tokenizer.json"));
    ASSERT_NE(tokenizer, nullptr);
    const auto ids = encode_prompt({{true, "<｜image｜>"}}, *tokenizer);
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.status().code(), StatusCode::invalid_argument);
    EXPECT_EQ(ids.status().message(),
              "special token \"<｜image｜>\" is not in the added vocabulary");
}

TEST(RecipeGolden, EngramNormalisationEqualsTheReferences) {
    FATHOM_NEED_SHARED("golden/kernels/token_normalisation.json");
    const auto rows = parse_json_file(shared_path("golden/kernels/token_normalisation.json"));
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    for (const Json& row : rows->items()) {
        EXPECT_EQ(engram_normalise(row.find("text")->as_string()),
                  row.find("normalised")->as_string())
            << row.dump();
    }
    EXPECT_EQ(rows->items().size(), 465u);
}

TEST(RecipeGolden, EngramMapsOfTheModelCasesAreEqual) {
    FATHOM_NEED_SHARED("golden/model");
    int cases = 0;
    for (const std::string name : {"t1", "t2", "t3", "t4", "t6"}) {
        SCOPED_TRACE(name);
        const auto tokenizer = load(shared_path("golden/model/" + name + "/tokenizer.json"));
        ASSERT_NE(tokenizer, nullptr);
        const auto golden =
            parse_json_file(shared_path("golden/model/" + name + "/token_map.json"));
        ASSERT_TRUE(golden.ok()) << golden.status().message();
        const std::vector<TokenId> expected = token_ids(*golden->find("map"));
        const EngramTokenMap map =
            make_engram_token_map(*tokenizer, static_cast<std::int64_t>(expected.size()));
        EXPECT_EQ(map.map, expected);
        EXPECT_EQ(map.distinct, golden->find("compressed_vocab_size")->as_int64());
        ++cases;
    }
    EXPECT_EQ(cases, 5);
}

}  // namespace
}  // namespace fathom
