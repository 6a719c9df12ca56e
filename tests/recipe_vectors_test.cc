// Every row of the recorded results of the reference (golden/recipe; the README there explains the
// fields) against the library, as `fathom recipe check` does it. The numbers of rows are asserted,
// and which are left out and why, so that none is lost unseen.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "json_lines.h"
#include "recipe/strict_schema.h"
#include "recipe/vectors/check_file.h"
#include "recipe/vectors/rows.h"
#include "support.h"

namespace fathom {
namespace {

using testing::read_json_lines;
using testing::shared_path;

void expect_rows(const std::string& name, std::int64_t passed,
                 const std::map<std::string, std::int64_t>& skipped = {}) {
    constexpr std::size_t kShownMax = 40;
    const auto report = check_file(shared_path("golden/recipe/" + name), {});
    ASSERT_TRUE(report.ok()) << report.status().message();
    for (std::size_t i = 0; i < report->failures.size() && i < kShownMax; ++i)
        ADD_FAILURE() << name << ":" << report->failures[i].line << " " << report->failures[i].id
                      << "\n  " << report->failures[i].difference;
    EXPECT_EQ(report->failures.size(), 0);
    EXPECT_EQ(report->passed, passed);
    EXPECT_EQ(report->skipped, skipped);
}

TEST(RecipeVectors, RequestsHaveTheReferencesPromptsAndSettings) {
    FATHOM_NEED_SHARED("golden/recipe/prompts.jsonl");
    expect_rows("prompts.jsonl", 692 + 275 + 223 + 77);
}

TEST(RecipeVectors, RequestsAreRefusedAsTheReference) {
    FATHOM_NEED_SHARED("golden/recipe/errors.jsonl");
    expect_rows("errors.jsonl", 379 + 214 + 225);
}

TEST(RecipeVectors, PromptsEncodeToTheReferencesIds) {
    FATHOM_NEED_SHARED("golden/recipe/encode.jsonl");
    expect_rows("encode.jsonl", 132, {{"here nothing is encoded without a tokenizer", 1}});
}

TEST(RecipeVectors, TextsEncodeAndStreamAsTheReference) {
    FATHOM_NEED_SHARED("golden/recipe/tokenizer.jsonl");
    expect_rows("tokenizer.jsonl", 196);
}

TEST(RecipeVectors, TextsGiveTheReferencesStreamsAndAnswers) {
    FATHOM_NEED_SHARED("golden/recipe/streams.jsonl");
    expect_rows("streams.jsonl", 158);
    std::map<std::string, int> runs;  // each row has three chunkings of each of its protocols
    for (const Json& row : read_json_lines(shared_path("golden/recipe/streams.jsonl")))
        for (const Json& chunking : row_items(row, "chunkings"))
            for (const auto& [protocol, golden] : row_members(chunking, "protocols"))
                ++runs[protocol];
    EXPECT_EQ(runs,
              (std::map<std::string, int>{{"chat", 426}, {"messages", 357}, {"responses", 408}}));
}

TEST(RecipeVectors, ParserOptionsAndOddMarkupGiveTheReferencesEvents) {
    FATHOM_NEED_SHARED("golden/recipe/parser.jsonl");
    expect_rows("parser.jsonl", 62);
}

TEST(RecipeVectors, IdsGiveTheReferencesStreamsAnswersAndErrors) {
    FATHOM_NEED_SHARED("golden/recipe/token_streams.jsonl");
    expect_rows("token_streams.jsonl", 30);
}

TEST(RecipeVectors, ImagesHaveTheirTokensSizesAndFaults) {
    FATHOM_NEED_SHARED("golden/recipe/images.jsonl");
    expect_rows("images.jsonl", 111 + 53 + 34);
}

TEST(RecipeVectors, AnswersHaveTheirBudget) {
    FATHOM_NEED_SHARED("golden/recipe/limits.jsonl");
    expect_rows("limits.jsonl", 165);
}

TEST(RecipeVectors, StrictSchemasAreNormalisedOnce) {
    FATHOM_NEED_SHARED("golden/recipe/strict.jsonl");
    expect_rows("strict.jsonl", 129);
    for (const Json& row : read_json_lines(shared_path("golden/recipe/strict.jsonl"))) {
        const auto tool = normalize_strict_parameters(*row.find("schema"));
        if (!tool.ok()) continue;
        EXPECT_EQ(*normalize_strict_parameters(*tool), *tool) << row_text(row, "id");
    }
}

// ------------------------------------------------------------------------- the checks themselves

TEST(RecipeVectors, RowsThatSayNothingFail) {
    for (const char* text : {"{}",
                             "[]",
                             "3",
                             R"({"id":"x"})",
                             R"({"protocol":"chat","expect":{}})",
                             R"({"protocol":"chat","error":{}})",
                             R"({"protocol":"x","body":{},"expect":{}})",
                             R"({"reference":{},"open":{}})",
                             R"({"kind":"token_count","width":-1,"height":1})",
                             R"({"context_limit":1})",
                             R"({"context_limit":-1,"body":{"model":"DeepSeek-V4-Pro",)"
                             R"("messages":[{"role":"user","content":"x"}]}})",
                             R"({"schema":{},"format_strict":{}})",
                             R"({"conversation":3,"v41":{"prompt":"x"}})",
                             R"({"requests":{"chat":{}},"chunkings":[]})",
                             R"({"requests":{"smoke":{}},"chunkings":[]})",
                             R"({"parsing":{},"chunkings":[{"neutral":[]}]})",
                             R"({"feed":[1],"protocol":"chat"})",
                             R"({"feed":[],"protocol":"chat"})",
                             R"({"feed":[{"bytes":"4g"}],"protocol":"chat"})",
                             R"({"feed":[{"tokens":[1]}],"protocol":"chat"})"}) {
        const RowOutcome outcome = check_row(parse_json(text).value(), nullptr);
        EXPECT_EQ(outcome.kind, RowOutcome::Kind::failed) << text;
        EXPECT_NE(outcome.detail, "") << text;
    }
}

// A wrong byte anywhere in a record is found.
TEST(RecipeVectors, ChangedRecordsFail) {
    FATHOM_NEED_SHARED("golden/recipe/parser.jsonl");
    const auto changed = [](const std::string& file, const std::string& member, Json value) {
        Json row = read_json_lines(shared_path("golden/recipe/" + file)).at(0);
        EXPECT_NE(row.find(member), nullptr) << file;
        row.set(member, std::move(value));
        return check_row(row, nullptr).kind;
    };
    EXPECT_EQ(changed("limits.jsonl", "context_limit", 12345), RowOutcome::Kind::failed);
    EXPECT_EQ(changed("parser.jsonl", "text", "another"), RowOutcome::Kind::failed);
    EXPECT_EQ(changed("streams.jsonl", "text", "another"), RowOutcome::Kind::failed);
    EXPECT_EQ(changed("streams.jsonl", "ready", Json()), RowOutcome::Kind::failed);
    EXPECT_EQ(changed("strict.jsonl", "schema", Json::object()), RowOutcome::Kind::failed);
    EXPECT_EQ(changed("images.jsonl", "tokens", 1), RowOutcome::Kind::failed);
    EXPECT_EQ(changed("errors.jsonl", "error", Json::object({{"status_code", 400}})),
              RowOutcome::Kind::failed);
    EXPECT_EQ(changed("prompts.jsonl", "expect", Json::object()), RowOutcome::Kind::failed);
}

}  // namespace
}  // namespace fathom
