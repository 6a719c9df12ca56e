// The tokenizer of the model that ships with the repository, against the transcripts and the Engram
// map that were recorded with it.
#include <gtest/gtest.h>

#include "json_lines.h"
#include "recipe/engram_token_map.h"
#include "recipe/tokenizer.h"
#include "support.h"

namespace fathom {
namespace {

using testing::read_json_lines;
using testing::shared_path;
using testing::text_of;
using testing::token_ids;

class TinyTokenizer : public ::testing::Test {
  protected:
    void SetUp() override {
        auto tokenizer = Tokenizer::load(testing::source_path("models/tiny/tokenizer.json"));
        ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
        tokenizer_ = *tokenizer;
    }
    std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(TinyTokenizer, HasTheModelsVocabulary) {
    EXPECT_EQ(tokenizer_->vocab_size(), 4096);
    EXPECT_EQ(tokenizer_->added_tokens().size(), 35u);
    EXPECT_EQ(tokenizer_->added_id("<｜begin▁of▁sentence｜>"), 0);
}

TEST_F(TinyTokenizer, TranscriptsEncodeAndDecode) {
    FATHOM_NEED_SHARED("tiny/transcripts.jsonl");
    const std::vector<Json> rows = read_json_lines(shared_path("tiny/transcripts.jsonl"));
    for (const Json& row : rows) {
        EXPECT_EQ(tokenizer_->encode(text_of(row, "prompt"), true),
                  token_ids(*row.find("prompt_ids")))
            << row.dump();
        EXPECT_EQ(tokenizer_->decode(token_ids(*row.find("output_ids"))), text_of(row, "output"));
    }
    EXPECT_EQ(rows.size(), 78u);
}

TEST_F(TinyTokenizer, EngramMapEqualsTheRecordedOne) {
    FATHOM_NEED_SHARED("tiny/token_map.json");
    const auto golden = parse_json_file(shared_path("tiny/token_map.json"));
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    const std::vector<TokenId> expected = token_ids(*golden->find("map"));
    const EngramTokenMap map =
        make_engram_token_map(*tokenizer_, static_cast<std::int64_t>(expected.size()));
    EXPECT_EQ(map.map, expected);
    EXPECT_EQ(map.distinct, golden->find("distinct")->as_int64());
}

}  // namespace
}  // namespace fathom
