// The vectors printed in recipe.md (appendix B: text to ids; appendix C: conversation to prompt and
// ids) and the Engram map of the release. Prompts are checked wherever the specification is; ids
// need the release's tokenizer.json, which is not part of this repository: set
// FATHOM_OFFICIAL_TOKENIZER to its path.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "json_lines.h"
#include "recipe/engram_token_map.h"
#include "recipe/prompt.h"
#include "support.h"

namespace fathom {
namespace {

using testing::flag_of;
using testing::shared_path;
using testing::text_of;
using testing::token_ids;

// The JSON lines of one kind in the specification's text.
std::vector<Json> spec_vectors(std::string_view kind) {
    std::vector<Json> rows;
    std::ifstream file(shared_path("spec/recipe.md"));
    const std::string start = "{\"kind\":\"" + std::string(kind) + "\"";
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with(start)) continue;
        auto row = parse_json(line);
        EXPECT_TRUE(row.ok()) << row.status().message();
        if (row.ok()) rows.push_back(*std::move(row));
    }
    return rows;
}

// The abbreviations of appendix C.
std::string expanded(std::string text) {
    const std::string tail =
        " (range 1-100, the higher the value, the more thorough the reasoning)\n\n";
    const std::vector<std::pair<std::string, std::string>> macros = {
        {"⟨BOS⟩", std::string(kBeginOfSentence)},   {"⟨EOS⟩", std::string(kEndOfSentence)},
        {"«E50»", "Reasoning Effort: 50" + tail},   {"«E75»", "Reasoning Effort: 75" + tail},
        {"«E100»", "Reasoning Effort: 100" + tail},
    };
    for (const auto& [name, value] : macros) {
        for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos;) {
            text.replace(at, name.size(), value);
            at += value.size();
        }
    }
    return text;
}

std::optional<Conversation> plain_conversation(const Json& conv) {
    const bool tools_off = text_of(conv, "tool_choice") == "none";
    if ((conv.find("tools") != nullptr && !tools_off) || flag_of(conv, "json")) return {};
    Conversation conversation;
    conversation.thinking = flag_of(conv, "thinking", true);
    const std::string effort = text_of(conv, "effort");
    if (effort == "low") conversation.effort = ReasoningEffort::low;
    if (effort == "max") conversation.effort = ReasoningEffort::max;
    for (const Json& source : conv.find("messages")->items()) {
        if (source.find("tool_calls") != nullptr) return {};
        Message message;
        message.content = text_of(source, "content");
        const std::string role = text_of(source, "role");
        if (role == "system") message.role = Role::system;
        if (role == "assistant") message.role = Role::assistant;
        if (role == "tool" || role == "latest_reminder") return {};
        if (source.find("reasoning_content") != nullptr) {
            message.reasoning_content = text_of(source, "reasoning_content");
        }
        conversation.messages.push_back(std::move(message));
    }
    return conversation;
}

// Null where the file is not given.
std::shared_ptr<const Tokenizer> official_tokenizer() {
    const char* path = std::getenv("FATHOM_OFFICIAL_TOKENIZER");
    if (path == nullptr) return nullptr;
    auto tokenizer = Tokenizer::load(path);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return tokenizer.ok() ? *tokenizer : nullptr;
}

TEST(OfficialTokenizer, PromptVectorsOfTheSpecificationHold) {
    FATHOM_NEED_SHARED("spec/recipe.md");
    const auto tokenizer = official_tokenizer();
    int prompts = 0;
    int with_ids = 0;
    for (const Json& row : spec_vectors("prompt")) {
        if (text_of(row, "v") != "v41") continue;
        const auto conversation = plain_conversation(*row.find("conv"));
        // The row "images" stands for pictures by their token.
        if (!conversation || text_of(row, "name") == "images") continue;
        ++prompts;
        SCOPED_TRACE(text_of(row, "name"));
        const auto segments = render_prompt(*conversation);
        ASSERT_TRUE(segments.ok()) << segments.status().message();
        EXPECT_EQ(prompt_text(*segments), expanded(text_of(row, "prompt")));
        if (row.find("ids") == nullptr || tokenizer == nullptr) continue;
        ++with_ids;
        const auto ids = encode_prompt(*segments, *tokenizer);
        ASSERT_TRUE(ids.ok()) << ids.status().message();
        EXPECT_EQ(*ids, token_ids(*row.find("ids")));
    }
    EXPECT_EQ(prompts, 14);
    EXPECT_EQ(with_ids, tokenizer == nullptr ? 0 : 11);
}

TEST(OfficialTokenizer, TokenVectorsOfTheSpecificationHold) {
    FATHOM_NEED_SHARED("spec/recipe.md");
    const auto tokenizer = official_tokenizer();
    if (tokenizer == nullptr) GTEST_SKIP() << "needs FATHOM_OFFICIAL_TOKENIZER";
    int rows = 0;
    for (const Json& row : spec_vectors("tok41")) {
        ++rows;
        const std::string text = text_of(row, "text");
        const std::vector<TokenId> ids = token_ids(*row.find("ids"));
        EXPECT_EQ(tokenizer->encode(text, true), ids) << text;
        EXPECT_EQ(tokenizer->decode(ids), text);
    }
    EXPECT_EQ(rows, 47);
}

TEST(OfficialTokenizer, EngramMapEqualsTheRecordedOne) {
    const auto tokenizer = official_tokenizer();
    if (tokenizer == nullptr) GTEST_SKIP() << "needs FATHOM_OFFICIAL_TOKENIZER";
    EXPECT_EQ(tokenizer->vocab_size(), 129280);
    const EngramTokenMap map = make_engram_token_map(*tokenizer, tokenizer->vocab_size());
    EXPECT_EQ(map.distinct, 99092);
    // The recorded map is packed; this one is its unpacked copy, where a tester has made one.
    const char* path = std::getenv("FATHOM_OFFICIAL_TOKEN_MAP");
    if (path == nullptr) return;
    const auto golden = parse_json_file(path);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    EXPECT_EQ(map.map, token_ids(*golden->find("map")));
}

}  // namespace
}  // namespace fathom
