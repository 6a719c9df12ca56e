// The answer builders by the example of recipe.md, appendix A, and the parts they use. Their whole
// behaviour is compared with recorded results (recipe_vectors_test).
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "base/json.h"
#include "recipe/protocols/chat_events.h"
#include "recipe/protocols/custom_tool_input.h"
#include "recipe/protocols/messages_events.h"
#include "recipe/protocols/responses_events.h"
#include "recipe/test_tokenizer.h"

namespace fathom {
namespace {

using testing::random_cuts;
using testing::tricky_text;

AnswerSettings settings_of(bool stream) {
    return {.id = "ID",
            .model = "m",
            .created = 1,
            .stream = stream,
            .thinking = ThinkingStage::reasoning_start,
            .call_ids = [](std::int64_t index) { return "CALL" + std::to_string(index); }};
}

// Thinks, says "Sure." and calls get_weather, all in one chunk of 7 tokens.
OutputParser::Events example() {
    OutputParser parser(
        {.parse_tool_calls = true, .thinking_initial_stage = ThinkingStage::reasoning_start});
    OutputParser::Events events;
    parser.push(ReadyChunk{.prompt_tokens = 10, .prompt_cache_hit_tokens = 4}, events);
    parser.push(TextChunk{.content = "think</think>Sure.\n\n<｜DSML｜ calls>\n"
                                     "<｜DSML｜ invoke name=\"get_weather\">\n"
                                     "<｜DSML｜ parameter name=\"location\" string=\"true\">Paris"
                                     "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>",
                          .content_tokens = 7},
                events);
    parser.end(events);
    return events;
}

std::vector<StreamPayload> payloads_of(AnswerBuilder& builder) {
    std::vector<StreamPayload> payloads;
    for (const OutputEvent& event : example())
        builder.add(event, payloads);
    return payloads;
}

TEST(Answers, ChatStreamsDeltas) {
    const auto payloads = payloads_of(*make_chat_answer(settings_of(true), {}));
    const auto chunk = [](const std::string& delta) {
        return R"({"id":"ID","object":"chat.completion.chunk","created":1,"model":"m",)"
               R"("system_fingerprint":null,"choices":[{"index":0,"delta":)" +
               delta + R"(,"logprobs":null,"finish_reason":null}]})";
    };
    ASSERT_EQ(payloads.size(), 12U);
    EXPECT_EQ(payloads[0].json,
              chunk(R"({"role":"assistant","content":null,"reasoning_content":""})"));
    EXPECT_EQ(payloads[1].json, chunk(R"({"content":null,"reasoning_content":"think"})"));
    EXPECT_EQ(payloads[2].json, chunk(R"({"content":"Sure.","reasoning_content":null})"));
    EXPECT_EQ(payloads[3].json, chunk(R"({"tool_calls":[{"index":0,"id":"CALL0","type":"function",)"
                                      R"("function":{"name":"get_weather","arguments":""}}]})"));
    EXPECT_EQ(payloads[5].json,
              chunk(R"({"tool_calls":[{"index":0,"function":{"arguments":"\"location\""}}]})"));
    EXPECT_TRUE(payloads[11].json.ends_with(
        R"("delta":{"content":"","reasoning_content":null},"logprobs":null,)"
        R"("finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":7,)"
        R"("total_tokens":17,"prompt_tokens_details":{"cached_tokens":4},)"
        R"("prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6}})"))
        << payloads[11].json;
}

TEST(Answers, ChatAnswersAtOnce) {
    const auto builder = make_chat_answer(settings_of(false), {});
    EXPECT_TRUE(payloads_of(*builder).empty());
    EXPECT_TRUE(builder->answer().starts_with(
        R"({"id":"ID","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,)"
        R"("message":{"role":"assistant","content":"Sure.","reasoning_content":"think",)"
        R"("tool_calls":[{"index":0,"id":"CALL0","type":"function","function":{)"
        R"("name":"get_weather","arguments":"{\"location\": \"Paris\"}"}}]},"logprobs":null,)"
        R"("finish_reason":"tool_calls"}],"usage":{)"))
        << builder->answer();
}

TEST(Answers, ChatChoicesHaveTheirIndexAndOneUsage) {
    AnswerSettings settings = settings_of(true);
    settings.thinking = ThinkingStage::none;
    const auto choice_events = [](std::int64_t choice, std::string_view text) {
        OutputParser parser(ParsingOptions{});
        OutputParser::Events events;
        parser.push(ReadyChunk{.prompt_tokens = 10, .prompt_cache_hit_tokens = 4}, events);
        parser.push(TextChunk{.content = text, .content_tokens = 3}, events);
        parser.end(events);
        for (OutputEvent& event : events)
            event.choice = choice;
        return events;
    };
    const auto first = choice_events(0, "one"), second = choice_events(1, "two");
    for (const bool stream : {true, false}) {
        settings.stream = stream;
        const auto builder = make_chat_answer(settings, {.choices = 2});
        std::vector<StreamPayload> payloads;
        // The second choice ends first.
        builder->add(first.front(), payloads);
        for (const OutputEvent& event : second)
            builder->add(event, payloads);
        for (std::size_t i = 1; i < first.size(); ++i)
            builder->add(first[i], payloads);
        constexpr std::string_view kUsage =
            R"("usage":{"prompt_tokens":10,"completion_tokens":6,"total_tokens":16,)";
        if (!stream) {
            EXPECT_TRUE(payloads.empty());
            const Json answer = parse_json(builder->answer()).value();
            const Json::Array& choices = answer.find("choices")->items();
            ASSERT_EQ(choices.size(), 2U);
            for (std::size_t i = 0; i < choices.size(); ++i) {
                EXPECT_EQ(choices[i].find("index")->as_int64(), static_cast<std::int64_t>(i));
                EXPECT_EQ(choices[i].find("message")->find("content")->as_string(),
                          i == 0 ? "one" : "two");
            }
            EXPECT_NE(builder->answer().find(kUsage), std::string::npos) << builder->answer();
            continue;
        }
        std::string texts[2];
        for (const StreamPayload& payload : payloads) {
            const bool last = &payload == &payloads.back();
            EXPECT_EQ(payload.json.find(kUsage) != std::string::npos, last) << payload.json;
            const Json chunk = parse_json(payload.json).value();
            const Json& choice = chunk.find("choices")->items().at(0);
            const Json* content = choice.find("delta")->find("content");
            if (content != nullptr && content->is_string())
                texts[choice.find("index")->as_int64()] += content->as_string();
        }
        EXPECT_EQ(texts[0], "one");
        EXPECT_EQ(texts[1], "two");
    }
}

std::vector<std::string> names_of(const std::vector<StreamPayload>& payloads) {
    std::vector<std::string> names;
    for (const StreamPayload& payload : payloads)
        names.emplace_back(payload.name);
    return names;
}

TEST(Answers, MessagesStreamBlocks) {
    const auto payloads = payloads_of(*make_messages_answer(settings_of(true)));
    std::vector<std::string> expected = {
        "message_start",       "content_block_start", "ping",
        "content_block_delta", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_stop",
        "content_block_start"};
    expected.insert(expected.end(), 7, "content_block_delta");
    expected.insert(expected.end(), {"content_block_stop", "message_delta", "message_stop"});
    EXPECT_EQ(names_of(payloads), expected);
    EXPECT_EQ(payloads[4].json,
              R"({"type":"content_block_delta","index":0,"delta":{"type":"signature_delta",)"
              R"("signature":"ID"}})");
}

TEST(Answers, MessagesReadTheInputOfACall) {
    const auto builder = make_messages_answer(settings_of(false));
    payloads_of(*builder);
    EXPECT_NE(
        builder->answer().find(
            R"({"type":"tool_use","id":"CALL0","name":"get_weather",)"
            R"("input":{"location":"Paris"}}],"stop_reason":"tool_use","stop_sequence":null)"),
        std::string::npos)
        << builder->answer();
}

TEST(Answers, ResponsesStreamItemsAndRepeatThemInTheEnd) {
    const auto builder = make_responses_answer(settings_of(true), {});
    const auto payloads = payloads_of(*builder);
    std::vector<std::string> expected = {"response.created",
                                         "response.in_progress",
                                         "response.output_item.added",
                                         "response.content_part.added",
                                         "response.reasoning_text.delta",
                                         "response.reasoning_text.done",
                                         "response.content_part.done",
                                         "response.output_item.done",
                                         "response.output_item.added",
                                         "response.content_part.added",
                                         "response.output_text.delta",
                                         "response.output_text.done",
                                         "response.content_part.done",
                                         "response.output_item.done",
                                         "response.output_item.added"};
    expected.insert(expected.end(), 7, "response.function_call_arguments.delta");
    expected.insert(expected.end(), {"response.function_call_arguments.done",
                                     "response.output_item.done", "response.completed"});
    EXPECT_EQ(names_of(payloads), expected);
    EXPECT_NE(payloads[13].json.find(R"("phase":"commentary")"), std::string::npos);
    EXPECT_EQ(payloads.back().json, R"({"type":"response.completed","response":)" +
                                        builder->answer() + R"(,"sequence_number":24})");
}

// The last payload of a stream that breaks off in the middle of the content "Sure.".
std::string broken_off(std::unique_ptr<AnswerBuilder> builder) {
    std::vector<StreamPayload> payloads;
    const OutputParser::Events events = example();
    for (std::size_t i = 0; i < 3; ++i)
        builder->add(events[i], payloads);
    builder->fail({.type = "internal_error", .message = "the \"engine\" stopped"}, payloads);
    return std::string(payloads.back().name) + " " + payloads.back().json;
}

TEST(Answers, AStreamThatBreaksOffSaysSoInTheFormOfItsProtocol) {
    EXPECT_EQ(broken_off(make_chat_answer(settings_of(true), {})),
              R"( {"error":{"message":"the \"engine\" stopped","type":"internal_error",)"
              R"("param":null,"code":"internal_error"}})");
    EXPECT_EQ(broken_off(make_messages_answer(settings_of(true))),
              R"(error {"type":"error","error":{"type":"internal_error",)"
              R"("message":"the \"engine\" stopped"}})");
    const std::string failed = broken_off(make_responses_answer(settings_of(true), {}));
    EXPECT_TRUE(failed.starts_with(
        R"(response.failed {"type":"response.failed","response":{"id":"ID","object":"response",)"
        R"("created_at":1,"status":"failed","background":false,"completed_at":null,)"
        R"("content_filters":null,"error":{"code":"internal_error",)"
        R"("message":"the \"engine\" stopped"},)"))
        << failed;
    EXPECT_NE(failed.find(R"("id":"msg_ID_1","status":"incomplete")"), std::string::npos) << failed;
}

TEST(CallIds, HaveTheFormOfTheProtocolAndDiffer) {
    std::set<std::string> ids;
    for (const std::uint64_t seed : {1, 2}) {
        const CallIds call_ids = random_call_ids(seed);
        for (std::int64_t index = 0; index < 100; ++index) {
            const std::string id = call_ids(index);
            EXPECT_EQ(id.size(), 32U);
            EXPECT_EQ(id.substr(0, 8),
                      (index < 10 ? "call_0" : "call_") + std::to_string(index) + "_");
            EXPECT_EQ(id.find_last_not_of("0123456789") < 28, true) << id;
            ids.insert(id.substr(8));
        }
        EXPECT_EQ(call_ids(7), call_ids(7));
    }
    EXPECT_EQ(ids.size(), 200U);
}

RC_GTEST_PROP(CustomToolInput, GivesTheTextHoweverItIsCut, ()) {
    const std::string text = *tricky_text();
    std::string arguments = *rc::gen::element<std::string>("{\"input\": ", " {\n\"input\":\t");
    append_json_string(arguments, text);
    arguments += "}";
    CustomToolInput input;
    std::string decoded;
    for (const std::string& piece : random_cuts(arguments))
        decoded += input.push(piece);
    RC_ASSERT(decoded == text);
}

RC_GTEST_PROP(CustomToolInput, DecodesAnyBytesAlikeHoweverTheyAreCut, ()) {
    const std::string rest = *rc::gen::container<std::string>(
        rc::gen::element('\\', '"', 'u', 'd', '8', '0', 'D', 'c', 'n', 'x', '}', ' '));
    const std::string arguments =
        *rc::gen::element<std::string>("{\"input\": \"", "{\"inp", "{", "") + rest;
    CustomToolInput whole;
    CustomToolInput cut;
    std::string decoded;
    for (const std::string& piece : random_cuts(arguments))
        decoded += cut.push(piece);
    RC_ASSERT(decoded == whole.push(arguments));
}

TEST(CustomToolInput, HoldsHalfAnEscape) {
    CustomToolInput input;
    EXPECT_EQ(input.push("{\"input\": \"a\\ud83d"), "a");
    EXPECT_EQ(input.push("\\ude0"), "");
    EXPECT_EQ(input.push("0\\"), "😀");
    EXPECT_EQ(input.push("n\"}"), "\n");
    EXPECT_EQ(input.push("x"), "");
}

TEST(CustomToolInput, ArgumentsOfAnotherFormPassUnchanged) {
    CustomToolInput input;
    EXPECT_EQ(input.push("{\"in"), "");
    EXPECT_EQ(input.push("dex\""), "{\"index\"");
    EXPECT_EQ(input.push(": 1}"), ": 1}");
}

}  // namespace
}  // namespace fathom
