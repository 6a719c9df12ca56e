// The Engram map against recorded results (golden/kernels, golden/model; the READMEs there explain
// the fields), and a prompt that a tokenizer cannot spell.
#include <gtest/gtest.h>

#include <memory>

#include "json_lines.h"
#include "recipe/engram_token_map.h"
#include "recipe/prompt.h"
#include "support.h"

namespace fathom {
namespace {

using testing::shared_path;
using testing::token_ids;

std::shared_ptr<const Tokenizer> load(const std::string& path) {
    auto tokenizer = Tokenizer::load(path);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return tokenizer.ok() ? *tokenizer : nullptr;
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
