#include <gtest/gtest.h>

#include <string>

#include "recipe/prompt.h"
#include "recipe/protocols/chat_request.h"
#include "recipe/protocols/messages_request.h"
#include "recipe/protocols/request_error.h"
#include "recipe/protocols/responses_request.h"
#include "recipe/protocols/schema_check.h"

namespace fathom {
namespace {

constexpr const char* kModel = R"("model":"DeepSeek-V4.1-Flash")";

std::string body(const std::string& members) {
    return "{" + std::string(kModel) + "," + members + "}";
}

std::string schema_fault(const std::string& text) {
    const auto schema = parse_json(text);
    EXPECT_TRUE(schema.ok()) << text;
    return schema.ok() ? check_json_schema(*schema).message() : "";
}

std::string repeated(const std::string& item, int count) {
    std::string list;
    for (int i = 0; i < count; ++i)
        list += (i == 0 ? "" : ",") + item;
    return list;
}

TEST(SchemaCheck, AcceptsSchemas) {
    for (const char* schema :
         {"true", "{}", R"({"type":["string","null"],"pattern":"^\\u0041[]\\d+$"})",
          R"({"$defs":{"a/b~c":{"$anchor":"x"}},"$ref":"#/$defs/a~1b~0c"})",
          R"({"$defs":{"a b":true},"items":{"$ref":"#/$defs/a%20b"}})", R"({"$ref":"#"})",
          R"({"prefixItems":[{}, {"$ref":"#/prefixItems/0"}]})",
          R"({"$schema":"http://json-schema.org/draft-07/schema#","items":[{},{}]})",
          R"({"$schema":"http://json-schema.org/draft-04/schema#","exclusiveMinimum":true})",
          R"({"pattern":"\\p{Letter}(?<=a+)b","maxLength":1e300})",
          R"({"minLength":3.0,"multipleOf":0.1,"enum":[1,null],"const":{},"unknown":[1]})",
          R"({"$id":"https://a.example/s","items":{"$ref":"https://a.example/s#/x"}})"})
        EXPECT_EQ(schema_fault(schema), "") << schema;
}

TEST(SchemaCheck, SaysWhatIsWrong) {
    struct Case {
        const char* schema;
        const char* fault;
    };
    for (const Case& c : {
             Case{"[]", R"([] is not of types "boolean", "object")"},
             Case{R"({"properties":{"a":3}})", R"(3 is not of types "boolean", "object")"},
             Case{R"({"properties":[]})", R"([] is not of type "object")"},
             Case{R"({"allOf":[]})", "[] has less than 1 item"},
             Case{R"({"required":["a","a"]})", R"(["a","a"] has non-unique elements)"},
             Case{R"({"required":[1]})", R"(1 is not of type "string")"},
             Case{R"({"maxItems":1.5})", R"(1.5 is not of type "integer")"},
             Case{R"({"maxItems":-1})", "-1 is less than the minimum of 0"},
             Case{R"({"multipleOf":0})", "0 is less than or equal to the minimum of 0"},
             Case{R"({"exclusiveMinimum":true})", R"(true is not of type "number")"},
             Case{R"({"items":[{}]})", R"([{}] is not of types "boolean", "object")"},
             Case{R"({"patternProperties":{"[":{}}})", R"("[" is not a "regex")"},
             Case{R"({"$ref":"#/a/0"})", "Pointer '/a/0' does not exist"},
             Case{R"({"$ref":"#/x/a","x":{"a":{"type":"objekt"}}})", "Unexpected type"},
             Case{R"({"uniqueItems":1})", R"(1 is not of type "boolean")"},
         })
        EXPECT_EQ(schema_fault(c.schema), c.fault) << c.schema;
}

TEST(ImageSource, ReadsBase64WithSpacesAndWithoutPadding) {
    for (const char* good : {"", "aGVsbG8=", "aGVsbG8", "aG Vs\nbG8=", "aA==", "aA"})
        EXPECT_TRUE(is_base64(good)) << good;
    for (const char* bad : {"@@", "a", "aGVsbG8==", "aA=", "aA==aA", "=", "a-_b"})
        EXPECT_FALSE(is_base64(bad)) << bad;
}

TEST(Lowering, BodiesOfOtherTypesAreRefusedByName) {
    const LowerOptions options;
    EXPECT_EQ(lower_chat_request("{", options).status().message().substr(0, 21),
              "invalid JSON request:");
    EXPECT_EQ(lower_chat_request("[]", options).status().message(),
              "invalid request body: invalid type: sequence, expected struct "
              "ChatCompletionRequest");
    const auto wrong = lower_chat_request(body(R"("messages":[],"n":"1")"), options);
    const RequestError error = request_error(wrong.status());
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.body,
              R"({"error":{"message":"invalid request body: invalid type: string \"1\", )"
              R"(expected u8","type":"invalid_request_error","param":null,)"
              R"("code":"invalid_request_error"}})");
    EXPECT_EQ(request_error(Status(StatusCode::unavailable, "later")).http_status, 500);
}

TEST(Lowering, LongValuesInMessagesAreCut) {
    const std::string text = std::string(5000, 'x');
    const auto wrong = lower_chat_request(body(R"("messages":[],"n":")" + text + "\""), {});
    EXPECT_LT(wrong.status().message().size(), 400);
}

TEST(Lowering, ImagesKeepTheirNumbersWhenResultsMove) {
    const auto request = lower_chat_request(
        body(R"("messages":[{"role":"user","content":"u"},{"role":"assistant","tool_calls":[)"
             R"({"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},)"
             R"({"id":"2","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
             R"({"role":"tool","tool_call_id":"2","content":[{"type":"image_url",)"
             R"("image_url":{"url":"https://a/second"}}]},)"
             R"({"role":"tool","tool_call_id":"1","content":[{"type":"image_url",)"
             R"("image_url":{"url":"https://a/first"}}]}])"),
        {});
    ASSERT_TRUE(request.ok()) << request.status().message();
    const auto prompt = render_prompt(request->conversation, {.dialect = request->dialect});
    ASSERT_TRUE(prompt.ok());
    std::vector<std::string> shown;
    for (const PromptSegment& segment : *prompt)
        if (segment.image) shown.push_back(request->image_sources[*segment.image].location);
    EXPECT_EQ(shown, (std::vector<std::string>{"https://a/first", "https://a/second"}));
}

TEST(Lowering, EarlierItemsStandInFrontOfTheInput) {
    const LowerOptions open{.profile = Profile::open};
    const auto earlier = [](const std::string& id) -> Result<Json::Array> {
        if (id != "resp_1") return invalid_argument("no response {}", id);
        return parse_json(R"([{"role":"user","content":"a"},{"type":"function_call","call_id":"1",)"
                          R"("name":"f","arguments":"{}"}])")
            .value()
            .items();
    };
    const std::string answered =
        body(R"("previous_response_id":"resp_1","instructions":"s",)"
             R"("input":[{"type":"function_call_output","call_id":"1","output":"o"}])");
    const auto request = lower_responses_request(answered, open, earlier);
    ASSERT_TRUE(request.ok()) << request.status().message();
    std::string roles;
    for (const Message& message : request->conversation.messages)
        roles += std::to_string(static_cast<int>(message.role));
    EXPECT_EQ(roles, "0123");  // system, user, assistant, tool

    const auto refusal = [&](const std::string& members) {
        return std::string(
            lower_responses_request(body(members), open, earlier).status().message());
    };
    EXPECT_EQ(refusal(R"("previous_response_id":"x","input":"u")"), "no response x");
    EXPECT_EQ(refusal(R"("previous_response_id":"resp_1","input":"u")"),
              "No tool output found for tool call 1.");
    EXPECT_EQ(lower_responses_request(answered, {}, earlier).status().message(),
              "No tool call found for tool output with call_id 1.");
}

// A short request must not become a prompt of any size.
TEST(Lowering, RepeatedSchemasAndDescriptionsHaveALimit) {
    const std::string large(2 << 20, 'd');
    const auto announced = lower_messages_request(
        body(R"("tools":[{"name":"w","input_schema":{"type":"object"}},{"name":"x",)"
             R"("input_schema":{"type":"object"},"defer_loading":true,"description":")" +
             large + R"("}],"messages":[{"role":"system","content":[)" +
             repeated(R"({"type":"tool_addition","tool":{"type":"tool_reference","name":"x"}})",
                      100) +
             "]}]"),
        {});
    EXPECT_EQ(announced.status().message(),
              "messages.0.content.7: announced tools exceed 16777216 bytes");
    std::string members;
    for (int i = 0; i < 100; ++i)
        members += (i == 0 ? "" : ",") + fmt::format(R"({{"type":"function","name":"f{}"}})", i);
    const auto described = lower_responses_request(
        body(R"("input":"u","tools":[{"type":"namespace","name":"ns","description":")" + large +
             R"(","tools":[)" + members + "]}]"),
        {});
    EXPECT_EQ(described.status().message(),
              "tools[0].tools[7]: descriptions of namespaces, repeated for each of their tools, "
              "exceed 16777216 bytes");
}

}  // namespace
}  // namespace fathom
