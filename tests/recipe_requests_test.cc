// Two rules over the requests of golden/recipe beside those of recipe_vectors_test: the profile
// `open` gives the same on what the reference accepts, and a response repeats its request. The
// numbers of rows are asserted, so that none is lost unseen.
#include <gtest/gtest.h>

#include <functional>

#include "json_lines.h"
#include "recipe/output_parser.h"
#include "recipe/vectors/difference.h"
#include "recipe/vectors/request_facts.h"
#include "recipe/vectors/row_checks.h"
#include "recipe/vectors/rows.h"
#include "support.h"

namespace fathom {
namespace {

using testing::read_json_lines;
using testing::shared_path;

void expect_rows(const std::string& file, const std::string& protocol, int count,
                 const std::function<RowOutcome(const Json&)>& check) {
    constexpr std::size_t kShownMax = 40;
    int rows = 0;
    std::vector<std::string> failures;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/" + file))) {
        if (row_text(row, "protocol") != protocol) continue;
        ++rows;
        const RowOutcome outcome = check(row);
        if (outcome.kind != RowOutcome::Kind::passed)
            failures.push_back(row_text(row, "id") + "\n  " + outcome.detail);
    }
    EXPECT_EQ(rows, count);
    for (std::size_t i = 0; i < failures.size() && i < kShownMax; ++i)
        ADD_FAILURE() << failures[i];
    EXPECT_EQ(failures.size(), 0) << "of " << rows << " rows of " << protocol << " in " << file;
}

TEST(RecipeRequests, WhatTheReferenceAcceptsIsTheSameInTheProfileOpen) {
    FATHOM_NEED_SHARED("golden/recipe/prompts.jsonl");
    const auto in_open = [](Json row) {
        // It reads this member, which the reference does not know (row `wrong_types`).
        if (row_text(row, "id") == "messages/top_k_str/accepted") return RowOutcome{};
        Json options = row.find("options") == nullptr ? Json::object() : *row.find("options");
        options.set("profile", "open");
        row.set("options", std::move(options));
        return check_accepted_request(row);
    };
    expect_rows("prompts.jsonl", "chat", 692, in_open);
    expect_rows("prompts.jsonl", "messages", 275, in_open);
    expect_rows("prompts.jsonl", "responses", 223, in_open);
}

std::vector<std::string> arguments_of(const std::string& text, ParsingOptions options, bool valid) {
    options.valid_arguments = valid;
    OutputParser parser(options);
    OutputParser::Events events;
    parser.push(TextChunk{.content = text}, events);
    parser.end(events);
    std::vector<std::string> calls;
    for (const OutputEvent& event : events) {
        if (event.kind == OutputEvent::Kind::tool_call) calls.emplace_back();
        if (event.kind == OutputEvent::Kind::arguments) calls.back() += event.text;
    }
    return calls;
}

TEST(RecipeRequests, ArgumentsThatAreJsonAreTheSameInTheProfileOpen) {
    FATHOM_NEED_SHARED("golden/recipe/streams.jsonl");
    int same = 0, repaired = 0;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/streams.jsonl"))) {
        const Json* body = row.find("requests")->find("chat");
        if (body == nullptr) continue;
        const auto request = lower_request(Protocol::chat, body->dump(), LowerOptions());
        ASSERT_TRUE(request.ok()) << row_text(row, "id");
        const std::string text = row_text(row, "text");
        const auto copied = arguments_of(text, request->parsing, false);
        const auto valid = arguments_of(text, request->parsing, true);
        ASSERT_EQ(copied.size(), valid.size()) << row_text(row, "id");
        for (std::size_t i = 0; i < copied.size(); ++i) {
            EXPECT_TRUE(parse_json(valid[i]).ok()) << valid[i];
            const bool sound = parse_json(copied[i]).ok();
            ++(sound ? same : repaired);
            // Markup may be damaged and JSON all the same, with a parameter lost.
            if (row_text(row, "id") == "damaged_string_other") continue;
            EXPECT_TRUE(!sound || copied[i] == valid[i])
                << row_text(row, "id") << ": " << copied[i] << "\n"
                << valid[i];
        }
    }
    EXPECT_EQ(same, 56);
    EXPECT_EQ(repaired, 6);
}

TEST(RecipeRequests, ResponsesAnswersRepeatTheirRequests) {
    FATHOM_NEED_SHARED("golden/recipe/streams.jsonl");
    int rows = 0;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/streams.jsonl"))) {
        const Json* body = row.find("requests")->find("responses");
        if (body == nullptr) continue;
        const Json& whole = row.find("chunkings")->items()[0];
        const Json* answer = whole.find("protocols")->find("responses")->find("response");
        const auto request = lower_request(Protocol::responses, body->dump(), LowerOptions());
        ASSERT_TRUE(request.ok()) << row_text(row, "id") << request.status().message();
        ASSERT_NE(answer, nullptr) << row_text(row, "id");
        const Json parsed = answer->is_string() ? parse_json(answer->as_string()).value() : *answer;
        const Json facts = whole_echo_facts(request->responses.echo);
        for (const auto& [key, ours] : facts.members())
            EXPECT_EQ(json_difference("." + key, *parsed.find(key), ours), "")
                << row_text(row, "id");
        ++rows;
    }
    EXPECT_EQ(rows, 136);
}

}  // namespace
}  // namespace fathom
