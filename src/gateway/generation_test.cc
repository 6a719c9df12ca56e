#include "gateway/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/testing/scripted_engine.h"

namespace fathom {
namespace {

using testing::byte_ids;
using testing::ByteTokenizer;

const GenerationLimits kLimits = {.context_tokens = 1000,
                                  .max_tokens = 500,
                                  .bos_id = ByteTokenizer::kBos,
                                  .eos_id = ByteTokenizer::kEos,
                                  .vocab_size = 263};

GenerationRequest raw(const std::string& text) {
    GenerationRequest request;
    request.prompt = RawText{.text = text, .recognize_added = true};
    return request;
}

Result<PreparedRequest> prepared(const GenerationRequest& request) {
    return prepare(request, ByteTokenizer(), kLimits);
}

TEST(Prepare, AddsBeginOfSentenceOnce) {
    const auto plain = prepared(raw("ab"));
    EXPECT_EQ(plain->prompt, (std::vector<TokenId>{ByteTokenizer::kBos, 'a', 'b'}));
    const auto spelled = prepared(raw("<｜begin▁of▁sentence｜>ab"));
    EXPECT_EQ(spelled->prompt, plain->prompt);
    GenerationRequest forged;
    forged.prompt = RawText{.text = "<think>", .recognize_added = false};
    EXPECT_EQ(prepared(forged)->prompt.size(), 8u);  // no special token arises
}

TEST(Prepare, ModelsEndOfSentenceStopsUnlessIgnored) {
    GenerationRequest request = raw("a");
    request.stop_tokens = {7};
    EXPECT_EQ(prepared(request)->stop_tokens, (std::vector<TokenId>{7, ByteTokenizer::kEos}));
    request.ignore_eos = true;
    EXPECT_EQ(prepared(request)->stop_tokens, std::vector<TokenId>{7});
}

TEST(Prepare, DefaultOutputIsBoundedByTheContext) {
    EXPECT_EQ(prepared(raw("a"))->max_tokens, 16);
    EXPECT_EQ(prepared(raw(std::string(995, 'a')))->max_tokens, 4);
    EXPECT_EQ(prepared(raw(std::string(999, 'a')))->max_tokens, 1);  // a full context gives one
    GenerationRequest chat;
    chat.prompt = testing::user_says("hi", true);
    const auto thinking = prepared(chat);
    ASSERT_TRUE(thinking.ok()) << thinking.status().message();
    EXPECT_EQ(thinking->max_tokens, 1000 - static_cast<std::int64_t>(thinking->prompt.size()));
}

TEST(Prepare, APromptThatCannotFitIsRefusedWithoutBeingTokenized) {
    class NoTokenizer : public ByteTokenizer {
      public:
        std::vector<TokenId> encode(std::string_view, bool) const override {
            ADD_FAILURE() << "tokenized";
            return {};
        }
    };
    GenerationLimits limits = kLimits;
    limits.token_bytes_max = 30;
    GenerationRequest hole = raw(std::string(30, 'a')), chat;
    std::get<RawText>(hole.prompt).suffix = std::string(31'000, 'b');
    chat.prompt = testing::user_says(std::string(31'000, 'a'), false);
    for (const GenerationRequest& request : {raw(std::string(31'000, 'a')), hole, chat}) {
        const Status status = prepare(request, NoTokenizer(), limits).status();
        EXPECT_EQ(status.code(), StatusCode::invalid_argument);
        EXPECT_THAT(status.message(),
                    ::testing::StartsWith("This model's maximum context length is 1000 tokens. "
                                          "However, you requested at least 103"));
    }
    const auto fits = prepare(raw(std::string(999, 'a')), ByteTokenizer(), limits);
    EXPECT_TRUE(fits.ok());
    // Only counted, it may be as long as it likes.
    EXPECT_EQ(encode_request(raw(std::string(31'000, 'a')), ByteTokenizer(), limits)->size(),
              31'001u);
}

TEST(Prepare, AModelWithoutTokensOfAHoleSaysSo) {
    class NoHoles : public ByteTokenizer {
      public:
        std::optional<TokenId> added_id(std::string_view content) const override {
            if (content.find("fim") != std::string_view::npos) return std::nullopt;
            return ByteTokenizer::added_id(content);
        }
    };
    GenerationRequest hole = raw("a");
    std::get<RawText>(hole.prompt).suffix = "b";
    EXPECT_EQ(prepare(hole, NoHoles(), kLimits).status().message(),
              "Invalid 'suffix': this model cannot fill in, it has no token <｜fim▁begin｜>.");
}

TEST(Prepare, FillsAHoleWithTheTokensOfTheTemplate) {
    GenerationRequest hole = raw("a");
    std::get<RawText>(hole.prompt).suffix = "b";
    EXPECT_EQ(prepared(hole)->prompt,
              byte_ids("<｜begin▁of▁sentence｜><｜fim▁begin｜>a<｜fim▁hole｜>b<｜fim▁end｜>"));
    std::get<RawText>(hole.prompt).text = "<think>";
    EXPECT_EQ(prepared(hole)->prompt.size(), 4u + 7u + 1u) << "no special token arises";
}

TEST(Prepare, StopSequencesWaitForMinTokens) {
    GenerationRequest request = raw("a");
    request.sampling.min_tokens = 3;
    EXPECT_EQ(prepared(request)->output_rules->stops_after_tokens(), 3);
}

struct Refusal {
    const char* name;
    GenerationRequest request;
    const char* message;
};

std::vector<Refusal> refusals() {
    std::vector<Refusal> rows;
    const auto add = [&rows](const char* name, auto change, const char* message) {
        GenerationRequest request = raw("abc");
        change(request);
        rows.push_back({name, request, message});
    };
    add(
        "max_tokens_zero", [](auto& r) { r.max_tokens = 0; },
        "Invalid max_tokens value, the valid range of max_tokens is [1, 500]");
    add(
        "max_tokens_over", [](auto& r) { r.max_tokens = 501; },
        "Invalid max_tokens value, the valid range of max_tokens is [1, 500]");
    add(
        "prompt_over", [](auto& r) { r.prompt = RawText{.text = std::string(1000, 'a')}; },
        "This model's maximum context length is 1000 tokens. However, you requested 1001 tokens "
        "(1001 in the messages, 0 in the completion). Please reduce the length of the messages or "
        "completion.");
    add(
        "sum_over",
        [](auto& r) {
            r.prompt = RawText{.text = std::string(599, 'a')};
            r.max_tokens = 401;
        },
        "This model's maximum context length is 1000 tokens. However, you requested 1001 tokens "
        "(600 in the messages, 401 in the completion). Please reduce the length of the messages or "
        "completion.");
    add(
        "no_ids", [](auto& r) { r.prompt = std::vector<TokenId>(); },
        "Invalid 'prompt': empty. Expected at least one token.");
    add(
        "id_over",
        [](auto& r) {
            r.prompt = std::vector<TokenId>{1, 263};
        },
        "Invalid 'prompt[1]': token id 263 is outside the vocabulary [0, 263).");
    add(
        "id_negative", [](auto& r) { r.prompt = std::vector<TokenId>{-1}; },
        "Invalid 'prompt[0]': token id -1 is outside the vocabulary [0, 263).");
    add(
        "stop_token", [](auto& r) { r.stop_tokens = {900}; },
        "stop token 900 is outside the vocabulary [0, 263)");
    add(
        "timeout", [](auto& r) { r.timeout_us = -5; },
        "timeout is -5 us, expected 0 (none) or more");
    return rows;
}

TEST(Prepare, RefusesWithFieldValueAndLimit) {
    for (const Refusal& row : refusals()) {
        const auto result = prepared(row.request);
        EXPECT_EQ(result.status().code(), StatusCode::invalid_argument) << row.name;
        EXPECT_EQ(result.status().message(), row.message) << row.name;
    }
}

}  // namespace
}  // namespace fathom
