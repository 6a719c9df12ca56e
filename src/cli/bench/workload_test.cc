#include "cli/bench/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>

#include "recipe/synthetic_tokenizer.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Workload, ReadsJsonlOfEveryShape) {
    const auto requests = read_jsonl(
        "{\"prompt\": \"hi there\", \"max_tokens\": 7}\n\n"
        "{\"prompt\": [1, 2, 3], \"output_tokens\": 9}\r\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}",
        "f", {.output_tokens = 5});
    ASSERT_TRUE(requests.ok()) << requests.status().message();
    ASSERT_EQ(requests->size(), 3u);
    EXPECT_EQ((*requests)[0].text, "hi there");
    EXPECT_EQ((*requests)[0].max_tokens, 7);
    EXPECT_EQ((*requests)[1].ids, (std::vector<TokenId>{1, 2, 3}));
    EXPECT_EQ((*requests)[1].max_tokens, 9);
    EXPECT_EQ((*requests)[2].messages.items().size(), 1u);
    EXPECT_EQ((*requests)[2].max_tokens, 5);
}

TEST(Workload, NamesLineAndFieldOfABadLine) {
    struct Case {
        const char *line, *expected;
    };
    for (const Case& c :
         {Case{"{", "f:2: "}, Case{"[]", "f:2: expected an object, got array"},
          Case{"{}", "f:2: has neither prompt nor messages"},
          Case{"{\"prompt\": 5}", "f:2: prompt: expected a string or a list of token ids"},
          Case{"{\"prompt\": \"\"}", "f:2: prompt: is empty"},
          Case{"{\"prompt\": [1, \"x\"]}", "f:2: prompt[1]: expected a token id, got string"},
          Case{"{\"prompt\": [-1]}", "f:2: prompt[0]: expected a token id, got -1"},
          Case{"{\"prompt\": \"a\", \"max_tokens\": 0}", "f:2: max_tokens: expected an integer"},
          Case{"{\"prompt\": \"a\", \"max_tokens\": \"9\"}", "f:2: max_tokens"},
          Case{"{\"prompt\": \"a\", \"messages\": []}", "f:2: has both"},
          Case{"{\"messages\": []}", "f:2: messages: expected a list that is not empty"},
          Case{"{\"messages\": [{\"role\": \"user\"}]}",
               "f:2: messages[0].content: expected a string, got nothing"},
          Case{"{\"messages\": [7]}", "f:2: messages[0].role"}}) {
        const auto requests = read_jsonl(std::string("{\"prompt\": \"ok\"}\n") + c.line, "f", {});
        ASSERT_FALSE(requests.ok()) << c.line;
        EXPECT_THAT(requests.status().message(), HasSubstr(c.expected));
    }
}

Json sharegpt(const std::string& text) {
    return *parse_json(text);
}

TEST(Workload, TakesTheFirstTurnAndTheLengthOfTheReply) {
    const auto requests = read_sharegpt(
        sharegpt(R"([{"conversations": [{"from": "human", "value": "what is that thing"},
                                        {"from": "gpt", "value": "0123456789012345678"}]},
                     {"conversations": []}, {"conversations": [{"value": "alone"}]},
                     {"conversations": [{"value": "short"}, {"value": "x"}]}])"),
        "f", {});
    ASSERT_TRUE(requests.ok()) << requests.status().message();
    ASSERT_EQ(requests->size(), 1u) << "short and single turns are left out";
    EXPECT_EQ((*requests)[0].text, "what is that thing");
    EXPECT_EQ((*requests)[0].max_tokens, 5) << "four bytes count as a token";
}

TEST(Workload, LeavesOutLongConversations) {
    const Json root = sharegpt(R"([{"conversations": [{"value": "0123456789012345678901234"},
                                                      {"value": "0123456789012345678901234"}]}])");
    EXPECT_EQ(read_sharegpt(root, "f", {})->size(), 1u);
    EXPECT_EQ(read_sharegpt(root, "f", {.prompt_tokens_max = 6})->size(), 0u);
    EXPECT_EQ(read_sharegpt(root, "f", {.total_tokens_max = 13})->size(), 0u);
}

TEST(Workload, NamesEntryAndFieldOfABadConversation) {
    struct Case {
        const char *json, *expected;
    };
    for (const Case& c :
         {Case{"{}", "f: expected a list of conversations, got object"},
          Case{"[5]", "f: [0].conversations: expected a list, got nothing"},
          Case{R"([{"conversations": 3}])", "[0].conversations: expected a list, got integer"},
          Case{R"([{"conversations": [{"value": "a"}, {"value": null}]}])",
               "[0].conversations[1].value: expected a string, got null"},
          Case{R"([{"conversations": [4, 5]}])", "[0].conversations[0].value"}}) {
        const auto requests = read_sharegpt(sharegpt(c.json), "f", {});
        ASSERT_FALSE(requests.ok()) << c.json;
        EXPECT_THAT(requests.status().message(), HasSubstr(c.expected));
    }
}

TEST(Workload, RepeatsAFileThatIsTooShortAndCutsOneThatIsLonger) {
    const std::string path =
        ::testing::TempDir() + "workload_" + std::to_string(getpid()) + ".jsonl";
    std::ofstream(path) << "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n";
    const auto texts = [&](std::int64_t count) {
        const auto requests = make_workload({.dataset = "jsonl:" + path, .count = count});
        EXPECT_TRUE(requests.ok()) << requests.status().message();
        std::string joined;
        for (const LoadRequest& request : *requests)
            joined += request.text;
        return joined;
    };
    EXPECT_EQ(texts(0), "ab");
    EXPECT_EQ(texts(1), "a");
    EXPECT_EQ(texts(5), "ababa");
    std::remove(path.c_str());
    const auto gone = make_workload({.dataset = "jsonl:" + path});
    EXPECT_THAT(gone.status().message(), HasSubstr(path));
    EXPECT_THAT(make_workload({.dataset = "csv:x"}).status().message(),
                HasSubstr("expected sharegpt:FILE, jsonl:FILE or random"));
}

TEST(Workload, RandomPromptsHaveExactLengthsAndOnlyOrdinaryTokens) {
    const auto json = make_synthetic_tokenizer(1000);
    const auto tokenizer = Tokenizer::parse(json->dump(), "made");
    ASSERT_TRUE(tokenizer.ok());
    DatasetOptions options{.count = 50, .seed = 3, .output_tokens = 20, .input_tokens = 40};
    options.tokenizer = tokenizer->get();
    const auto fixed = make_workload(options);
    for (const LoadRequest& request : *fixed) {
        EXPECT_EQ(request.ids.size(), 40u);
        EXPECT_EQ(request.max_tokens, 20);
        for (const AddedToken& token : (*tokenizer)->added_tokens())
            EXPECT_THAT(request.ids, Not(::testing::Contains(token.id)));
    }
    EXPECT_NE((*fixed)[0].ids, (*fixed)[1].ids);
    EXPECT_EQ((*make_workload(options))[49].ids, (*fixed)[49].ids) << "equal options";
    options.spread = 0.5;
    std::size_t low = 1000, high = 0;
    const auto spread = make_workload(options);
    for (const LoadRequest& request : *spread) {
        low = std::min(low, request.ids.size());
        high = std::max(high, request.ids.size());
    }
    EXPECT_GE(low, 20u);
    EXPECT_LE(high, 60u);
    EXPECT_LT(low, high);
}

TEST(Workload, WithoutTokenizerRandomPromptsAreWords) {
    const auto requests = make_workload({.count = 1, .input_tokens = 12});
    const std::string& text = (*requests)[0].text;
    EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 12);
}

TEST(Workload, ArrivalsHaveTheRateAndTheSpreadOfTheirShape) {
    for (const double burstiness : {0.25, 1.0, 4.0}) {
        const auto times = arrival_times_us(20'001, 50, burstiness, 9);
        EXPECT_EQ(times.front(), 0);
        EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
        double sum = 0, squares = 0;
        for (std::size_t i = 1; i < times.size(); ++i) {
            const double gap = static_cast<double>(times[i] - times[i - 1]) / 1e6;
            sum += gap;
            squares += gap * gap;
        }
        const double mean = sum / 20'000;
        const double deviation = std::sqrt(squares / 20'000 - mean * mean);
        EXPECT_NEAR(mean * 50, 1, 0.05);
        EXPECT_NEAR(deviation / mean, 1 / std::sqrt(burstiness), 0.1) << burstiness;
        EXPECT_EQ(arrival_times_us(20'001, 50, burstiness, 9), times);
    }
}

}  // namespace
}  // namespace fathom
