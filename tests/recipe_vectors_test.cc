// Prompt rendering and the rules beside it against the recorded results of the reference
// (golden/recipe; the README there explains the fields). Each test goes through a whole file, says
// how many rows fail and shows the first, and asserts the number of rows.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "json_lines.h"
#include "recipe/image_tokens.h"
#include "recipe/output_budget.h"
#include "recipe/prompt.h"
#include "recipe/strict_schema.h"
#include "recipe_rows.h"
#include "support.h"

namespace fathom {
namespace {

using testing::conversation_of;
using testing::golden_segments;
using testing::marked;
using testing::read_json_lines;
using testing::render_options_of;
using testing::shared_path;
using testing::text_of;
using testing::token_ids;

// Counts rows; remembers the first that differs.
class Rows {
  public:
    void compare(const std::string& id, const std::string& ours, const std::string& golden) {
        ++count_;
        if (ours == golden) return;
        if (failed_++ > 0) return;
        std::size_t at = 0;
        while (at < ours.size() && at < golden.size() && ours[at] == golden[at])
            ++at;
        const std::size_t from = at < 60 ? 0 : at - 60;
        first_ = id + " differs at byte " + std::to_string(at) +
                 "\n  ours:   " + ours.substr(from, 200) +
                 "\n  golden: " + golden.substr(from, 200);
    }
    void expect(int rows) const {
        EXPECT_EQ(count_, rows);
        EXPECT_EQ(failed_, 0) << first_;
    }

  private:
    int count_ = 0;
    int failed_ = 0;
    std::string first_;
};

std::string rendered(const Conversation& conversation, const RenderOptions& options) {
    const auto segments = render_prompt(conversation, options);
    return segments.ok() ? marked(*segments) : std::string(segments.status().message());
}

std::string joined(const std::vector<TokenId>& ids) {
    std::string text;
    for (const TokenId id : ids)
        text += std::to_string(static_cast<std::int64_t>(id)) + " ";
    return text;
}

// Whether the recorded messages leave open which of the spellings in a text is the image.
bool typed_image_spelling(const Json& lowered) {
    for (const Json& message : lowered.find("messages")->items()) {
        const Json* images = message.find("images");
        if (images == nullptr) continue;
        const std::string text = text_of(message, "content");
        std::int64_t spelled = 0;
        for (std::size_t at = text.find(kImageToken); at != std::string::npos;
             at = text.find(kImageToken, at + 1))
            ++spelled;
        if (spelled > images->as_int64()) return true;
    }
    return false;
}

TEST(RecipeVectors, ConversationsRenderInBothDialects) {
    FATHOM_NEED_SHARED("golden/recipe/prompts.jsonl");
    Rows v41;
    Rows v4;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/prompts.jsonl"))) {
        if (text_of(row, "protocol") != "conversation") continue;
        const Conversation conversation = conversation_of(*row.find("conversation"));
        v41.compare(text_of(row, "id"), rendered(conversation, {.dialect = Dialect::v41}),
                    marked(golden_segments(*row.find("v41"))));
        v4.compare(text_of(row, "id"), rendered(conversation, {.dialect = Dialect::v4}),
                   marked(golden_segments(*row.find("v4"))));
    }
    v41.expect(77);
    v4.expect(77);
}

TEST(RecipeVectors, LoweredRequestsRender) {
    FATHOM_NEED_SHARED("golden/recipe/prompts.jsonl");
    Rows v41;
    Rows v4;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/prompts.jsonl"))) {
        if (text_of(row, "protocol") == "conversation") continue;
        const Json& golden = *row.find("expect");
        if (typed_image_spelling(golden)) continue;
        const bool is_v4 = text_of(golden, "model_version") == "v4";
        const RenderOptions options = render_options_of(row, is_v4 ? Dialect::v4 : Dialect::v41);
        const Conversation conversation = conversation_of(golden, options.tokens.image);
        (is_v4 ? v4 : v41)
            .compare(text_of(row, "id"), rendered(conversation, options),
                     marked(golden_segments(golden)));
    }
    v41.expect(748);
    v4.expect(441);
}

// The lowered form of a request is known where prompts.jsonl has the same request.
std::map<std::string, Json> lowered_by_request() {
    std::map<std::string, Json> lowered;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/prompts.jsonl"))) {
        if (row.find("body") == nullptr || row.find("options") != nullptr) continue;
        if (typed_image_spelling(*row.find("expect"))) continue;
        lowered[text_of(row, "protocol") + row.find("body")->dump()] = *row.find("expect");
    }
    return lowered;
}

TEST(RecipeVectors, PromptsEncodeToTheReferencesIds) {
    FATHOM_NEED_SHARED("golden/recipe/encode.jsonl");
    const auto tokenizer = Tokenizer::load(shared_path("golden/recipe/tokenizer.json"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const std::map<std::string, Json> lowered = lowered_by_request();
    constexpr std::string_view kSpelling = "<｜deepseek_image｜>";
    Rows direct;
    Rows requests;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/encode.jsonl"))) {
        if (row.find("ids") == nullptr) continue;
        RenderOptions options;
        options.tokens.image = kSpelling;
        Conversation conversation;
        if (const Json* given = row.find("conversation")) {
            conversation = conversation_of(*given, kSpelling);
        } else {
            const auto found = lowered.find(text_of(row, "protocol") + row.find("body")->dump());
            if (found == lowered.end()) continue;
            if (text_of(found->second, "model_version") == "v4") options.dialect = Dialect::v4;
            conversation = conversation_of(found->second);
        }
        const auto segments = render_prompt(conversation, options);
        ASSERT_TRUE(segments.ok()) << segments.status().message();
        const auto ids = encode_prompt(*segments, **tokenizer);
        ASSERT_TRUE(ids.ok()) << ids.status().message();
        (row.find("conversation") != nullptr ? direct : requests)
            .compare(text_of(row, "id"), prompt_text(*segments) + joined(*ids),
                     text_of(row, "prompt") + joined(token_ids(*row.find("ids"))));
    }
    direct.expect(3);
    requests.expect(107);
}

TEST(RecipeVectors, ImagesHaveTheirTokens) {
    FATHOM_NEED_SHARED("golden/recipe/images.jsonl");
    Rows rows;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/images.jsonl"))) {
        if (text_of(row, "kind") != "token_count") continue;
        const std::int64_t tokens =
            image_token_count({row.find("width")->as_int64(), row.find("height")->as_int64()});
        rows.compare(text_of(row, "id"), std::to_string(tokens), row.find("tokens")->dump());
    }
    rows.expect(111);
}

// The few settings of a request that the budget depends on.
Conversation budget_settings(const Json& body) {
    Conversation conversation;
    if (const Json* thinking = body.find("thinking"))
        conversation.thinking = text_of(*thinking, "type") != "disabled";
    conversation.effort = testing::effort_of(body);
    return conversation;
}

TEST(RecipeVectors, AnswersHaveTheirBudget) {
    FATHOM_NEED_SHARED("golden/recipe/limits.jsonl");
    Rows rows;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/limits.jsonl"))) {
        const Json& body = *row.find("body");
        OutputBudget budget{.prompt_tokens = row.find("prompt_tokens")->as_int64(),
                            .context_tokens_max = row.find("context_limit")->as_int64(),
                            .max_tokens = {}};
        for (const std::string_view key : {"max_tokens", "max_output_tokens"})
            if (const Json* tokens = body.find(key)) budget.max_tokens = tokens->as_int64();
        const auto resolved = resolve_output_budget(budget, budget_settings(body));
        std::string golden;
        if (const Json* error = row.find("error")) {
            const auto parsed = parse_json(text_of(*error, "body"));
            ASSERT_TRUE(parsed.ok());
            golden = text_of(*parsed->find("error"), "message");
        } else {
            golden = row.find("max_tokens")->dump();
        }
        rows.compare(
            text_of(row, "id"),
            resolved.ok() ? std::to_string(*resolved) : std::string(resolved.status().message()),
            golden);
    }
    rows.expect(165);
}

std::string schema_or_error(const Json& golden, const Json& schema) {
    if (const Json* error = golden.find("error")) return error->as_string();
    const Json* parameters = golden.find("parameters");
    return (parameters != nullptr ? *parameters : schema).dump();
}

TEST(RecipeVectors, StrictSchemasAreNormalised) {
    FATHOM_NEED_SHARED("golden/recipe/strict.jsonl");
    Rows tools;
    Rows formats;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/strict.jsonl"))) {
        const Json& schema = *row.find("schema");
        const auto tool = normalize_strict_parameters(schema);
        tools.compare(text_of(row, "id"),
                      tool.ok() ? tool->dump() : std::string(tool.status().message()),
                      schema_or_error(*row.find("strict"), schema));
        if (tool.ok()) {
            EXPECT_EQ(*normalize_strict_parameters(*tool), *tool);
        }
        const Status format = normalize_strict_format(schema).status();
        formats.compare(text_of(row, "id"),
                        format.ok() ? schema.dump() : std::string(format.message()),
                        schema_or_error(*row.find("format_strict"), schema));
    }
    tools.expect(129);
    formats.expect(129);
}

}  // namespace
}  // namespace fathom
