// The tokenizer, the detokenizer, prompt rendering and the Engram map against the recorded results
// of the reference (golden/recipe, golden/kernels, golden/model; the READMEs there explain the
// fields). The number of rows that a filter lets through is asserted, so that it cannot shrink
// unseen.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "json_lines.h"
#include "recipe/prompt.h"
#include "recipe/detokenizer.h"
#include "recipe/engram_token_map.h"
#include "support.h"

namespace fathom {
namespace {

using testing::flag_of;
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

// Splits a recorded prompt at its special ranges.
std::vector<PromptSegment> golden_segments(const Json& row) {
    const std::string& prompt = row.find("prompt")->as_string();
    std::vector<PromptSegment> segments;
    std::size_t done = 0;
    const auto text_until = [&](std::size_t end) {
        if (end > done) segments.push_back({false, prompt.substr(done, end - done)});
        done = end;
    };
    for (const Json& range : row.find("special_ranges")->items()) {
        text_until(static_cast<std::size_t>(range.items()[0].as_int64()));
        const auto end = static_cast<std::size_t>(range.items()[1].as_int64());
        segments.push_back({true, prompt.substr(done, end - done)});
        done = end;
    }
    text_until(prompt.size());
    return segments;
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

bool absent_or_empty(const Json& object, std::string_view key) {
    const Json* member = object.find(key);
    if (member == nullptr || member->is_null()) return true;
    if (member->is_array()) return member->items().empty();
    return member->is_integer() && member->as_int64() == 0;
}

// For readable failures: a special token is set between ⟦ and ⟧.
std::string marked(const std::vector<PromptSegment>& segments) {
    std::string text;
    for (const PromptSegment& segment : segments) {
        text += segment.special ? "⟦" + segment.text + "⟧" : segment.text;
    }
    return text;
}

// A lowered conversation, as far as this part of the codec renders it: system, user and assistant
// turns; no images; no tool calls; no tools in effect; no answer format with text in the prompt.
std::optional<Conversation> supported_conversation(const Json& lowered) {
    const std::string format = text_of(lowered, "response_format", "text");
    if (format != "text" && format != "regex") return {};
    if (!absent_or_empty(lowered, "response_schema")) return {};
    const bool tools_off = text_of(lowered, "tool_choice", "auto") == "none";
    if (!tools_off && !absent_or_empty(lowered, "tools")) return {};

    Conversation conversation{.messages = {}, .thinking = flag_of(lowered, "thinking_mode", true)};
    const std::string effort = text_of(lowered, "reasoning_effort");
    if (effort == "low") conversation.effort = ReasoningEffort::low;
    if (effort == "high") conversation.effort = ReasoningEffort::high;
    if (effort == "xhigh") conversation.effort = ReasoningEffort::xhigh;
    if (effort == "max") conversation.effort = ReasoningEffort::max;
    for (const Json& source : lowered.find("messages")->items()) {
        for (const std::string_view key : {"images", "image_sources", "tool_calls", "tools"}) {
            if (!absent_or_empty(source, key)) return {};
        }
        Message message;
        message.content = text_of(source, "content");
        const std::string role = text_of(source, "role");
        if (role == "assistant") {
            message.role = Role::assistant;
        } else if (role == "system") {
            message.role = Role::system;
        } else if (role != "user") {
            return {};
        }
        if (const Json* reasoning = source.find("reasoning_content")) {
            if (reasoning->is_string()) message.reasoning_content = reasoning->as_string();
        }
        message.prefix = flag_of(source, "prefix");
        conversation.messages.push_back(std::move(message));
    }
    return conversation;
}

TEST(RecipeGolden, ConversationsOfPlainTurnsRenderAsTheReference) {
    FATHOM_NEED_SHARED("golden/recipe/prompts.jsonl");
    int rows = 0;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/prompts.jsonl"))) {
        const bool direct = text_of(row, "protocol") == "conversation";
        const Json& lowered = *row.find(direct ? "conversation" : "expect");
        if (!direct && text_of(lowered, "model_version") != "v41") continue;
        const auto conversation = supported_conversation(lowered);
        if (!conversation) continue;
        ++rows;
        SCOPED_TRACE(text_of(row, "id"));
        const Json& golden = direct ? *row.find("v41") : lowered;
        const auto segments = render_prompt(*conversation);
        ASSERT_TRUE(segments.ok()) << segments.status().message();
        EXPECT_EQ(prompt_text(*segments), text_of(golden, "prompt"));
        EXPECT_EQ(marked(*segments), marked(golden_segments(golden)));
    }
    EXPECT_EQ(rows, 411);
}

// A chat request that is its own lowering: text contents, plain roles, no option but `thinking`.
std::optional<Json> trivially_lowered(const Json& row) {
    if (text_of(row, "protocol") == "conversation") return *row.find("conversation");
    if (text_of(row, "protocol") != "chat" || row.find("options") != nullptr) return {};
    const Json& body = *row.find("body");
    Json lowered = Json::object();
    for (const auto& [key, value] : body.members()) {
        if (key == "messages") {
            lowered.set(key, value);
        } else if (key == "thinking") {
            lowered.set("thinking_mode", text_of(value, "type") != "disabled");
        } else if (key != "model" || value.as_string() != "DeepSeek-V4.1-Flash") {
            return {};
        }
    }
    for (const Json& message : body.find("messages")->items()) {
        const Json* content = message.find("content");
        if (content == nullptr || !content->is_string()) return {};
    }
    return lowered;
}

TEST(RecipeGolden, PlainRequestsGiveTheReferencesIds) {
    FATHOM_NEED_SHARED("golden/recipe/encode.jsonl");
    const auto tokenizer = load(shared_path("golden/recipe/tokenizer.json"));
    ASSERT_NE(tokenizer, nullptr);
    int rows = 0;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/encode.jsonl"))) {
        if (row.find("ids") == nullptr) continue;
        const auto lowered = trivially_lowered(row);
        if (!lowered) continue;
        const auto conversation = supported_conversation(*lowered);
        if (!conversation) continue;
        ++rows;
        SCOPED_TRACE(text_of(row, "id"));
        const auto segments = render_prompt(*conversation);
        ASSERT_TRUE(segments.ok()) << segments.status().message();
        EXPECT_EQ(prompt_text(*segments), text_of(row, "prompt"));
        const auto ids = encode_prompt(*segments, *tokenizer);
        ASSERT_TRUE(ids.ok()) << ids.status().message();
        EXPECT_EQ(*ids, token_ids(*row.find("ids")));
    }
    EXPECT_EQ(rows, 30);
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
