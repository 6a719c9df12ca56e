#include "recipe/official_prompt.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

OfficialMessage message(OfficialRole role, std::string content, OfficialTask task = {}) {
    return {.role = role, .content = std::move(content), .task = task};
}

std::string rendered(const OfficialConversation& conversation, Dialect dialect = Dialect::v41) {
    const auto segments = render_official_prompt(conversation, {.dialect = dialect});
    return segments.ok() ? prompt_text(*segments).substr(kBeginOfSentence.size())
                         : std::string(segments.status().message());
}

OfficialMessage answer(std::string content, std::string reasoning) {
    OfficialMessage message{.role = OfficialRole::assistant, .content = std::move(content)};
    message.reasoning_content = std::move(reasoning);
    return message;
}

TEST(OfficialPrompt, AnAnswerIsNotFollowedByAnOpenTurn) {
    EXPECT_EQ(
        rendered({.messages = {message(OfficialRole::user, "q"), answer("a", "r")},
                  .effort_percent = 7}),
        "<｜System｜>Reasoning Effort: 7 (range 1-100, the higher the value, the more thorough "
        "the reasoning)\n\n<｜User｜>q<｜Assistant｜><think>r</think>a<｜end▁of▁sentence｜>");
}

TEST(OfficialPrompt, ReasoningBeforeALaterSystemMessageIsDroppedInV41) {
    const OfficialConversation conversation{
        .messages = {message(OfficialRole::system, "s"), message(OfficialRole::user, "q"),
                     answer("a", "r"), message(OfficialRole::system, "t"), answer("b", "u")},
        .effort = ReasoningEffort::low};
    const std::string v41 = rendered(conversation);
    EXPECT_EQ(
        v41.substr(v41.find("s<｜User｜>")),
        "s<｜User｜>q<｜Assistant｜></think>a<｜end▁of▁sentence｜><｜System｜>t<｜Assistant｜>"
        "<think>u</think>b<｜end▁of▁sentence｜>");
    EXPECT_EQ(rendered(conversation, Dialect::v4),
              "s<｜User｜>q<｜Assistant｜><think>r</think>a<｜end▁of▁sentence｜>tu</think>b"
              "<｜end▁of▁sentence｜>");
}

TEST(OfficialPrompt, AMessageWithATaskEndsItsTurn) {
    EXPECT_EQ(rendered({.messages = {message(OfficialRole::user, "a"),
                                     message(OfficialRole::user, "b", OfficialTask::read_url),
                                     message(OfficialRole::user, "c", OfficialTask::action)},
                        .thinking = false}),
              "<｜User｜>a\n\nb<｜User｜>c<｜Assistant｜></think><｜action｜>");
}

TEST(OfficialPrompt, DevelopersAreOfV4AndDroppedWithOldReasoning) {
    const OfficialConversation conversation{
        .messages = {message(OfficialRole::developer, "d"), message(OfficialRole::user, "q")},
        .effort = ReasoningEffort::low};
    EXPECT_EQ(rendered(conversation), "messages[0].role: V4.1 has no role developer");
    EXPECT_EQ(rendered(conversation, Dialect::v4), "<｜User｜>q<｜Assistant｜><think>");
}

TEST(OfficialPrompt, V41UnwrapsArgumentsWithinAString) {
    OfficialMessage call{.role = OfficialRole::assistant};
    call.tool_calls = {{"1", "f", R"("{\"k\":1}")"}};
    const OfficialConversation conversation{.messages = {call}, .thinking = false};
    EXPECT_NE(rendered(conversation).find("name=\"k\" string=\"false\">1<"), std::string::npos);
    EXPECT_NE(rendered(conversation, Dialect::v4).find("name=\"arguments\" string=\"true\">"),
              std::string::npos);
}

}  // namespace
}  // namespace fathom
