#include "gateway/openai/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fathom {
namespace {

using ::testing::HasSubstr;

const ApiOptions kOptions = {.model_names = {"tiny", "alias"}, .max_tokens = 1000};

Result<ApiRequest> chat(const std::string& members) {
    return parse_api_request(
        ApiKind::chat,
        R"({"model":"tiny","messages":[{"role":"user","content":"Hi"}])" + members + "}", kOptions);
}
Result<ApiRequest> completion(const std::string& members) {
    return parse_api_request(ApiKind::completion,
                             R"({"model":"tiny","prompt":"ab")" + members + "}", kOptions);
}
const Conversation& conversation(const Result<ApiRequest>& request) {
    return std::get<Conversation>(request->generation.prompt);
}

std::string many_biases(int count) {
    std::string members = R"(,"logit_bias":{)";
    for (int id = 0; id < count; ++id)
        members += (id > 0 ? ",\"" : "\"") + std::to_string(id) + "\":1";
    return members + "}";
}

TEST(ApiRequest, DefaultsAreTheDocumentedOnes) {
    const auto request = chat("");
    ASSERT_TRUE(request.ok()) << request.status().message();
    EXPECT_EQ(request->generation.sampling.temperature, 1.0);
    EXPECT_EQ(request->generation.sampling.top_p, 1.0);
    EXPECT_EQ(request->generation.sampling.top_k, 0);
    EXPECT_EQ(request->generation.sampling.min_p, 0.0);
    EXPECT_FALSE(request->has_seed);
    EXPECT_FALSE(request->generation.max_tokens);
    EXPECT_FALSE(request->stream);
    EXPECT_TRUE(request->thinking);
    EXPECT_EQ(conversation(request).effort, ReasoningEffort::high);
}

TEST(ApiRequest, ReadsEveryField) {
    const auto request =
        chat(R"(,"temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"max_tokens":12,"seed":42,)"
             R"("stop":["a","b"],"stream":true,"stream_options":{"include_usage":true},"n":1,)"
             R"("presence_penalty":1,"frequency_penalty":-2,"logprobs":false,"tools":[],)"
             R"("response_format":{"type":"text"},"user":"u","metadata":{"k":[1]},"whatever":{})");
    ASSERT_TRUE(request.ok()) << request.status().message();
    const GenerationRequest& generation = request->generation;
    EXPECT_EQ(generation.sampling.temperature, 0.5);
    EXPECT_EQ(generation.sampling.top_p, 0.9);
    EXPECT_EQ(generation.sampling.top_k, 7);
    EXPECT_EQ(generation.sampling.min_p, 0.1);
    EXPECT_EQ(generation.max_tokens, 12);
    EXPECT_EQ(generation.sampling.seed, 42u);
    EXPECT_TRUE(request->has_seed);
    EXPECT_EQ(generation.stop_strings, (std::vector<std::string>{"a", "b"}));
    EXPECT_TRUE(request->stream);
    EXPECT_TRUE(request->include_usage);
}

TEST(ApiRequest, ReadsWhatShapesTheNextToken) {
    const auto request =
        chat(R"(,"n":3,"presence_penalty":0.5,"frequency_penalty":-2,"repetition_penalty":1.1,)"
             R"("logit_bias":{"7":-100,"0":2.5},"min_tokens":4,"allowed_token_ids":[1,9],)"
             R"("logprobs":true,"top_logprobs":5,"logprobs_mode":"processed","ignore_eos":true)");
    ASSERT_TRUE(request.ok()) << request.status().message();
    const SamplingParams& sampling = request->generation.sampling;
    EXPECT_EQ(request->generation.choices, 3);
    EXPECT_EQ(sampling.presence_penalty, 0.5);
    EXPECT_EQ(sampling.frequency_penalty, -2.0);
    EXPECT_EQ(sampling.repetition_penalty, 1.1);
    ASSERT_EQ(sampling.logit_bias.size(), 2u);
    EXPECT_EQ(sampling.logit_bias[0].id, 7);
    EXPECT_EQ(sampling.logit_bias[0].bias, -100.0f);
    EXPECT_EQ(sampling.logit_bias[1].bias, 2.5f);
    EXPECT_EQ(sampling.min_tokens, 4);
    EXPECT_TRUE(request->generation.ignore_eos);
    EXPECT_EQ(sampling.allowed_tokens, (std::vector<TokenId>{1, 9}));
    EXPECT_EQ(sampling.logprobs, 5);
    EXPECT_TRUE(sampling.logprobs_processed);
    EXPECT_TRUE(chat(many_biases(1024)).ok());
}

TEST(ApiRequest, LogprobsAreOffUnlessAskedForAndRawUnlessSaid) {
    EXPECT_EQ(chat("")->generation.sampling.logprobs, -1);
    EXPECT_EQ(chat(R"(,"logprobs":false)")->generation.sampling.logprobs, -1);
    EXPECT_EQ(chat(R"(,"logprobs":true)")->generation.sampling.logprobs, 0);
    EXPECT_EQ(completion("")->generation.sampling.logprobs, -1);
    EXPECT_EQ(completion(R"(,"logprobs":0)")->generation.sampling.logprobs, 0);
    EXPECT_EQ(completion(R"(,"logprobs":20)")->generation.sampling.logprobs, 20);
    EXPECT_FALSE(chat(R"(,"logprobs":true)")->generation.sampling.logprobs_processed);
    EXPECT_EQ(completion(R"(,"n":2,"best_of":2)")->generation.choices, 2);
}

TEST(ApiRequest, ASeedAsksForReuseThatChangesNothingUnlessTheClientSaysOtherwise) {
    EXPECT_EQ(chat("")->generation.reuse, PrefixReuse::any);
    EXPECT_EQ(chat(R"(,"seed":3)")->generation.reuse, PrefixReuse::exact);
    EXPECT_EQ(chat(R"(,"seed":3,"prefix_cache":"any")")->generation.reuse, PrefixReuse::any);
    EXPECT_EQ(completion(R"(,"prefix_cache":"exact")")->generation.reuse, PrefixReuse::exact);
    EXPECT_EQ(completion(R"(,"prefix_cache":"none")")->generation.reuse, PrefixReuse::none);
    EXPECT_EQ(completion(R"(,"cache_salt":"s")")->generation.cache_salt, "s");
    EXPECT_THAT(chat(R"(,"prefix_cache":"all")").status().message(),
                HasSubstr("prefix_cache: unknown variant `all`, expected one of `any`, `exact`"));
    EXPECT_THAT(chat(R"(,"prefix_cache":true)").status().message(), HasSubstr("prefix_cache"));
    EXPECT_EQ(chat(R"(,"cache_salt":"")").status().message(),
              "Invalid 'cache_salt': expected 1 to 256 bytes, got 0.");
    EXPECT_EQ(chat(R"(,"cache_salt":")" + std::string(257, 'x') + "\"").status().message(),
              "Invalid 'cache_salt': expected 1 to 256 bytes, got 257.");
}

TEST(ApiRequest, NullCountsAsAbsentAndTheLastDuplicateCounts) {
    EXPECT_TRUE(
        chat(R"(,"temperature":null,"stop":null,"tools":null,"thinking":null,"seed":null)").ok());
    EXPECT_EQ(chat(R"(,"max_tokens":5,"max_tokens":6)")->generation.max_tokens, 6);
}

TEST(ApiRequest, MaxTokensWinsOverItsNewerName) {
    EXPECT_EQ(chat(R"(,"max_completion_tokens":7)")->generation.max_tokens, 7);
    EXPECT_EQ(chat(R"(,"max_tokens":5,"max_completion_tokens":7)")->generation.max_tokens, 5);
}

struct ThinkingRow {
    const char* members;
    bool thinking;
    ReasoningEffort effort;
};

TEST(ApiRequest, ThinkingAndEffortDecideTogether) {
    const std::vector<ThinkingRow> rows = {
        {"", true, ReasoningEffort::high},
        {R"(,"thinking":{"type":"enabled"})", true, ReasoningEffort::high},
        {R"(,"thinking":{"type":"adaptive","budget_tokens":9})", true, ReasoningEffort::high},
        {R"(,"thinking":{"type":"disabled"})", false, ReasoningEffort::none},
        {R"(,"thinking":{"type":"disabled"},"reasoning_effort":"max")", false,
         ReasoningEffort::none},
        {R"(,"thinking":{"type":"enabled"},"reasoning_effort":"none")", true,
         ReasoningEffort::high},
        {R"(,"reasoning_effort":"none")", false, ReasoningEffort::none},
        {R"(,"reasoning_effort":"minimal")", true, ReasoningEffort::low},
        {R"(,"reasoning_effort":"low")", true, ReasoningEffort::low},
        {R"(,"reasoning_effort":"medium")", true, ReasoningEffort::high},
        {R"(,"reasoning_effort":"xhigh")", true, ReasoningEffort::xhigh},
        {R"(,"reasoning_effort":"ultra")", true, ReasoningEffort::max}};
    for (const ThinkingRow& row : rows) {
        const auto request = chat(row.members);
        ASSERT_TRUE(request.ok()) << row.members;
        EXPECT_EQ(request->thinking, row.thinking) << row.members;
        EXPECT_EQ(conversation(request).effort, row.effort) << row.members;
    }
}

TEST(ApiRequest, LowersMessages) {
    const auto request = parse_api_request(
        ApiKind::chat,
        R"({"model":"alias","messages":[{"role":"system","content":""},)"
        R"({"role":"developer","content":"rules"},)"
        R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
        R"({"role":"assistant","content":"c","reasoning_content":"r"},)"
        R"({"role":"user","content":[],"prefix":true,"name":"n"},)"
        R"({"role":"assistant","content":"So","prefix":true}]})",
        kOptions);
    ASSERT_TRUE(request.ok()) << request.status().message();
    const auto& messages = conversation(request).messages;
    ASSERT_EQ(messages.size(), 5u);
    EXPECT_EQ(messages[0].role, Role::system);
    EXPECT_EQ(messages[1].content, "a\n\nb");
    EXPECT_EQ(messages[2].reasoning_content, "r");
    EXPECT_EQ(messages[3].content, "");
    EXPECT_FALSE(messages[3].prefix);
    EXPECT_TRUE(messages[4].prefix);
}

TEST(ApiRequest, ReadsPrompts) {
    EXPECT_EQ(std::get<RawText>(completion("")->generation.prompt).text, "ab");
    const auto one = completion(R"(,"prompt":["cd"])");
    EXPECT_EQ(std::get<RawText>(one->generation.prompt).text, "cd");
    const auto ids = completion(R"(,"prompt":[1,2],"best_of":1,"echo":false,"suffix":"")");
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(std::get<std::vector<TokenId>>(ids->generation.prompt), (std::vector<TokenId>{1, 2}));
    EXPECT_TRUE(completion(R"(,"prompt":[[1,2]])").ok());
}

TEST(ApiRequest, ReferenceSamplingOverridesTheClient) {
    ApiOptions options = kOptions;
    options.reference_sampling = true;
    const auto parse = [&](const char* members) {
        return parse_api_request(
                   ApiKind::chat,
                   std::string(R"({"model":"tiny","messages":[{"role":"user","content":"Hi"}])") +
                       members + "}",
                   options)
            ->generation.sampling;
    };
    EXPECT_EQ(parse(R"(,"temperature":0,"top_p":0.5)").temperature, 1.0);
    EXPECT_EQ(parse(R"(,"temperature":0,"top_p":0.5)").top_p, 0.95);
    EXPECT_EQ(parse(R"(,"top_p":0.99)").top_p, 0.99);
    const char* plain = R"(,"temperature":0,"top_p":0.5,"thinking":{"type":"disabled"})";
    EXPECT_EQ(parse(plain).temperature, 0.0);
    EXPECT_EQ(parse(plain).top_p, 1.0);
    const SamplingParams dropped =
        parse(R"(,"presence_penalty":1,"frequency_penalty":1,"repetition_penalty":2,"top_k":5,)"
              R"("logit_bias":{"1":5},"min_tokens":3,"logprobs":true,"seed":9)");
    EXPECT_EQ(dropped.presence_penalty, 0.0);
    EXPECT_EQ(dropped.frequency_penalty, 0.0);
    EXPECT_EQ(dropped.repetition_penalty, 1.0);
    EXPECT_EQ(dropped.top_k, 0);
    EXPECT_TRUE(dropped.logit_bias.empty());
    EXPECT_EQ(dropped.min_tokens, 0);
    EXPECT_EQ(dropped.logprobs, 0);
    EXPECT_EQ(dropped.seed, 9u);
    const auto two = parse_api_request(
        ApiKind::chat, R"({"model":"tiny","messages":[{"role":"user","content":"Hi"}],"n":2})",
        options);
    EXPECT_EQ(two.status().message(), "Invalid n value (currently only n = 1 is supported)");
}

struct Refusal {
    ApiKind kind;
    std::string body;
    const char* message;  // part of it
};

std::string chat_body(const char* members) {
    return std::string(R"({"model":"tiny","messages":[{"role":"user","content":"Hi"}])") + members +
           "}";
}
std::string message_body(const char* messages) {
    return std::string(R"({"model":"tiny","messages":)") + messages + "}";
}
std::string completion_body(const char* members) {
    return std::string(R"({"model":"tiny")") + members + "}";
}

constexpr ApiKind kChat = ApiKind::chat, kCompletion = ApiKind::completion;

std::vector<Refusal> bad_bodies() {
    return {
        {kChat, "", "invalid JSON request: "},
        {kChat, "{", "invalid JSON request: "},
        {kChat, "{\"a\":1,}", "invalid JSON request: "},
        {kChat, "{} x", "invalid JSON request: "},
        {kChat, "\xef\xbb\xbf{}", "invalid JSON request: "},
        {kChat, std::string("{\"model\":\"\xff\"}"), "invalid JSON request: "},
        {kChat, "{\"model\":" + std::string(200, '[') + std::string(200, ']') + "}",
         "invalid JSON request: "},
        {kChat, "null", "invalid request body: expected an object, got null"},
        {kChat, "[]", "invalid request body: expected an object, got array"},
        {kChat, "{}", "invalid request body: missing field `model`"},
        {kChat, R"({"model":3})", "invalid request body: model: expected a string, got integer"},
        {kChat, R"({"model":"gpt"})",
         "The supported API model names are alias, tiny, but you passed gpt."},
        {kChat, R"({"model":"tiny"})", "invalid request body: missing field `messages`"},
    };
}

std::vector<Refusal> bad_messages() {
    return {
        {kChat, message_body("null"), "messages: expected an array, got null"},
        {kChat, message_body("[]"), "Empty input messages"},
        {kChat, message_body(R"([{"role":"system","content":""}])"), "Empty input messages"},
        {kChat, message_body("[1]"), "messages[0]: expected an object, got integer"},
        {kChat, message_body(R"([{"content":"x"}])"), "messages[0]: missing field `role`"},
        {kChat, message_body(R"([{"role":"bot","content":"x"}])"),
         "messages[0].role: unknown variant `bot`"},
        {kChat, message_body(R"([{"role":"user"}])"), "messages[0]: missing field `content`"},
        {kChat, message_body(R"([{"role":"user","content":5}])"),
         "messages[0].content: expected a string or an array, got integer"},
        {kChat, message_body(R"([{"role":"user","content":[{"text":"x"}]}])"),
         "messages[0].content[0]: missing field `type`"},
        {kChat, message_body(R"([{"role":"user","content":[{"type":"text"}]}])"),
         "messages[0].content[0]: missing field `text`"},
        {kChat,
         message_body(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"),
         "messages[0].content[0]: content of type `image_url` is not supported by this server "
         "yet."},
        {kChat, message_body(R"([{"role":"tool","content":"x","tool_call_id":"1"}])"),
         "messages[0]: role `tool` is not supported by this server yet."},
        {kChat, message_body(R"([{"role":"assistant","content":null,"tool_calls":[{}]}])"),
         "messages[0]: `tool_calls` are not supported by this server yet."},
        {kChat, message_body(R"([{"role":"assistant"}])"),
         "Invalid assistant message: content or tool_calls must be set"},
        {kChat,
         message_body(
             R"([{"role":"assistant","content":"a","prefix":true},{"role":"user","content":"b"}])"),
         "Invalid completion message: prefix set true with message which is not final message"},
    };
}

std::vector<Refusal> bad_sampling() {
    return {
        {kChat, chat_body(R"(,"tools":[{"type":"function"}])"),
         "`tools` are not supported by this server yet."},
        {kChat, chat_body(R"(,"response_format":{"type":"json_object"})"),
         "response_format `json_object` is not supported by this server yet."},
        {kChat, chat_body(R"(,"response_format":{})"), "response_format: missing field `type`"},
        {kChat, chat_body(R"(,"n":0)"), "Invalid n value, the valid range of n is [1, 16]"},
        {kChat, chat_body(R"(,"n":17)"), "Invalid n value, the valid range of n is [1, 16]"},
        {kChat, chat_body(R"(,"n":"2")"), "n: expected an integer, got string"},
        {kChat, chat_body(R"(,"n":1.5)"), "n: expected an integer, got number"},
        {kChat, chat_body(R"(,"temperature":2.01)"),
         "Invalid temperature value, the valid range of temperature is [0, 2]"},
        {kChat, chat_body(R"(,"temperature":"1")"), "temperature: expected a number, got string"},
        {kChat, chat_body(R"(,"top_p":0)"),
         "Invalid top_p value, the valid range of top_p is (0, 1.0]"},
        {kChat, chat_body(R"(,"top_p":1.01)"),
         "Invalid top_p value, the valid range of top_p is (0, 1.0]"},
        {kChat, chat_body(R"(,"min_p":-1)"),
         "Invalid min_p value, the valid range of min_p is [0, 1]"},
        {kChat, chat_body(R"(,"top_k":-2)"), "Invalid top_k value"},
        {kChat, chat_body(R"(,"presence_penalty":3)"),
         "Invalid presence_penalty value, the valid range of presence_penalty is [-2, 2]"},
        {kChat, chat_body(R"(,"frequency_penalty":-2.1)"),
         "Invalid frequency_penalty value, the valid range of frequency_penalty is [-2, 2]"},
        {kChat, chat_body(R"(,"frequency_penalty":"1")"),
         "invalid request body: frequency_penalty: expected a number, got string"},
        {kChat, chat_body(R"(,"repetition_penalty":0)"),
         "Invalid repetition_penalty value, the valid range of repetition_penalty is [0.01, 10]"},
        {kChat, chat_body(R"(,"repetition_penalty":10.5)"),
         "Invalid repetition_penalty value, the valid range of repetition_penalty is [0.01, 10]"},
        {kChat, chat_body(R"(,"repetition_penalty":[])"),
         "invalid request body: repetition_penalty: expected a number, got array"},
    };
}

std::vector<Refusal> bad_biases() {
    return {
        {kChat, chat_body(R"(,"logit_bias":[1])"),
         "invalid request body: logit_bias: expected an object, got array"},
        {kChat, chat_body(R"(,"logit_bias":{"a\"":1})"),
         R"(Invalid logit_bias key "a\"": expected a token id in [0, 2^31) as a string)"},
        {kChat, chat_body(R"(,"logit_bias":{"":1})"),
         R"(Invalid logit_bias key "": expected a token id in [0, 2^31) as a string)"},
        {kChat, chat_body(R"(,"logit_bias":{"-1":1})"),
         R"(Invalid logit_bias key "-1": expected a token id in [0, 2^31) as a string)"},
        {kChat, chat_body(R"(,"logit_bias":{"2147483648":1})"),
         R"(Invalid logit_bias key "2147483648": expected a token id in [0, 2^31) as a string)"},
        {kChat, chat_body(R"(,"logit_bias":{"99999999999999999999999":1})"),
         "Invalid logit_bias key \"99999999999999999999999\": expected a token id"},
        {kChat, chat_body(R"(,"logit_bias":{"5":true})"),
         "invalid request body: logit_bias.5: expected a number, got boolean"},
        {kChat, chat_body(R"(,"logit_bias":{"5":100.5})"),
         "Invalid logit_bias value of token 5, the valid range of logit_bias is [-100, 100]"},
        {kChat, chat_body(many_biases(1025).c_str()),
         "Invalid logit_bias: 1025 entries, at most 1024 are allowed"},
        {kChat, chat_body(R"(,"min_tokens":-1)"),
         "Invalid min_tokens value, expected 0 or a positive number"},
        {kChat, chat_body(R"(,"min_tokens":1.5)"),
         "invalid request body: min_tokens: expected an integer, got number"},
        {kChat, chat_body(R"(,"allowed_token_ids":5)"),
         "invalid request body: allowed_token_ids: expected an array of token ids, got integer"},
        {kChat, chat_body(R"(,"allowed_token_ids":[])"),
         "Invalid 'allowed_token_ids': empty. Expected at least one token."},
        {kChat, chat_body(R"(,"allowed_token_ids":[1,-2])"),
         "Invalid 'allowed_token_ids[1]': expected a token id in [0, 2^31)"},
        {kChat, chat_body(R"(,"allowed_token_ids":["a"])"),
         "invalid request body: allowed_token_ids[0]: expected a token id, got string"},
    };
}

std::vector<Refusal> bad_lengths() {
    return {
        {kChat, chat_body(R"(,"max_tokens":0)"),
         "Invalid max_tokens value, the valid range of max_tokens is [1, 1000]"},
        {kChat, chat_body(R"(,"max_tokens":1001)"),
         "Invalid max_tokens value, the valid range of max_tokens is [1, 1000]"},
        {kChat, chat_body(R"(,"max_tokens":18446744073709551615)"),
         "max_tokens: 18446744073709551615 is out of range"},
        {kChat, chat_body(R"(,"seed":9223372036854775808)"),
         "Invalid seed value, the valid range of seed is [0, 2^63)"},
        {kChat, chat_body(R"(,"seed":-1)"),
         "Invalid seed value, the valid range of seed is [0, 2^63)"},
    };
}

std::vector<Refusal> bad_control() {
    return {
        {kChat, chat_body(R"(,"stop":"")"), "Invalid 'stop': empty string."},
        {kChat, chat_body(R"(,"stop":["a",""])"), "Invalid 'stop[1]': empty string."},
        {kChat, chat_body(R"(,"stop":["a",1])"), "stop[1]: expected a string, got integer"},
        {kChat, chat_body(R"(,"stop":{})"), "stop: expected a string or an array, got object"},
        {kChat,
         chat_body(
             R"(,"stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"),
         "Stop string array too long: 17"},
        {kChat, chat_body(R"(,"stream":"yes")"), "stream: expected a boolean, got string"},
        {kChat, chat_body(R"(,"stream_options":{})"),
         "stream_options should be set along with stream = true"},
        {kChat, chat_body(R"(,"stream":true,"stream_options":true)"),
         "stream_options: expected an object, got boolean"},
        {kChat, chat_body(R"(,"logprobs":2)"),
         "invalid request body: logprobs: expected a boolean, got integer"},
        {kChat, chat_body(R"(,"logprobs":true,"top_logprobs":"3")"),
         "invalid request body: top_logprobs: expected an integer, got string"},
        {kChat, chat_body(R"(,"logprobs":true,"top_logprobs":-1)"),
         "Invalid top_logprobs value, the valid range of top_logprobs is [0, 20]."},
        {kChat, chat_body(R"(,"logprobs":false,"top_logprobs":1)"),
         "logprobs must be set to true if top_logprobs is used."},
        {kChat, chat_body(R"(,"logprobs":true,"logprobs_mode":"cooked")"),
         "invalid request body: logprobs_mode: unknown variant `cooked`, expected one of `raw`, "
         "`processed`"},
        {kChat, chat_body(R"(,"prompt_logprobs":0)"),
         "`prompt_logprobs` is not supported by this server yet."},
        {kChat, chat_body(R"(,"top_logprobs":3)"),
         "logprobs must be set to true if top_logprobs is used."},
        {kChat, chat_body(R"(,"top_logprobs":21)"),
         "Invalid top_logprobs value, the valid range of top_logprobs is [0, 20]."},
        {kChat, chat_body(R"(,"thinking":true)"), "thinking: expected an object, got boolean"},
        {kChat, chat_body(R"(,"thinking":{"type":"enabled","budget_tokens":"5"})"),
         "budget_tokens: expected an integer, got string"},
        {kChat, chat_body(R"(,"thinking":{})"), "thinking: missing field `type`"},
        {kChat, chat_body(R"(,"thinking":{"type":"maybe"})"),
         "thinking.type: unknown variant `maybe`"},
        {kChat, chat_body(R"(,"reasoning_effort":"huge")"),
         "reasoning_effort: unknown variant `huge`"},
    };
}

std::vector<Refusal> bad_completions() {
    return {
        {kCompletion, completion_body(""), "missing field `prompt`"},
        {kCompletion, completion_body(R"(,"prompt":5)"),
         "prompt: expected a string or an array of token ids, got integer"},
        {kCompletion, completion_body(R"(,"prompt":[])"), "Invalid 'prompt': empty."},
        {kCompletion, completion_body(R"(,"prompt":["a","b"])"),
         "A list of 2 prompts is not supported by this server yet."},
        {kCompletion, completion_body(R"(,"prompt":[1,"b"])"),
         "prompt[1]: expected a token id, got string"},
        {kCompletion, completion_body(R"(,"prompt":[1,-2])"),
         "Invalid 'prompt[1]': expected a token id in [0, 2^31)"},
        {kCompletion, completion_body(R"(,"prompt":"a","suffix":"b")"),
         "`suffix` is not supported by this server yet."},
        {kCompletion, completion_body(R"(,"prompt":"a","echo":true)"),
         "`echo` is not supported by this server yet."},
        {kCompletion, completion_body(R"(,"prompt":"a","logprobs":-1)"),
         "Invalid logprobs value, the valid range of logprobs is [0, 20]."},
        {kCompletion, completion_body(R"(,"prompt":"a","logprobs":21)"),
         "Invalid logprobs value, the valid range of logprobs is [0, 20]."},
        {kCompletion, completion_body(R"(,"prompt":"a","logprobs":true)"),
         "invalid request body: logprobs: expected an integer, got boolean"},
        {kCompletion, completion_body(R"(,"prompt":"a","best_of":3)"),
         "Invalid best_of value (currently only best_of = n is supported)"},
        {kCompletion, completion_body(R"(,"prompt":"a","n":2,"best_of":1)"),
         "Invalid best_of value (currently only best_of = n is supported)"},
    };
}

TEST(ApiRequest, RefusesWithTheExpectedMessage) {
    for (const auto& rows : {bad_bodies(), bad_messages(), bad_sampling(), bad_biases(),
                             bad_lengths(), bad_control(), bad_completions()}) {
        for (const Refusal& row : rows) {
            const auto request = parse_api_request(row.kind, row.body, kOptions);
            EXPECT_EQ(request.status().code(), StatusCode::invalid_argument) << row.body;
            EXPECT_THAT(request.status().message(), HasSubstr(row.message)) << row.body;
        }
    }
}

}  // namespace
}  // namespace fathom
