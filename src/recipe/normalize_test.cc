#include "recipe/normalize.h"

#include <gtest/gtest.h>

#include <string>

namespace fathom {
namespace {

Message message(Role role, std::string content, std::string call_id = {}) {
    return {.role = role, .content = std::move(content), .tool_call_id = std::move(call_id)};
}

Message calls(std::vector<std::string> ids) {
    Message message{.role = Role::assistant};
    for (std::string& id : ids)
        message.tool_calls.push_back({.id = id, .name = "f" + id, .arguments = "{}"});
    return message;
}

// One letter for the role, then the content or the ids of the calls.
std::string outline(std::vector<Message> messages, Dialect dialect, bool json_object = false) {
    Conversation conversation{.messages = std::move(messages)};
    if (json_object) conversation.response_format.kind = ResponseFormatKind::json_object;
    std::string text;
    for (const Turn& turn : normalize_messages(conversation, dialect)) {
        text += text.empty() ? "" : "|";
        text += "suatr"[static_cast<std::size_t>(turn.message.role)];
        text += ":" + turn.message.content.text;
        for (const ToolCall& call : turn.message.tool_calls)
            text += call.id;
    }
    return text;
}

TEST(Normalize, SystemMessagesStayInV41AndMoveToTheFrontInV4) {
    const std::vector<Message> messages = {message(Role::user, "q"), message(Role::system, "a"),
                                           message(Role::user, ""), message(Role::system, ""),
                                           message(Role::system, "b")};
    EXPECT_EQ(outline(messages, Dialect::v41), "u:q|s:a|u:|s:|s:b");
    EXPECT_EQ(outline(messages, Dialect::v4), "s:a\n\nb|u:q");
}

TEST(Normalize, EmptyUserMessagesAreJoinedInV41Only) {
    const std::vector<Message> messages = {message(Role::user, ""), message(Role::user, "x"),
                                           message(Role::user, "")};
    EXPECT_EQ(outline(messages, Dialect::v41), "u:\n\nx\n\n");
    EXPECT_EQ(outline(messages, Dialect::v4), "u:x");
}

TEST(Normalize, OfRemindersInSuccessionV41KeepsTheFirst) {
    const std::vector<Message> messages = {
        message(Role::latest_reminder, "a"), message(Role::latest_reminder, "b"),
        message(Role::user, "q"), message(Role::latest_reminder, "c")};
    EXPECT_EQ(outline(messages, Dialect::v41), "r:a|u:q|r:c");
    EXPECT_EQ(outline(messages, Dialect::v4), "r:a|r:b|u:q|r:c");
}

TEST(Normalize, ResultsOfARunTakeTheOrderOfTheCallsInV41) {
    const std::vector<Message> messages = {
        calls({"y", "x"}), message(Role::tool, "1", "x"), message(Role::user, "mid"),
        message(Role::tool, "2", "unknown"), message(Role::tool, "3", "y")};
    EXPECT_EQ(outline(messages, Dialect::v41), "a:yx|t:2|u:mid|t:3|t:1");
}

TEST(Normalize, CallsAndTheResultsRightAfterThemAreSortedByIdInV4) {
    EXPECT_EQ(outline({calls({"y", "x"}), message(Role::tool, "1", "y"),
                       message(Role::tool, "2", "x"), message(Role::tool, "3", "a")},
                      Dialect::v4),
              "a:xy|t:2|t:1|t:3");
    EXPECT_EQ(outline({calls({"y", "x"}), message(Role::tool, "1", "y"), message(Role::user, "mid"),
                       message(Role::tool, "2", "x")},
                      Dialect::v4),
              "a:xy|t:1|u:mid|t:2");
}

TEST(Normalize, AHeaderNeedsASystemMessage) {
    for (const Dialect dialect : {Dialect::v4, Dialect::v41}) {
        EXPECT_EQ(outline({message(Role::user, "q")}, dialect), "u:q");
        EXPECT_EQ(outline({message(Role::user, "q")}, dialect, true), "s:|u:q");
        EXPECT_EQ(outline({message(Role::system, "s")}, dialect, true), "s:s");
        EXPECT_EQ(outline({}, dialect, true), "s:");
    }
}

TEST(Normalize, ImagesKeepTheirNumbersWhereMessagesMove) {
    Message user = message(Role::user, "a");
    user.content.append_image();
    Message more = message(Role::user, "bc");
    more.content.images = {1, 1};
    Message system = message(Role::system, "s");
    system.content.append_image();
    const auto turns = normalize_messages({.messages = {user, system, more}}, Dialect::v4);
    ASSERT_EQ(turns.size(), 2u);
    EXPECT_EQ(turns[0].image_numbers, (std::vector<std::size_t>{1}));
    EXPECT_EQ(turns[1].message.content.text, "a\n\nbc");
    EXPECT_EQ(turns[1].message.content.images, (std::vector<std::size_t>{1, 4, 4}));
    EXPECT_EQ(turns[1].image_numbers, (std::vector<std::size_t>{0, 2, 3}));
}

}  // namespace
}  // namespace fathom
