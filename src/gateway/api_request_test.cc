#include "gateway/api_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fathom {
namespace {

using ::testing::HasSubstr;

ApiOptions options_of(Profile profile) {
    ApiOptions options;
    options.lower.profile = profile;
    options.lower.models = {{"tiny", Dialect::v41}};
    options.lower.thinking_max_tokens = options.lower.chat_max_tokens = 1000;
    return options;
}

Result<ApiRequest> chat(const std::string& members, Profile profile = Profile::open) {
    return read_api_request(
        Api::chat, R"({"model":"tiny","messages":[{"role":"user","content":"Hi"}])" + members + "}",
        options_of(profile));
}
Result<ApiRequest> completion(const std::string& members, Profile profile = Profile::open) {
    return read_api_request(Api::completion, R"({"model":"tiny","prompt":"ab")" + members + "}",
                            options_of(profile));
}

TEST(ApiRequest, WhatShapesTheTokensReachesTheGeneration) {
    const std::string members =
        R"(,"n":3,"temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"seed":42,)"
        R"("presence_penalty":0.5,"frequency_penalty":-2,"repetition_penalty":1.5,)"
        R"("logit_bias":{"7":-100,"0":2.5},"min_tokens":4,"allowed_token_ids":[9,1],)"
        R"("stop_token_ids":[3],"logprobs_mode":"processed","ignore_eos":true,"max_tokens":12,)"
        R"("stop":["a","b"],"cache_salt":"s","stream":true,)"
        R"("stream_options":{"include_usage":true})";
    for (const auto& request : {chat(members + R"(,"logprobs":true,"top_logprobs":5)"),
                                completion(members + R"(,"logprobs":5)")}) {
        ASSERT_TRUE(request.ok()) << request.status().message();
        const GenerationRequest& generation = request->generation;
        const SamplingParams& sampling = generation.sampling;
        EXPECT_EQ(generation.choices, 3);
        EXPECT_EQ(sampling.temperature, 0.5);
        EXPECT_EQ(sampling.top_p, 0.25);
        EXPECT_EQ(sampling.top_k, 7);
        EXPECT_EQ(sampling.min_p, 0.125);
        EXPECT_EQ(sampling.seed, 42u);
        EXPECT_TRUE(request->has_seed);
        EXPECT_EQ(sampling.presence_penalty, 0.5);
        EXPECT_EQ(sampling.frequency_penalty, -2.0);
        EXPECT_EQ(sampling.repetition_penalty, 1.5);
        ASSERT_EQ(sampling.logit_bias.size(), 2u);
        EXPECT_EQ(sampling.logit_bias[1].id, 7);
        EXPECT_EQ(sampling.logit_bias[1].bias, -100.0f);
        EXPECT_EQ(sampling.min_tokens, 4);
        EXPECT_EQ(sampling.allowed_tokens, (std::vector<TokenId>{1, 9}));
        EXPECT_EQ(generation.stop_tokens, std::vector<TokenId>{3});
        EXPECT_EQ(sampling.logprobs, 5);
        EXPECT_TRUE(sampling.logprobs_processed);
        EXPECT_TRUE(generation.ignore_eos);
        EXPECT_EQ(generation.max_tokens, 12);
        EXPECT_EQ(generation.parsing.stop_sequences, (std::vector<std::string>{"a", "b"}));
        EXPECT_EQ(generation.cache_salt, "s");
        EXPECT_TRUE(request->stream());
        EXPECT_TRUE(request->lowered.include_usage);
    }
}

TEST(ApiRequest, DefaultsAreTheDocumentedOnes) {
    for (const auto& request : {chat(""), completion("")}) {
        ASSERT_TRUE(request.ok()) << request.status().message();
        const SamplingParams& sampling = request->generation.sampling;
        EXPECT_EQ(sampling.temperature, 1.0);
        EXPECT_EQ(sampling.top_k, 0);
        EXPECT_EQ(sampling.min_p, 0.0);
        EXPECT_EQ(sampling.logprobs, -1);
        EXPECT_FALSE(sampling.logprobs_processed);
        EXPECT_FALSE(request->has_seed);
        EXPECT_FALSE(request->generation.max_tokens);
        EXPECT_EQ(request->generation.choices, 1);
        EXPECT_FALSE(request->stores);
    }
    EXPECT_EQ(chat(R"(,"max_completion_tokens":7)")->generation.max_tokens, 7);
}

TEST(ApiRequest, ASeedMeansExactReuseUnlessTheRequestSays) {
    EXPECT_EQ(chat("")->generation.reuse, PrefixReuse::any);
    EXPECT_EQ(chat(R"(,"seed":1)")->generation.reuse, PrefixReuse::exact);
    EXPECT_EQ(chat(R"(,"seed":1,"prefix_cache":"any")")->generation.reuse, PrefixReuse::any);
    EXPECT_EQ(completion(R"(,"prefix_cache":"exact")")->generation.reuse, PrefixReuse::exact);
    EXPECT_EQ(completion(R"(,"prefix_cache":"none")")->generation.reuse, PrefixReuse::none);
}

TEST(ApiRequest, TheReferenceOverridesSamplingOfChatsAndKnowsNoCompletions) {
    const char* members = R"(,"temperature":0,"top_p":0.5,"top_k":5)";
    const SamplingParams reference = chat(members, Profile::reference)->generation.sampling;
    EXPECT_EQ(reference.temperature, 1.0);
    EXPECT_EQ(reference.top_p, 0.95F);
    EXPECT_EQ(reference.top_k, 0);
    EXPECT_EQ(chat(R"(,"n":2)", Profile::reference).status().message(),
              "Invalid n value (currently only n = 1 is supported)");
    const SamplingParams raw = completion(members, Profile::reference)->generation.sampling;
    EXPECT_EQ(raw.temperature, 0.0);
    EXPECT_EQ(raw.top_p, 0.5);
    EXPECT_EQ(raw.top_k, 5);
}

TEST(ApiRequest, ReadsPrompts) {
    const auto text = [](const Result<ApiRequest>& request) {
        return std::get<RawText>(request->generation.prompt);
    };
    EXPECT_EQ(text(completion("")).text, "ab");
    EXPECT_TRUE(text(completion("")).recognize_added);
    EXPECT_EQ(text(completion(R"(,"prompt":["cd"],"suffix":"")")).text, "cd");
    EXPECT_FALSE(text(completion(R"(,"suffix":"")")).suffix);
    EXPECT_EQ(text(completion(R"(,"suffix":"end")")).suffix, "end");
    for (const char* ids : {R"(,"prompt":[1,2],"best_of":1,"echo":false)", R"(,"prompt":[[1,2]])"})
        EXPECT_EQ(std::get<std::vector<TokenId>>(completion(ids)->generation.prompt),
                  (std::vector<TokenId>{1, 2}));
    // What is a conversation's has no place here and no effect.
    EXPECT_TRUE(
        completion(R"(,"tools":3,"messages":[],"response_format":{},"top_logprobs":4)").ok());
}

struct Refusal {
    Result<ApiRequest> request;
    const char* message;  // part of it
};

TEST(ApiRequest, RefusesWithASentence) {
    const char* picture =
        R"(,"messages":[{"role":"user","content":[{"type":"image_url","image_url":)"
        R"({"url":"https://a.b/c.png"}}]}])";
    const std::vector<Refusal> rows = {
        {chat(R"(,"model":"gpt")"), "The supported API model names are tiny, but you passed gpt."},
        {chat(picture), "images are not supported: this server has no vision model"},
        {chat(R"(,"n":17)"), "the valid range of n is [1, 16]"},
        {chat(R"(,"max_tokens":1001)"), "the valid range of max_tokens is [1, 1000]"},
        {completion(R"(,"model":"gpt")"), "but you passed gpt."},
        {completion(R"(,"prompt":null)"), "expected a string or a list of token ids"},
        {completion(R"(,"prompt":[])"), "Invalid 'prompt': empty."},
        {completion(R"(,"prompt":[[]])"), "Invalid 'prompt': empty."},
        {completion(R"(,"prompt":["a","b"])"), "Invalid 'prompt': 2 prompts, expected one"},
        {completion(R"(,"prompt":[1,-1])"), "Invalid 'prompt[1]': -1, expected a token id"},
        {completion(R"(,"prompt":[1,2147483648])"), "Invalid 'prompt[1]': 2147483648"},
        {completion(R"(,"prompt":[1,"a"])"), "Invalid 'prompt[1]': \"a\""},
        {completion(R"(,"prompt":[1],"suffix":"b")"), "the prompt must be a text then"},
        {completion(R"(,"echo":true)"), "`echo` is not supported"},
        {completion(R"(,"best_of":2)"), "only best_of = n is supported"},
        {completion(R"(,"logprobs":21)"), "the valid range of logprobs is [0, 20]"},
        {completion(R"(,"temperature":3)"), "the valid range of temperature is [0, 2]"},
        {read_api_request(Api::completion, "[]", options_of(Profile::open)),
         "struct CompletionRequest"},
        {read_api_request(Api::completion, R"({"model":"tiny"})", options_of(Profile::open)),
         "missing field `prompt`"},
    };
    for (const Refusal& row : rows) {
        EXPECT_EQ(row.request.status().code(), StatusCode::invalid_argument) << row.message;
        EXPECT_THAT(row.request.status().message(), HasSubstr(row.message));
    }
}

TEST(ApiRequest, EarlierItemsStandInFrontAndTheirErrorsAreTold) {
    const std::string body = R"({"model":"tiny","previous_response_id":"r1","input":"more"})";
    const auto earlier = [](const std::string& id) -> Result<Json::Array> {
        if (id != "r1") return error(StatusCode::not_found, "none");
        return Json::Array{
            Json::object({{"type", "message"}, {"role", "user"}, {"content", "first"}})};
    };
    const auto request = read_api_request(Api::responses, body, options_of(Profile::open), earlier);
    ASSERT_TRUE(request.ok()) << request.status().message();
    EXPECT_TRUE(request->stores);
    const auto& messages = std::get<Conversation>(request->generation.prompt).messages;
    ASSERT_EQ(messages.size(), 2u);
    EXPECT_EQ(messages[0].content, "first");
    EXPECT_EQ(messages[1].content, "more");
    EXPECT_EQ(read_api_request(Api::responses,
                               R"({"model":"tiny","previous_response_id":"r2","input":"more"})",
                               options_of(Profile::open), earlier)
                  .status()
                  .code(),
              StatusCode::not_found);
    EXPECT_FALSE(read_api_request(Api::responses, R"({"model":"tiny","store":false,"input":"x"})",
                                  options_of(Profile::open))
                     ->stores);
}

}  // namespace
}  // namespace fathom
