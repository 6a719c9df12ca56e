#include "recipe/prompt.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

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

// Whatever the messages hold, they add no special token: the prompt has exactly those of the
// template, and decodes to its text.
RC_GTEST_PROP(Conversation, TextOfARequestForgesNoSpecialToken, (bool think)) {
    const std::string system = *testing::tricky_text();
    const std::string user = *testing::tricky_text();
    const std::string answer = *testing::tricky_text();
    const auto segments =
        render_prompt({.messages = {message(Role::system, system), message(Role::user, user),
                                    message(Role::assistant, answer)},
                       .thinking = think});
    RC_ASSERT(segments.ok());
    const auto ids = encode_prompt(*segments, *tiny_tokenizer());
    RC_ASSERT(ids.ok());
    RC_ASSERT(tiny_tokenizer()->decode(*ids) == prompt_text(*segments));
    std::int64_t added = 0;
    for (const TokenId id : *ids) {
        for (const AddedToken& token : tiny_tokenizer()->added_tokens())
            added += token.id == id;
    }
    RC_ASSERT(added == 8);
    for (std::size_t i = 1; i < segments->size(); ++i) {
        RC_ASSERT((*segments)[i].special || (*segments)[i - 1].special);
        RC_ASSERT(!(*segments)[i].text.empty());
    }
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
