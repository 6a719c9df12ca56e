#include "engine/fork.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/core.h"
#include "engine/marker_model.h"

namespace fathom {
namespace {

using testing::choice_alone;
using testing::ChoiceRecorder;
using testing::expected_tokens;
using testing::make_request;
using testing::MarkerModel;

EngineConfig small_config() {
    EngineConfig config;
    config.pages = 32;
    config.sequences_max = 8;
    config.step_tokens_max = 64;
    config.prefill_chunk_max = 48;
    config.waiting_max = 8;
    config.tail_tokens = testing::kMarkerWindow + kDraftTokensMax + 1;
    return config;
}

struct Rig {
    explicit Rig(const EngineConfig& config = small_config()) {
        auto owned = std::make_unique<MarkerModel>(config.step_tokens_max);
        model = owned.get();
        auto created = EngineCore::create(std::move(owned), config, clock, nullptr);
        EXPECT_TRUE(created.ok()) << created.status().to_string();
        core = std::move(*created);
    }
    ~Rig() {
        EXPECT_EQ(model->violation, "");
        EXPECT_EQ(core->stats().pages_used, 0);
    }

    std::shared_ptr<ChoiceRecorder> add(const EngineRequest& request) {
        auto sink = std::make_shared<ChoiceRecorder>(request);
        const Status status = core->add(request, sink);
        EXPECT_TRUE(status.ok()) << status.to_string();
        return sink;
    }
    void run() {
        int steps = 0;
        while (core->step())
            ASSERT_LT(++steps, 100000);
        EXPECT_TRUE(core->idle());
    }
    void run_until_tokens(std::uint64_t count) {
        while (core->stats().output_tokens < count)
            ASSERT_TRUE(core->step());
    }

    ManualClock clock;
    MarkerModel* model = nullptr;
    std::unique_ptr<EngineCore> core;
};

EngineRequest with_choices(std::int64_t prompt, std::int64_t max_tokens, std::int64_t choices) {
    EngineRequest request = make_request(1, prompt, max_tokens);
    for (std::int64_t i = 1; i < choices; ++i)
        request.branches.push_back({.id = 100 + static_cast<std::uint64_t>(i),
                                    .seed = choice_seed(request.sampling.seed, i)});
    return request;
}

void expect_choice_alone(const EngineRequest& request, const ChoiceRecorder& sink,
                         std::uint64_t id) {
    const auto& choice = sink.choices.at(id);
    EXPECT_EQ(choice.tokens, expected_tokens(choice_alone(request, id))) << "choice " << id;
    EXPECT_EQ(choice.finish, FinishReason::length) << "choice " << id;
    EXPECT_EQ(choice.violation, "") << "choice " << id;
}

void expect_all_alone(const EngineRequest& request, const ChoiceRecorder& sink) {
    for (const auto& [id, choice] : sink.choices)
        expect_choice_alone(request, sink, id);
}

TEST(Fork, EveryChoiceEqualsARequestAloneAndThePromptIsComputedOnce) {
    for (const std::int64_t prompt : {1, 2, 30, 127, 128, 129, 255, 256, 257, 300}) {
        SCOPED_TRACE(prompt);
        Rig rig;
        const EngineRequest request = with_choices(prompt, 20, 4);
        const auto sink = rig.add(request);
        rig.run();
        expect_all_alone(request, *sink);
        EXPECT_EQ(rig.core->stats().prompt_tokens, static_cast<std::uint64_t>(prompt));
        EXPECT_EQ(rig.core->stats().output_tokens, 80u);
    }
}

TEST(Fork, ChoicesDifferAndTheFirstHasThePlainSeed) {
    Rig rig;
    const EngineRequest request = with_choices(40, 12, 3);
    const auto sink = rig.add(request);
    rig.run();
    EXPECT_NE(sink->choices.at(1).tokens, sink->choices.at(101).tokens);
    EXPECT_NE(sink->choices.at(101).tokens, sink->choices.at(102).tokens);
    EngineRequest plain = request;
    plain.branches.clear();
    EXPECT_EQ(sink->choices.at(1).tokens, expected_tokens(plain));
}

TEST(Fork, FullPagesAreSharedAndTheLastIsCopied) {
    Rig rig;
    const EngineRequest request = with_choices(300, 50, 4);
    const auto sink = rig.add(request);
    rig.run_until_tokens(8);
    EXPECT_EQ(rig.core->stats().running, 4);
    EXPECT_EQ(rig.core->stats().pages_used, 2 + 4);
    rig.run();
    expect_all_alone(request, *sink);
}

TEST(Fork, ChoicesThatWaitForAPlaceGoOnFromThePromptsEnd) {
    EngineConfig config = small_config();
    config.sequences_max = 1;
    Rig rig(config);
    const EngineRequest request = with_choices(200, 10, 3);
    const auto sink = rig.add(request);
    rig.run();
    expect_all_alone(request, *sink);
    EXPECT_EQ(rig.core->stats().prompt_tokens, 200u);
}

TEST(Fork, TheNextChoiceRunsThePromptWhenTheFirstIsCancelled) {
    Rig rig;
    const EngineRequest request = with_choices(300, 10, 3);
    const auto sink = rig.add(request);
    ASSERT_TRUE(rig.core->step());
    rig.core->cancel(1);
    rig.run();
    EXPECT_EQ(sink->choices.at(1).finish, FinishReason::cancelled);
    expect_choice_alone(request, *sink, 101);
    expect_choice_alone(request, *sink, 102);
}

TEST(Fork, PromptEndsAreKeptForSomeRequestsAndTheOthersComputeAgain) {
    EngineConfig config = small_config();
    config.sequences_max = 2;  // one prompt end is kept
    config.waiting_max = 32;
    Rig rig(config);
    std::vector<EngineRequest> requests;
    std::vector<std::shared_ptr<ChoiceRecorder>> sinks;
    for (std::uint64_t i = 0; i < 4; ++i) {
        EngineRequest request = with_choices(40 + static_cast<std::int64_t>(i), 30, 3);
        request.id = 10 * (i + 1);
        request.branches[0].id = request.id + 1;
        request.branches[1].id = request.id + 2;
        requests.push_back(request);
        sinks.push_back(rig.add(request));
    }
    rig.run();
    for (std::size_t i = 0; i < requests.size(); ++i)
        expect_all_alone(requests[i], *sinks[i]);
    EXPECT_GE(rig.core->stats().prompt_tokens, 40u + 41 + 42 + 43);
}

TEST(Fork, BranchesAreCancelledByThemselves) {
    Rig rig;
    const EngineRequest request = with_choices(150, 30, 4);
    const auto sink = rig.add(request);
    ASSERT_TRUE(rig.core->step());
    rig.core->cancel(102);  // still waits
    rig.run_until_tokens(20);
    rig.core->cancel(101);
    rig.run();
    expect_choice_alone(request, *sink, 1);
    expect_choice_alone(request, *sink, 103);
    EXPECT_EQ(sink->choices.at(101).finish, FinishReason::cancelled);
    EXPECT_EQ(sink->choices.at(102).finish, FinishReason::cancelled);
    EXPECT_TRUE(sink->choices.at(102).tokens.empty());
}

TEST(Fork, DeadlineEndsEveryChoice) {
    Rig rig;
    EngineRequest request = with_choices(60, 400, 3);
    request.deadline_us = 10;
    const auto sink = rig.add(request);
    rig.run_until_tokens(6);
    rig.clock.advance_us(20);
    rig.run();
    for (const auto& [id, choice] : sink->choices)
        EXPECT_EQ(choice.finish, FinishReason::deadline);
}

TEST(Fork, WithoutPagesForAllTheAnswersAreTheSame) {
    EngineConfig config = small_config();
    for (const std::int64_t pages : {4, 5, 6, 8}) {
        SCOPED_TRACE(pages);
        config.pages = pages;
        config.sequences_max = 4;
        Rig rig(config);
        const EngineRequest request = with_choices(250, 200, 4);
        const auto sink = rig.add(request);
        EngineRequest other = make_request(2, 100, 300);
        const auto other_sink = rig.add(other);
        rig.run();
        expect_all_alone(request, *sink);
        expect_choice_alone(other, *other_sink, 2);
    }
}

TEST(Fork, LogprobsComeWithEveryToken) {
    Rig rig;
    EngineRequest request = with_choices(20, 5, 2);
    request.sampling.logprobs = 3;
    std::vector<EngineEvent> events;
    struct Sink : EventSink {
        explicit Sink(std::vector<EngineEvent>& to) : events(to) {}
        void on_event(EngineEvent event) override { events.push_back(std::move(event)); }
        std::vector<EngineEvent>& events;
    };
    ASSERT_TRUE(rig.core->add(request, std::make_shared<Sink>(events)).ok());
    rig.run();
    ASSERT_EQ(events.size(), 10u);
    for (const EngineEvent& event : events) {
        ASSERT_EQ(event.logprobs.size(), event.tokens.size());
        EXPECT_EQ(event.logprobs[0].top.size(), 3u);
        EXPECT_LE(event.logprobs[0].logprob, 0);
    }
}

TEST(Fork, RefusesWhatCannotBe) {
    struct Case {
        std::function<void(EngineRequest&)> change;
        const char* message;
    };
    const std::vector<Case> cases = {
        {[](EngineRequest& r) { r.branches.resize(16); },
         "17 choices are asked for; at most 16 are allowed"},
        {[](EngineRequest& r) {
             r.committed = {1, 2};
         },
         "committed has 2 tokens; a request of 3 choices must begin with none"},
        {[](EngineRequest& r) { r.branches[1].id = 1; },
         "id 1 is given to two choices of one request"},
        {[](EngineRequest& r) { r.branches[1].id = 101; },
         "id 101 is given to two choices of one request"},
        {[](EngineRequest& r) { r.branches[0].id = 7; },
         "id 7 belongs to a request that is still live"},
        {[](EngineRequest& r) { r.branches.resize(8, {.id = 0, .seed = 0}); },
         "id 0 is given to two choices of one request"},
    };
    Rig rig;
    rig.add(make_request(7, 10, 10));
    for (const Case& c : cases) {
        EngineRequest request = with_choices(20, 5, 3);
        c.change(request);
        const Status status =
            rig.core->add(request, std::make_shared<ChoiceRecorder>(with_choices(20, 5, 3)));
        EXPECT_EQ(status.code(), StatusCode::invalid_argument);
        EXPECT_EQ(status.message(), c.message);
    }
    const Status full = rig.core->add(with_choices(20, 5, 8),
                                      std::make_shared<ChoiceRecorder>(with_choices(20, 5, 8)));
    EXPECT_EQ(full.code(), StatusCode::resource_exhausted);
    EXPECT_EQ(full.message(),
              "1 requests are waiting and 8 more came; the limit is 8; try again later");
    rig.run();
}

}  // namespace
}  // namespace fathom
