#include "gateway/owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "gateway/testing/scripted_engine.h"

namespace fathom {
namespace {

using testing::byte_ids;
using testing::ByteTokenizer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Script;
using testing::ScriptedCore;
using testing::WaitingExecutor;

class Recorder : public GenerationObserver {
  public:
    void on_events(const OutputParser::Events& events) override {
        EXPECT_FALSE(result);
        std::string piece;
        for (const OutputEvent& event : events) {
            EXPECT_EQ(ended.count(event.choice), 0u) << "an event after the choice's end";
            if (event.kind == OutputEvent::Kind::start) ++starts;
            if (event.kind == OutputEvent::Kind::finish) ended.emplace(event.choice, event);
            texts[event.choice].add(event);
            if (event.choice == 0 && event.kind == OutputEvent::Kind::content) piece += event.text;
        }
        if (!piece.empty()) pieces.push_back(piece);
    }
    void on_finish(const GenerationResult& r) override {
        EXPECT_FALSE(result) << "finished twice";
        result = r;
    }
    const std::string& reasoning() { return texts[0].reasoning; }
    const std::string& content() { return texts[0].content; }

    int starts = 0;
    std::vector<std::string> pieces;  // of the content of choice 0
    std::map<std::int64_t, AnswerText> texts;
    std::map<std::int64_t, OutputEvent> ended;  // by their finish event
    std::optional<GenerationResult> result;
};

class OwnerTest : public ::testing::Test {
  protected:
    OwnerTest()
        : script_(std::make_shared<Script>()),
          tokenizer_(std::make_shared<ByteTokenizer>()),
          engine_(std::make_unique<Engine>(std::make_unique<ScriptedCore>(script_, clock_))) {
        make({.model_name = "test"});
    }
    ~OwnerTest() override {
        registry_.reset();
        engine_.reset();
    }
    void make(const OwnerOptions& options) {
        registry_.reset();
        registry_ = std::make_unique<OwnerRegistry>(*engine_, tokenizer_, executor_, clock_,
                                                    metrics_, options);
    }
    void reply(const std::string& text) {
        script_->with([&](Script& s) { s.reply = [text](auto&) { return byte_ids(text); }; });
    }
    static GenerationRequest raw(const std::string& text) {
        GenerationRequest request;
        request.prompt = RawText{.text = text};
        request.max_tokens = 200;
        return request;
    }
    static GenerationRequest chat(bool thinking) {
        GenerationRequest request;
        request.prompt = testing::user_says("Hi", thinking);
        request.parsing = {};
        request.parsing.thinking_initial_stage =
            thinking ? ThinkingStage::reasoning_start : ThinkingStage::none;
        request.max_tokens = 200;
        return request;
    }
    std::shared_ptr<Recorder> start(const GenerationRequest& request) {
        auto prepared = prepare(request, *tokenizer_, registry_->limits());
        EXPECT_TRUE(prepared.ok()) << prepared.status().message();
        auto recorder = std::make_shared<Recorder>();
        auto owner = registry_->start(std::move(*prepared), recorder);
        EXPECT_TRUE(owner.ok());
        owner_ = *owner;
        return recorder;
    }
    std::shared_ptr<Recorder> run(const GenerationRequest& request) {
        auto recorder = start(request);
        EXPECT_TRUE(executor_.run_until([&] { return recorder->result.has_value(); }));
        return recorder;
    }
    std::size_t attempts_seen() {
        return script_->with([](Script& s) { return s.received.size(); });
    }

    ManualClock clock_;
    MetricsRegistry metrics_;
    WaitingExecutor executor_;
    std::shared_ptr<Script> script_;
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::unique_ptr<Engine> engine_;
    std::unique_ptr<OwnerRegistry> registry_;
    std::shared_ptr<RequestOwner> owner_;
};

TEST_F(OwnerTest, ReportsTextAndUsageOfAWholeAnswer) {
    reply("Hello!");
    script_->with([](Script& s) { s.cached_tokens = 3; });
    const auto got = run(raw("abcd"));
    EXPECT_EQ(got->content(), "Hello!");
    EXPECT_EQ(got->starts, 1);
    EXPECT_EQ(got->result->finish, GenerationFinish::stop);
    EXPECT_TRUE(got->result->status.ok());
    EXPECT_EQ(got->result->usage.prompt_tokens, 5);      // with begin-of-sentence
    EXPECT_EQ(got->result->usage.completion_tokens, 7);  // with end-of-sentence
    EXPECT_EQ(got->result->usage.cached_tokens, 3);
    EXPECT_EQ(got->result->choices[0].tokens.size(), 7u);
    EXPECT_EQ(registry_->live(), 0u);
    EXPECT_THAT(metrics_.expose(), HasSubstr("vllm:request_success_total{finished_reason=\"stop\","
                                             "model_name=\"test\"} 1"));
}

TEST_F(OwnerTest, AnEndThatDoesNotEndTheAnswerCountsButHasNoText) {
    script_->with([](Script& s) {
        s.reply = [](auto&) {
            return std::vector<TokenId>{'a', testing::ByteTokenizer::kEos, 'b',
                                        testing::ByteTokenizer::kEos, 'c'};
        };
    });
    GenerationRequest request = raw("x");
    request.ignore_eos = true;
    request.max_tokens = 5;
    const auto got = run(request);
    EXPECT_EQ(got->content(), "abc");
    EXPECT_EQ(got->result->finish, GenerationFinish::length);
    EXPECT_EQ(got->result->usage.completion_tokens, 5);
}

TEST_F(OwnerTest, EndsAtMaxTokens) {
    reply("Hello!");
    GenerationRequest request = raw("x");
    request.max_tokens = 3;
    const auto got = run(request);
    EXPECT_EQ(got->content(), "Hel");
    EXPECT_EQ(got->result->finish, GenerationFinish::length);
    EXPECT_EQ(got->result->usage.completion_tokens, 3);
}

TEST_F(OwnerTest, ReleasesWholeCharactersOnly) {
    reply("a\u00e9\U0001F600z");
    const auto got = run(raw("x"));
    EXPECT_THAT(got->pieces, ElementsAre("a", "\u00e9", "\U0001F600", "z"));
}

TEST_F(OwnerTest, SplitsThinkingFromContent) {
    reply("deep</think>answer");
    const auto got = run(chat(true));
    EXPECT_EQ(got->reasoning(), "deep");
    EXPECT_EQ(got->content(), "answer");
    const auto plain = run(chat(false));
    EXPECT_EQ(plain->reasoning(), "");
    EXPECT_THAT(plain->content(), HasSubstr("answer"));
}

TEST_F(OwnerTest, StopStringAcrossTokensEndsAndCancels) {
    reply("one two three");
    GenerationRequest request = raw("x");
    request.parsing.stop_sequences = {"wo t", "zzz"};
    const auto got = run(request);
    EXPECT_EQ(got->content(), "one t");
    EXPECT_EQ(got->result->finish, GenerationFinish::stop);
    EXPECT_EQ(got->result->choices[0].matched_stop, "wo t");
    EXPECT_EQ(got->result->usage.completion_tokens, 9);  // up to the token that completed it
    EXPECT_TRUE(
        executor_.run_until([&] { return script_->with([](Script& s) { return s.live == 0; }); }));
}

TEST_F(OwnerTest, StopStringInsideOneEventDropsTheTokensBehindIt) {
    reply("one two three");
    script_->with([](Script& s) { s.tokens_per_step = 100; });
    GenerationRequest request = raw("x");
    request.parsing.stop_sequences = {"two"};
    const auto got = run(request);
    EXPECT_EQ(got->content(), "one ");
    EXPECT_EQ(got->result->choices[0].tokens.size(), 7u);
}

TEST_F(OwnerTest, StopStringsDoNotActOnReasoning) {
    reply("stop here</think>and stop there");
    GenerationRequest request = chat(true);
    request.parsing.stop_sequences = {"stop"};
    const auto got = run(request);
    EXPECT_EQ(got->reasoning(), "stop here");
    EXPECT_EQ(got->content(), "and ");
}

TEST_F(OwnerTest, UnfinishedStopStringIsShownAtTheEnd) {
    reply("abc EN");
    GenerationRequest request = raw("x");
    request.parsing.stop_sequences = {"END"};
    EXPECT_EQ(run(request)->content(), "abc EN");
}

TEST_F(OwnerTest, ResumesFromTheLogOnAGap) {
    reply("abcdef");
    bool lost = false;
    script_->with([&lost](Script& s) {
        s.edit = [&lost](EngineEvent& event) {
            if (event.first_index != 2 || lost) return true;
            lost = true;
            return false;
        };
    });
    const auto got = run(raw("x"));
    EXPECT_EQ(got->content(), "abcdef");
    EXPECT_EQ(got->result->attempts, 2u);
    EXPECT_EQ(got->result->usage.completion_tokens, 7);
    const auto second = script_->with([](Script& s) { return s.received.at(1); });
    EXPECT_EQ(second.attempt, 2u);
    EXPECT_EQ(second.committed, byte_ids("ab"));
}

TEST_F(OwnerTest, GoesOnWithTheHistoryOfWhatTheLogHolds) {
    reply("abcdef");
    bool lost = false;
    script_->with([&lost](Script& s) {
        s.edit = [&lost](EngineEvent& event) {
            event.anchors.replays = {256, 512};
            if (event.first_index != 2 || lost) return true;
            lost = true;
            return false;
        };
    });
    EXPECT_EQ(run(raw("x"))->result->anchors.replays, (std::vector<std::int64_t>{256, 512}));
    const auto received = script_->with([](Script& s) { return s.received; });
    EXPECT_FALSE(received.at(0).replays.has_value());
    EXPECT_EQ(received.at(1).replays, (std::vector<std::int64_t>{256, 512}));
}

TEST_F(OwnerTest, TellsTheEngineWhatMayBeReused) {
    reply("a");
    GenerationRequest request = raw("x");
    request.cache_salt = "s";
    run(request);
    request.reuse = PrefixReuse::exact;
    run(request);
    request.reuse = PrefixReuse::none;
    run(request);
    const auto received = script_->with([](Script& s) { return s.received; });
    EXPECT_EQ(received.at(0).cache_salt, "s");
    EXPECT_TRUE(received.at(0).use_cache);
    EXPECT_FALSE(received.at(0).replays.has_value());
    EXPECT_TRUE(received.at(1).replays.has_value());
    EXPECT_FALSE(received.at(2).use_cache);
}

TEST_F(OwnerTest, DropsEqualOverlapAndResumesOnADifferentOne) {
    reply("abcdef");
    script_->with([](Script& s) {
        s.edit = [](EngineEvent& event) {
            if (event.first_index == 3) {  // repeats what was sent before
                event.first_index = 1;
                event.tokens.insert(event.tokens.begin(), {'b', 'c'});
            }
            return true;
        };
    });
    EXPECT_EQ(run(raw("x"))->result->attempts, 1u);
    script_->with([](Script& s) {
        s.edit = [](EngineEvent& event) {
            if (event.first_index == 3 && event.attempt == 1) {
                event.first_index = 1;
                event.tokens.insert(event.tokens.begin(), {'b', 'X'});
            }
            return true;
        };
    });
    const auto got = run(raw("x"));
    EXPECT_EQ(got->content(), "abcdef");
    EXPECT_EQ(got->result->attempts, 2u);
}

TEST_F(OwnerTest, GivesUpAfterThreeAttempts) {
    reply("abcdef");
    script_->with([](Script& s) {
        s.edit = [](EngineEvent& event) {
            event.first_index += 1;
            return true;
        };
    });
    const auto got = run(raw("x"));
    EXPECT_EQ(got->result->finish, GenerationFinish::error);
    EXPECT_EQ(got->result->status.code(), StatusCode::internal);
    EXPECT_EQ(got->result->attempts, 3u);
    EXPECT_EQ(got->content(), "");
    EXPECT_EQ(attempts_seen(), 3u);
}

TEST_F(OwnerTest, IgnoresEventsOfAnEarlierAttempt) {
    reply("abcdef");
    script_->with([](Script& s) {
        s.edit = [](EngineEvent& event) {
            if (event.first_index == 1) event.attempt -= 1;  // as if late: this one is lost
            return true;
        };
    });
    const auto got = run(raw("x"));
    EXPECT_EQ(got->result->finish, GenerationFinish::error);  // every attempt meets the gap
    EXPECT_EQ(got->content().substr(0, 1), "a");
}

TEST_F(OwnerTest, FindsToolCallsAndTheirArgumentsHoweverTokensCutThem) {
    reply(
        "so\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
        "string=\"true\">x\"y</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>");
    GenerationRequest request = chat(false);
    request.parsing.parse_tool_calls = true;
    request.max_tokens = 400;
    const auto got = run(request);
    EXPECT_EQ(got->content(), "so");
    ASSERT_EQ(got->texts[0].calls.size(), 1u);
    EXPECT_EQ(got->texts[0].calls[0].name, "f");
    EXPECT_EQ(got->texts[0].calls[0].arguments, R"({"a": "x\"y"})");
    EXPECT_EQ(got->ended.at(0).finish, OutputFinish::tool_calls);
}

TEST_F(OwnerTest, RawOutputIsContentToTheByte) {
    reply("\n\nwhy</think>\n<｜DSML｜tool_calls>");
    EXPECT_EQ(run(raw("x"))->content(), "\n\nwhy</think>\n<｜DSML｜tool_calls>");
}

TEST_F(OwnerTest, CancelEndsAtOnceAndReachesTheEngine) {
    reply("abc");
    script_->with([](Script& s) { s.hold = true; });
    const auto got = start(raw("x"));
    EXPECT_TRUE(executor_.run_until([&] { return attempts_seen() == 1; }));
    owner_->cancel();
    EXPECT_TRUE(executor_.run_until([&] { return got->result.has_value(); }));
    EXPECT_EQ(got->result->finish, GenerationFinish::cancelled);
    EXPECT_EQ(got->result->status.code(), StatusCode::cancelled);
    EXPECT_TRUE(executor_.run_until(
        [&] { return script_->with([](Script& s) { return s.cancelled.size() == 1; }); }));
    owner_->cancel();  // repeatable
    executor_.run_all();
    EXPECT_EQ(registry_->live(), 0u);
}

TEST_F(OwnerTest, TimeOutEndsARequestWhoseEngineIsSilent) {
    script_->with([](Script& s) { s.hold = true; });
    GenerationRequest request = raw("x");
    request.timeout_us = 5'000'000;
    const auto got = start(request);
    clock_.advance_us(4'999'999);
    registry_->tick();
    executor_.run_all();
    EXPECT_FALSE(got->result);
    clock_.advance_us(1);
    registry_->tick();
    executor_.run_all();
    ASSERT_TRUE(got->result);
    EXPECT_EQ(got->result->finish, GenerationFinish::deadline);
    EXPECT_THAT(got->result->status.message(), HasSubstr("5000 ms"));
}

TEST_F(OwnerTest, NotStartedLimitEndsAQueuedRequest) {
    make({.model_name = "test", .not_started_us = 1'000'000});
    script_->with([](Script& s) { s.hold = true; });
    const auto got = start(raw("x"));
    clock_.advance_us(1'000'000);
    registry_->tick();
    executor_.run_all();
    ASSERT_TRUE(got->result);
    EXPECT_EQ(got->result->finish, GenerationFinish::deadline);
}

TEST_F(OwnerTest, RefusesAboveTheInFlightLimit) {
    make({.model_name = "test", .in_flight_max = 1});
    script_->with([](Script& s) { s.hold = true; });
    const auto first = start(raw("x"));
    auto prepared = prepare(raw("y"), *tokenizer_, registry_->limits());
    const auto second = registry_->start(std::move(*prepared), std::make_shared<Recorder>());
    EXPECT_EQ(second.status().code(), StatusCode::resource_exhausted);
    registry_->cancel_all();
    EXPECT_TRUE(executor_.run_until([&] { return registry_->live() == 0; }));
    EXPECT_TRUE(first->result);
}

TEST_F(OwnerTest, PassesTheEnginesRefusalOn) {
    script_->with([](Script& s) {
        s.refuse = [](auto&) { return error(StatusCode::resource_exhausted, "queue is full"); };
    });
    const auto got = run(raw("x"));
    EXPECT_EQ(got->result->finish, GenerationFinish::error);
    EXPECT_EQ(got->result->status.code(), StatusCode::resource_exhausted);
    EXPECT_EQ(got->starts, 0);
}

TEST_F(OwnerTest, SurvivesALateEventAfterTheRegistryIsGone) {
    script_->with([](Script& s) { s.hold = true; });
    const auto got = start(raw("x"));
    EXPECT_TRUE(executor_.run_until([&] { return attempts_seen() == 1; }));
    registry_->cancel_all();
    EXPECT_TRUE(executor_.run_until([&] { return registry_->live() == 0; }));
    registry_.reset();
    engine_.reset();  // its last events find a closed gate
    owner_->cancel();
    executor_.run_all();
}

TEST_F(OwnerTest, ChoicesAreGivenToTheEngineTogetherWithSeedsOfTheirOwn) {
    reply("abc");
    GenerationRequest request = raw("q");
    request.choices = 3;
    request.sampling.seed = 5;
    const auto got = run(request);
    ASSERT_EQ(attempts_seen(), 1u);
    script_->with([&](Script& s) {
        const EngineRequest& received = s.received[0];
        EXPECT_EQ(received.sampling.seed, 5u);
        ASSERT_EQ(received.branches.size(), 2u);
        EXPECT_EQ(received.branches[0].seed, choice_seed(5, 1));
        EXPECT_EQ(received.branches[1].seed, choice_seed(5, 2));
    });
}

TEST_F(OwnerTest, ChoicesHaveLogsOfTheirOwnAndUsageCountsThePromptOnce) {
    script_->with([](Script& s) {
        s.reply = [](const EngineRequest& r) {
            return byte_ids(r.sampling.seed == 5 ? "first" : "other one");
        };
    });
    GenerationRequest request = raw("q");
    request.choices = 2;
    request.sampling.seed = 5;
    const auto got = run(request);
    EXPECT_TRUE(got->result->status.ok());
    EXPECT_EQ(got->starts, 2);
    EXPECT_EQ(got->texts[0].content, "first");
    EXPECT_EQ(got->texts[1].content, "other one");
    ASSERT_EQ(got->result->choices.size(), 2u);
    EXPECT_EQ(got->result->choices[0].tokens.size(), 6u);  // with the end of sentence
    EXPECT_EQ(got->result->choices[1].tokens.size(), 10u);
    EXPECT_EQ(got->result->usage.prompt_tokens, 2);
    EXPECT_EQ(got->result->usage.completion_tokens, 16);
    EXPECT_EQ(got->ended.at(0).completion_tokens, 6);
    EXPECT_EQ(got->ended.at(1).completion_tokens, 10);
}

TEST_F(OwnerTest, AStopStringEndsItsChoiceAlone) {
    script_->with([](Script& s) {
        s.reply = [](const EngineRequest& r) {
            return byte_ids(r.sampling.seed == 5 ? "aXb" : "long answer");
        };
    });
    GenerationRequest request = raw("q");
    request.choices = 2;
    request.sampling.seed = 5;
    request.parsing.stop_sequences = {"X"};
    const auto got = run(request);
    EXPECT_EQ(got->texts[0].content, "a");
    EXPECT_EQ(got->texts[1].content, "long answer");
    EXPECT_EQ(got->ended.at(0).finish, OutputFinish::stop_sequence);
    EXPECT_EQ(got->ended.at(0).text, "X");
    EXPECT_EQ(got->ended.at(1).finish, OutputFinish::stop);
    EXPECT_EQ(got->result->choices[1].matched_stop, "");
}

TEST_F(OwnerTest, AChoiceResumesByItselfFromItsLog) {
    script_->with([](Script& s) {
        s.reply = [](const EngineRequest& r) {
            return byte_ids(r.sampling.seed == 5 ? "first" : "other one");
        };
        s.edit = [lost = 0](EngineEvent& event) mutable {
            return !(event.first_index == 3 && event.attempt == 1 && lost++ == 1);
        };
    });
    GenerationRequest request = raw("q");
    request.choices = 2;
    request.sampling.seed = 5;
    const auto got = run(request);
    EXPECT_EQ(got->texts[0].content, "first");
    EXPECT_EQ(got->texts[1].content, "other one");
    EXPECT_EQ(got->result->attempts, 2u);
    ASSERT_EQ(attempts_seen(), 2u);
    script_->with([](Script& s) {
        EXPECT_EQ(s.received[1].committed, byte_ids("oth"));
        EXPECT_EQ(s.received[1].sampling.seed, choice_seed(5, 1));
        EXPECT_TRUE(s.received[1].branches.empty());
    });
}

TEST_F(OwnerTest, CancelAndRefusalEndAllChoices) {
    script_->with([](Script& s) { s.hold = true; });
    GenerationRequest request = raw("q");
    request.choices = 3;
    auto got = start(request);
    ASSERT_TRUE(
        executor_.run_until([&] { return script_->with([](Script& s) { return s.live == 3; }); }));
    owner_->cancel();
    ASSERT_TRUE(executor_.run_until([&] {
        return got->result.has_value() &&
               script_->with([](Script& s) { return s.cancelled.size() == 3; });
    }));
    for (const ChoiceResult& choice : got->result->choices)
        EXPECT_EQ(choice.finish, GenerationFinish::cancelled);
    script_->with(
        [](Script& s) { s.refuse = [](const EngineRequest&) { return invalid_argument("no"); }; });
    got = run(request);
    EXPECT_EQ(got->result->status.message(), "no");
    EXPECT_EQ(registry_->live(), 0u);
}

TEST_F(OwnerTest, LogprobsComeWithTheTextOfTheirTokens) {
    reply("h\xc3\xa9!");
    GenerationRequest request = raw("q");
    request.sampling.logprobs = 1;
    const auto got = run(request);
    const std::vector<TokenLogprob>& entries = got->texts[0].content_logprobs;
    EXPECT_EQ(got->content(), "hé!");
    ASSERT_EQ(entries.size(), 4u);  // the end of sentence has none
    EXPECT_EQ(entries[0].id, 'h');
    EXPECT_EQ(entries[0].logprob, -1.04f);
    EXPECT_EQ(entries[1].id, 0xc3);
    EXPECT_EQ(entries[2].id, 0xa9);
    ASSERT_EQ(entries[3].top.size(), 1u);
    EXPECT_EQ(entries[3].top[0].first, 'A');
    ASSERT_GE(got->pieces.size(), 3u);
    EXPECT_EQ(got->pieces[1], "é");
}

TEST_F(OwnerTest, LogprobsOfReasoningAreApartAndTheMarkerHasNone) {
    script_->with([](Script& s) { s.reply = [](auto&) { return byte_ids("why</think>so<st"); }; });
    GenerationRequest request = chat(true);
    request.sampling.logprobs = 0;
    request.parsing.stop_sequences = {"<stop>"};
    const auto got = run(request);
    EXPECT_EQ(got->reasoning(), "why");
    EXPECT_EQ(got->content(), "so<st");
    EXPECT_EQ(got->texts[0].reasoning_logprobs.size(), 3u);
    EXPECT_EQ(got->texts[0].content_logprobs.size(), 5u);
}

TEST_F(OwnerTest, LogprobsEndWhereAStopStringBegins) {
    reply("one two");
    GenerationRequest request = raw("q");
    request.sampling.logprobs = 0;
    request.parsing.stop_sequences = {" t"};
    const auto got = run(request);
    EXPECT_EQ(got->content(), "one");
    EXPECT_EQ(got->texts[0].content_logprobs.size(), 3u);
}

TEST_F(OwnerTest, StopStringsWaitForMinTokens) {
    reply("xaxbxc");
    GenerationRequest request = raw("q");
    request.sampling.min_tokens = 3;
    request.parsing.stop_sequences = {"x"};
    EXPECT_EQ(run(request)->content(), "xaxb");
}

TEST_F(OwnerTest, RefusesWhatThePromptCannotHave) {
    const auto message = [&](auto change) {
        GenerationRequest request = raw("q");
        change(request);
        return prepare(request, *tokenizer_, registry_->limits()).status().message();
    };
    EXPECT_EQ(message([](auto& r) { r.choices = 0; }),
              "Invalid n value, the valid range of n is [1, 16]");
    EXPECT_EQ(message([](auto& r) { r.choices = 17; }),
              "Invalid n value, the valid range of n is [1, 16]");
    EXPECT_EQ(message([](auto& r) { r.sampling.min_tokens = 201; }),
              "Invalid min_tokens value, the valid range of min_tokens is [0, 200], where "
              "max_tokens ends");
    EXPECT_EQ(message([](auto& r) {
                  r.sampling.logit_bias = {{269, 1.0f}};
              }),
              "logit_bias names token 269; ids of this model are 0 to 268");
    EXPECT_EQ(message([](auto& r) {
                  r.sampling.allowed_tokens = {5, 400};
              }),
              "allowed_token_ids[1] is token 400; ids of this model are 0 to 268");
}

TEST_F(OwnerTest, MeasuresOnTheGivenClock) {
    reply("ab");
    script_->with([](Script& s) { s.hold = true; });
    const auto got = start(raw("x"));
    clock_.advance_us(250'000);
    script_->with([](Script& s) { s.hold = false; });
    EXPECT_TRUE(executor_.run_until([&] { return got->result.has_value(); }));
    EXPECT_EQ(got->result->time_to_first_us, 250'000);
    EXPECT_EQ(got->result->total_us, 250'000);
}

}  // namespace
}  // namespace fathom
