#include "recipe/prompt.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "base/sha256.h"
#include "recipe/engram_token_map.h"
#include "recipe/test_tokenizer.h"

namespace fathom {
namespace {

using testing::tiny_tokenizer;

constexpr std::string_view kEffort75 =
    "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n";

Message message(Role role, std::string content, bool prefix = false,
                std::optional<std::string> reasoning = {}) {
    return {.role = role,
            .content = std::move(content),
            .reasoning_content = std::move(reasoning),
            .prefix = prefix};
}

std::string rendered(const Conversation& conversation) {
    const auto segments = render_prompt(conversation);
    EXPECT_TRUE(segments.ok()) << segments.status().message();
    return segments.ok() ? prompt_text(*segments) : "";
}

std::string chat(std::vector<Message> messages) {
    return rendered({.messages = std::move(messages), .thinking = false});
}
std::string thinking(std::vector<Message> messages,
                     ReasoningEffort effort = ReasoningEffort::none) {
    return rendered({.messages = std::move(messages), .effort = effort});
}

TEST(Conversation, ChatTurns) {
    const std::string bos(kBeginOfSentence);
    EXPECT_EQ(chat({}), bos + "<｜Assistant｜></think>");
    EXPECT_EQ(chat({message(Role::user, "Hello")}), bos + "<｜User｜>Hello<｜Assistant｜></think>");
    EXPECT_EQ(chat({message(Role::system, "S"), message(Role::user, "Hello")}),
              bos + "<｜System｜>S<｜User｜>Hello<｜Assistant｜></think>");
    EXPECT_EQ(chat({message(Role::system, ""), message(Role::user, "Hi")}),
              bos + "<｜System｜><｜User｜>Hi<｜Assistant｜></think>");
    EXPECT_EQ(chat({message(Role::system, "a"), message(Role::system, "b")}),
              bos + "<｜System｜>a<｜System｜>b<｜Assistant｜></think>");
    EXPECT_EQ(chat({message(Role::user, ""), message(Role::user, "x"), message(Role::user, "")}),
              bos + "<｜User｜>\n\nx\n\n<｜Assistant｜></think>");
}

TEST(Conversation, ThinkingTurnsStateTheEffort) {
    const std::string start = std::string(kBeginOfSentence) + "<｜System｜>";
    const std::string end = "<｜User｜>Hi<｜Assistant｜><think>";
    const auto prompt = [&](int percent) {
        return start + "Reasoning Effort: " + std::to_string(percent) +
               std::string(kEffort75.substr(20)) + end;
    };
    const std::vector<Message> hi = {message(Role::user, "Hi")};
    EXPECT_EQ(thinking(hi), prompt(75));
    EXPECT_EQ(thinking(hi, ReasoningEffort::low), prompt(50));
    EXPECT_EQ(thinking(hi, ReasoningEffort::high), prompt(75));
    EXPECT_EQ(thinking(hi, ReasoningEffort::xhigh), prompt(75));
    EXPECT_EQ(thinking(hi, ReasoningEffort::max), prompt(100));
    EXPECT_EQ(thinking({}), std::string(kBeginOfSentence) + "<｜Assistant｜><think>");
    EXPECT_EQ(thinking({message(Role::system, "S"), message(Role::user, "Hi")}),
              start + std::string(kEffort75) + "S" + end);
}

TEST(Conversation, PastReasoningIsDropped) {
    EXPECT_EQ(chat({message(Role::user, "q1"), message(Role::assistant, "a1", false, "r1"),
                    message(Role::user, "q2")}),
              std::string(kBeginOfSentence) +
                  "<｜User｜>q1<｜Assistant｜></think>a1<｜end▁of▁sentence｜><｜User｜>q2"
                  "<｜Assistant｜></think>");
}

TEST(Conversation, APrefixIsLeftOpen) {
    const auto ending = [](const std::string& content, const std::optional<std::string>& reasoning,
                           bool think) {
        const std::string prompt =
            rendered({.messages = {message(Role::user, "q"),
                                   message(Role::assistant, content, true, reasoning)},
                      .thinking = think});
        return prompt.substr(prompt.find("<｜Assistant｜>"));
    };
    EXPECT_EQ(ending("c", "r", false), "<｜Assistant｜></think>c");
    EXPECT_EQ(ending("", {}, true), "<｜Assistant｜><think>");
    EXPECT_EQ(ending("", "r", true), "<｜Assistant｜><think>r");
    EXPECT_EQ(ending("c", "r", true), "<｜Assistant｜><think>r</think>c");
    EXPECT_EQ(ending("c", {}, true), "<｜Assistant｜><think></think>c");
    EXPECT_EQ(thinking({message(Role::assistant, "c", true, "r")}),
              std::string(kBeginOfSentence) + "<｜System｜>" + std::string(kEffort75) +
                  "<｜Assistant｜></think>c");
}

TEST(Conversation, APrefixBeforeTheEndIsAnError) {
    const auto segments = render_prompt(
        {.messages = {message(Role::assistant, "c", true), message(Role::user, "q")}});
    ASSERT_FALSE(segments.ok());
    EXPECT_EQ(segments.status().code(), StatusCode::invalid_argument);
    EXPECT_EQ(segments.status().message(),
              "messages[0].prefix: only the last message can be continued, got true on message 1 "
              "of 2");
    EXPECT_EQ(chat({message(Role::user, "q", true), message(Role::user, "p")}),
              chat({message(Role::user, "q\n\np")}));
}

TEST(Conversation, OnlyGroundingMarksOfTheAssistantAreTokens) {
    const std::string marks = "<｜ref｜>cat<｜/ref｜>";
    const auto segments =
        render_prompt({.messages = {message(Role::user, marks), message(Role::assistant, marks)},
                       .thinking = false});
    ASSERT_TRUE(segments.ok());
    EXPECT_EQ(*segments, (std::vector<PromptSegment>{{true, std::string(kBeginOfSentence)},
                                                     {true, std::string(kUserToken)},
                                                     {false, marks},
                                                     {true, std::string(kAssistantToken)},
                                                     {true, std::string(kThinkEnd)},
                                                     {true, "<｜ref｜>"},
                                                     {false, "cat"},
                                                     {true, "<｜/ref｜>"},
                                                     {true, std::string(kEndOfSentence)},
                                                     {true, std::string(kAssistantToken)},
                                                     {true, std::string(kThinkEnd)}}));
}

std::string rendered_v4(const Conversation& conversation,
                        EffortDialect effort = EffortDialect::v4_0731) {
    const auto segments =
        render_prompt(conversation, {.dialect = Dialect::v4, .effort_dialect = effort});
    EXPECT_TRUE(segments.ok()) << segments.status().message();
    return segments.ok() ? prompt_text(*segments) : "";
}

TEST(ConversationV4, EffortIsATextWhoseHashTheSpecificationGives) {
    const auto hash_of = [](ReasoningEffort effort, EffortDialect dialect) {
        const std::string prompt = rendered_v4({.effort = effort}, dialect);
        const std::size_t begin = kBeginOfSentence.size();
        Sha256 hash;
        hash.update(prompt.substr(begin, prompt.find("<｜Assistant｜>") - begin));
        return hex_text(hash.finish());
    };
    const std::string absolute = "f7a24f3b3050d4a83781e9b755b316aae2ec1d9dc87562541d90bcb04d7350f7";
    const std::string beyond = "53fb31b8392ec5b4a926481943efc67636748f137c1a49d493a7af4d4fa55d2c";
    const std::string empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    struct Case {
        ReasoningEffort effort;
        std::string since_0731, original;
    };
    for (const Case& c :
         {Case{ReasoningEffort::none, absolute, empty}, Case{ReasoningEffort::low, empty, empty},
          Case{ReasoningEffort::high, absolute, empty},
          Case{ReasoningEffort::xhigh, absolute, empty},
          Case{ReasoningEffort::max, beyond, absolute}}) {
        EXPECT_EQ(hash_of(c.effort, EffortDialect::v4_0731), c.since_0731);
        EXPECT_EQ(hash_of(c.effort, EffortDialect::v4_original), c.original);
    }
}

TEST(ConversationV4, ResultsAfterUserTextStartANewTurn) {
    const std::vector<Message> messages = {message(Role::user, "a"), message(Role::tool, "b"),
                                           message(Role::tool, "c"), message(Role::user, "d")};
    const std::string results = "<tool_result>b</tool_result>\n\n<tool_result>c</tool_result>\n\nd";
    EXPECT_EQ(rendered_v4({.messages = messages, .thinking = false}),
              std::string(kBeginOfSentence) + "<｜User｜>a<｜User｜>" + results +
                  "<｜Assistant｜></think>");
    EXPECT_EQ(chat(messages), std::string(kBeginOfSentence) + "<｜User｜>a\n\n" + results +
                                  "<｜Assistant｜></think>");
}

TEST(Conversation, NumericEffortTakesThePlaceOfAName) {
    EXPECT_NE(rendered({.messages = {message(Role::user, "q")},
                        .effort = ReasoningEffort::max,
                        .effort_percent = 33})
                  .find("Reasoning Effort: 33 (range 1-100"),
              std::string::npos);
}

// The assistant turns of user, assistant, user, assistant, with tools or without.
std::string history(HistoryReasoning rule, bool tools, bool think = true) {
    Conversation conversation{
        .messages = {message(Role::user, "q"), message(Role::assistant, "a", false, "r"),
                     message(Role::user, "p"), message(Role::assistant, "b", false, "s")},
        .thinking = think};
    if (tools) conversation.tools = {{.name = "f"}};
    const auto segments = render_prompt(conversation, {.history_reasoning = rule});
    std::string prompt = prompt_text(*segments);
    return prompt.substr(prompt.find("<｜User｜>"));
}

TEST(Conversation, WhichPastReasoningIsShown) {
    const auto prompt = [](const std::string& first, const std::string& second,
                           const std::string& last = "<think>") {
        return "<｜User｜>q<｜Assistant｜>" + first + "</think>a<｜end▁of▁sentence｜><｜User｜>p" +
               "<｜Assistant｜>" + second + "</think>b<｜end▁of▁sentence｜><｜Assistant｜>" + last;
    };
    EXPECT_EQ(history(HistoryReasoning::drop_without_tools, false), prompt("", ""));
    EXPECT_EQ(history(HistoryReasoning::official, false), prompt("", "<think>s"));
    EXPECT_EQ(history(HistoryReasoning::keep, false), prompt("<think>r", "<think>s"));
    for (const auto rule : {HistoryReasoning::drop_without_tools, HistoryReasoning::official,
                            HistoryReasoning::keep}) {
        EXPECT_EQ(history(rule, true), prompt("<think>r", "<think>s"));
        EXPECT_EQ(history(rule, true, false), prompt("", "", "</think>"));
    }
}

TEST(Conversation, ImagesAreTokensAndKnowTheirNumber) {
    Message user = message(Role::user, "<｜image｜>ab");
    user.content.images = {14, 15};
    Message tool = message(Role::tool, "");
    tool.content.append_image();
    RenderOptions options;
    options.tokens.image = "<picture>";
    const auto segments = render_prompt({.messages = {user, tool}, .thinking = false}, options);
    ASSERT_TRUE(segments.ok());
    EXPECT_EQ(*segments, (std::vector<PromptSegment>{{true, std::string(kBeginOfSentence)},
                                                     {true, std::string(kUserToken)},
                                                     {false, "<｜image｜>a"},
                                                     {true, "<picture>", 0},
                                                     {false, "b"},
                                                     {true, "<picture>", 1},
                                                     {false, "\n\n<tool_result>"},
                                                     {true, "<picture>", 2},
                                                     {false, "</tool_result>"},
                                                     {true, std::string(kAssistantToken)},
                                                     {true, std::string(kThinkEnd)}}));
}

TEST(Completion, ASuffixMakesAHole) {
    EXPECT_EQ(prompt_text(render_completion_prompt("a", {})), "<｜begin▁of▁sentence｜>a");
    const auto segments = render_completion_prompt("<｜fim▁hole｜>", "b");
    EXPECT_EQ(prompt_text(segments),
              "<｜begin▁of▁sentence｜><｜fim▁begin｜><｜fim▁hole｜><｜fim▁hole｜>b<｜fim▁end｜>");
    EXPECT_FALSE(segments[2].special);
    EXPECT_EQ(segments.size(), 6u);
}

TEST(Conversation, OldLogsAreEncodedWithTheSpecialsInTheirText) {
    const auto segments =
        render_prompt({.messages = {message(Role::user, "a<｜User｜>")}, .thinking = false});
    ASSERT_TRUE(segments.ok());
    const auto plain = encode_prompt(*segments, *tiny_tokenizer());
    const auto recognized = encode_prompt(*segments, *tiny_tokenizer(), ContentSpecials::recognize);
    ASSERT_TRUE(plain.ok() && recognized.ok());
    EXPECT_GT(plain->size(), recognized->size());
    EXPECT_EQ(*recognized, tiny_tokenizer()->encode(prompt_text(*segments), true));
}

std::int64_t special_count(const std::vector<PromptSegment>& segments) {
    return std::count_if(segments.begin(), segments.end(),
                         [](const PromptSegment& segment) { return segment.special; });
}

Conversation conversation_with_texts(const std::vector<std::string>& texts) {
    const auto message_with = [&](Role role, std::size_t text) {
        return Message{.role = role, .content = texts[text % texts.size()]};
    };
    Message assistant = message_with(Role::assistant, 2);
    assistant.reasoning_content = texts[3 % texts.size()];
    Json arguments = Json::object({{texts[0], texts[1 % texts.size()]}});
    assistant.tool_calls = {{texts[0], texts[1 % texts.size()], arguments.dump()},
                            {texts[0], texts[2 % texts.size()], texts[3 % texts.size()]}};
    const Tool tool{.name = texts[0], .description = texts.back(), .parameters = Json(texts[0])};
    Conversation conversation{
        .messages = {message_with(Role::system, 0), message_with(Role::user, 1), assistant,
                     message_with(Role::tool, 4), message_with(Role::latest_reminder, 5)}};
    conversation.tools = {tool};
    conversation.response_format.kind = ResponseFormatKind::json_schema;
    conversation.response_format.schema = Json(texts.back());
    return conversation;
}

// Whatever the parts of a request hold, they add no special token: the prompt has exactly as many
// as with harmless text, and decodes to its text.
RC_GTEST_PROP(Conversation, TextOfARequestForgesNoSpecialToken, (bool think, bool v4)) {
    std::vector<std::string> texts;
    for (int i = 0; i < 6; ++i) {
        texts.push_back(*testing::tricky_text());
        // As arguments an object has as many parameters, and marks around them, as members.
        const Result<Json> json = parse_json(texts.back());
        RC_PRE(!json.ok() || !json->is_object());
    }
    Conversation conversation = conversation_with_texts(texts);
    Conversation harmless = conversation_with_texts({"x"});
    conversation.thinking = harmless.thinking = think;
    const RenderOptions options{.dialect = v4 ? Dialect::v4 : Dialect::v41};
    const auto segments = render_prompt(conversation, options);
    const auto harmless_segments = render_prompt(harmless, options);
    RC_ASSERT(segments.ok() && harmless_segments.ok());
    RC_ASSERT(special_count(*segments) == special_count(*harmless_segments));
    for (std::size_t i = 1; i < segments->size(); ++i) {
        RC_ASSERT((*segments)[i].special || (*segments)[i - 1].special);
        RC_ASSERT(!(*segments)[i].text.empty());
    }
    const auto ids = encode_prompt(*segments, *tiny_tokenizer());
    RC_ASSERT(ids.ok());
    RC_ASSERT(tiny_tokenizer()->decode(*ids) == prompt_text(*segments));
    std::int64_t added = 0;
    for (const TokenId id : *ids) {
        for (const AddedToken& token : tiny_tokenizer()->added_tokens())
            added += token.id == id;
    }
    RC_ASSERT(added == special_count(*segments));
}

TEST(EngramTokenMap, NormalisesAsTheRuleSays) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {" THE", "the"},        {"  a \t b ", "a b"}, {"\n", " "},     {"\u00A0", " "},
        {"e\u0301", "e"},       {"İ", "i"},           {"ﬁ", "fi"},     {"½", "1\u20442"},
        {"\u2028", ""},         {"\u0301", ""},       {"\uE000", " "}, {"x\uE000", "x "},
        {"\u001Ca", "\u001Ca"},
    };
    for (const auto& [text, expected] : cases)
        EXPECT_EQ(engram_normalise(text), expected);
}

TEST(EngramTokenMap, NumbersKeysInOrderOfAppearance) {
    const auto tokenizer = Tokenizer::parse(testing::small_tokenizer_json().dump(), "small");
    ASSERT_TRUE(tokenizer.ok());
    const EngramTokenMap map = make_engram_token_map(**tokenizer, 310);
    ASSERT_EQ(map.map.size(), 310u);
    EXPECT_EQ(map.map['a'], map.map['A']);
    EXPECT_NE(map.map['a'], map.map['b']);
    EXPECT_EQ(map.map['\t'], map.map[' ']);
    EXPECT_NE(map.map[0x80], map.map[0x81]);  // parts of characters keep their spelling
    EXPECT_EQ(map.map[280], map.map[309]);    // ids of no token are the empty text
    std::int32_t next = 0;
    for (const std::int32_t number : map.map) {
        EXPECT_LE(number, next);
        next = std::max(next, number + 1);
    }
    EXPECT_EQ(map.distinct, next);
}

}  // namespace
}  // namespace fathom
