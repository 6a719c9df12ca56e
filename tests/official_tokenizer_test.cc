// The vectors that accompany recipe.md (text to ids; conversation to prompt and ids) and the Engram
// map of the release. Prompts are checked wherever the specification is; ids need the release's
// tokenizer.json, which is not part of this repository: set FATHOM_OFFICIAL_TOKENIZER to its path.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>

#include "json_lines.h"
#include "recipe/engram_token_map.h"
#include "recipe/official_prompt.h"
#include "recipe/prompt.h"
#include "recipe/vectors/rows.h"
#include "support.h"

namespace fathom {
namespace {

using testing::flag_of;
using testing::shared_path;
using testing::text_of;
using testing::token_ids;

// The vectors of one kind that accompany the specification.
std::vector<Json> spec_vectors(std::string_view kind) {
    std::vector<Json> rows;
    for (Json& row : testing::read_json_lines(shared_path("spec/recipe-vectors.jsonl")))
        if (text_of(row, "kind") == kind) rows.push_back(std::move(row));
    return rows;
}

std::vector<ToolCall> calls_of(const Json& message) {
    std::vector<ToolCall> calls;
    const Json* list = message.find("tool_calls");
    if (list == nullptr) return calls;
    for (const Json& call : list->items()) {
        const Json* function = call.find("function");
        const Json& named = function != nullptr ? *function : call;
        calls.push_back({text_of(call, "id"), text_of(named, "name"), text_of(named, "arguments")});
    }
    return calls;
}

Conversation spec_conversation(const Json& conv) {
    Conversation conversation;
    conversation.thinking = flag_of(conv, "thinking", true);
    const std::string effort = text_of(conv, "effort");
    if (effort == "low") conversation.effort = ReasoningEffort::low;
    if (effort == "max") conversation.effort = ReasoningEffort::max;
    for (const Json& source : conv.find("messages")->items()) {
        Json plain = source;
        plain.set("tool_calls", Json());
        conversation.messages.push_back(row_message(plain, kImageToken));
        conversation.messages.back().tool_calls = calls_of(source);
    }
    conversation.tools = row_tools(conv);
    for (Tool& tool : conversation.tools)
        if (!tool.parameters) tool.parameters = Json::object();  // as requests are lowered
    const std::string choice = text_of(conv, "tool_choice");
    if (choice == "none") conversation.tool_choice = ToolChoice::none;
    if (choice == "required") conversation.tool_choice = ToolChoice::required;
    if (flag_of(conv, "json")) conversation.response_format.kind = ResponseFormatKind::json_object;
    return conversation;
}

OfficialMessage official_message(const Json& source) {
    const std::map<std::string, OfficialRole> roles = {
        {"system", OfficialRole::system}, {"developer", OfficialRole::developer},
        {"user", OfficialRole::user},     {"assistant", OfficialRole::assistant},
        {"tool", OfficialRole::tool},     {"latest_reminder", OfficialRole::latest_reminder}};
    const std::map<std::string, OfficialTask> tasks = {{"", OfficialTask::none},
                                                       {"action", OfficialTask::action},
                                                       {"query", OfficialTask::query},
                                                       {"title", OfficialTask::title}};
    OfficialMessage message;
    message.role = roles.at(text_of(source, "role"));
    message.content = text_of(source, "content");
    message.reasoning_content = row_optional_text(source, "reasoning_content");
    message.tool_calls = calls_of(source);
    message.tool_call_id = text_of(source, "tool_call_id");
    if (const Json* tools = source.find("tools"))
        for (const Json& tool : tools->items())
            message.tools.push_back(*tool.find("function"));
    if (const Json* format = source.find("response_format")) message.response_format = *format;
    message.task = tasks.at(text_of(source, "task"));
    message.without_end = flag_of(source, "wo_eos");
    return message;
}

// Null where the file is not given.
std::shared_ptr<const Tokenizer> official_tokenizer() {
    const char* path = std::getenv("FATHOM_OFFICIAL_TOKENIZER");
    if (path == nullptr) return nullptr;
    auto tokenizer = Tokenizer::load(path);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return tokenizer.ok() ? *tokenizer : nullptr;
}

// Compares the prompt, and its ids where the row and this machine have what that needs. Returns
// whether ids were compared.
bool expect_prompt(const Json& row, const Result<std::vector<PromptSegment>>& segments,
                   const Tokenizer* tokenizer) {
    EXPECT_TRUE(segments.ok()) << segments.status().message();
    if (!segments.ok()) return false;
    EXPECT_EQ(prompt_text(*segments), text_of(row, "prompt"));
    if (row.find("ids") == nullptr || tokenizer == nullptr) return false;
    const auto ids = encode_prompt(*segments, *tokenizer);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    if (!ids.ok()) return false;
    EXPECT_EQ(*ids, token_ids(*row.find("ids")));
    return true;
}

TEST(OfficialTokenizer, PromptVectorsOfTheSpecificationHold) {
    FATHOM_NEED_SHARED("spec/recipe-vectors.jsonl");
    const auto tokenizer = official_tokenizer();
    int prompts = 0;
    int with_ids = 0;
    for (const Json& row : spec_vectors("prompt")) {
        // This row stands for pictures by their token, which typed text cannot be here.
        if (text_of(row, "name") == "images") continue;
        ++prompts;
        SCOPED_TRACE(text_of(row, "v") + " " + text_of(row, "name"));
        const RenderOptions options{.dialect =
                                        text_of(row, "v") == "v4" ? Dialect::v4 : Dialect::v41};
        // The tokenizer at hand is that of V4.1; V4's has other special tokens.
        const bool compare_ids = options.dialect == Dialect::v41;
        with_ids += expect_prompt(row, render_prompt(spec_conversation(*row.find("conv")), options),
                                  compare_ids ? tokenizer.get() : nullptr);
    }
    EXPECT_EQ(prompts, 48);
    EXPECT_EQ(with_ids, tokenizer == nullptr ? 0 : 20);
}

TEST(OfficialTokenizer, PromptsOfTheOfficialScriptHold) {
    FATHOM_NEED_SHARED("spec/recipe-vectors.jsonl");
    int rows = 0;
    for (const Json& row : spec_vectors("official_v4")) {
        ++rows;
        SCOPED_TRACE(text_of(row, "name"));
        OfficialConversation conversation;
        for (const Json& source : row.find("messages")->items())
            conversation.messages.push_back(official_message(source));
        conversation.thinking = text_of(row, "mode") == "thinking";
        const Json& arguments = *row.find("kw");
        conversation.drop_thinking = flag_of(arguments, "drop_thinking", true);
        if (text_of(arguments, "reasoning_effort") == "max")
            conversation.effort = ReasoningEffort::max;
        expect_prompt(
            row,
            render_official_prompt(conversation, {.dialect = Dialect::v4,
                                                  .effort_dialect = EffortDialect::v4_original}),
            nullptr);
    }
    EXPECT_EQ(rows, 13);
}

TEST(OfficialTokenizer, TokenVectorsOfTheSpecificationHold) {
    FATHOM_NEED_SHARED("spec/recipe-vectors.jsonl");
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
