#include "engine/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "engine/marker_model.h"
#include "engine/page_pool.h"
#include "engine/scheduler.h"

namespace fathom {
namespace {

using testing::expected_tokens;
using ::testing::HasSubstr;
using testing::make_request;
using testing::MarkerModel;
using testing::Recorder;

EngineConfig small_config() {
    EngineConfig config;
    config.pages = 16;
    config.sequences_max = 4;
    config.step_tokens_max = 64;
    config.prefill_chunk_max = 48;
    config.waiting_max = 32;
    config.tail_tokens = testing::kMarkerWindow + kDraftTokensMax + 1;
    return config;
}

struct Rig {
    explicit Rig(const EngineConfig& config = small_config(), MetricsRegistry* metrics = nullptr) {
        auto owned = std::make_unique<MarkerModel>(config.step_tokens_max);
        model = owned.get();
        auto created = EngineCore::create(std::move(owned), config, clock, metrics);
        EXPECT_TRUE(created.ok()) << created.status().to_string();
        core = std::move(*created);
    }
    ~Rig() { EXPECT_EQ(model->violation, ""); }

    std::shared_ptr<Recorder> add(const EngineRequest& request) {
        auto sink = std::make_shared<Recorder>(static_cast<std::int64_t>(request.committed.size()));
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
    std::int64_t pages_used() const { return core->stats().pages_used; }

    ManualClock clock;
    MarkerModel* model = nullptr;
    std::unique_ptr<EngineCore> core;
};

void expect_complete(const Recorder& sink, const EngineRequest& request) {
    EXPECT_EQ(sink.tokens, expected_tokens(request)) << "request " << request.id;
    EXPECT_EQ(sink.finish, FinishReason::length);
    EXPECT_EQ(sink.violation, "");
}

TEST(EngineCore, AnswersARequestAndGivesEverythingBack) {
    Rig rig;
    const EngineRequest request = make_request(1, 200, 70);
    const auto sink = rig.add(request);
    rig.run();
    expect_complete(*sink, request);
    EXPECT_EQ(rig.pages_used(), 0);
    EXPECT_EQ(rig.core->stats().prompt_tokens, 200u);
    EXPECT_EQ(rig.core->stats().output_tokens, 70u);
    EXPECT_FALSE(rig.core->step());
}

TEST(EngineCore, TokensDoNotDependOnCompanyChunksOrMode) {
    for (const std::int64_t chunk : {1, 7, 64}) {
        for (const PrefillMode mode :
             {PrefillMode::exact, PrefillMode::tail, PrefillMode::masked, PrefillMode::halo}) {
            EngineConfig config = small_config();
            config.prefill_chunk_max = chunk;
            config.prefill = mode;
            Rig rig(config);
            std::vector<EngineRequest> requests;
            std::vector<std::shared_ptr<Recorder>> sinks;
            for (std::uint64_t id = 0; id < 6; ++id) {
                requests.push_back(
                    make_request(id, static_cast<std::int64_t>(1 + id * 61), 20 + 3 * id));
                sinks.push_back(rig.add(requests.back()));
            }
            rig.run();
            for (std::size_t i = 0; i < requests.size(); ++i)
                expect_complete(*sinks[i], requests[i]);
            EXPECT_EQ(rig.pages_used(), 0);
        }
    }
}

TEST(EngineCore, OnlyTheTailRunsTheDecoder) {
    const auto rows = [](PrefillMode mode) {
        EngineConfig config = small_config();
        config.prefill = mode;
        Rig rig(config);
        rig.add(make_request(1, 200, 1));
        rig.run();
        return rig.model->decoder_half_rows;
    };
    EXPECT_EQ(rows(PrefillMode::exact), 200);
    EXPECT_EQ(rows(PrefillMode::masked), 200);
    EXPECT_EQ(rows(PrefillMode::tail), 22);
    EXPECT_EQ(rows(PrefillMode::halo), 16 + 15);
}

TEST(EngineCore, SeveralPromptsShareAStepBesideDecoding) {
    Rig rig;
    rig.add(make_request(1, 10, 50));
    rig.core->step();
    rig.add(make_request(2, 20, 5));
    rig.add(make_request(3, 30, 5));
    rig.core->step();
    EXPECT_EQ(rig.model->last_spans, 3);
    EXPECT_EQ(rig.model->last_rows, 1 + 20 + 30);
    rig.run();
}

TEST(EngineCore, StepAndChunkLimitsHold) {
    EngineConfig config = small_config();
    config.step_tokens_max = 20;
    config.prefill_chunk_max = 16;
    Rig rig(config);
    for (std::uint64_t id = 0; id < 5; ++id)
        rig.add(make_request(id, 100, 10));
    while (rig.core->step())
        ASSERT_LE(rig.model->last_rows, 20);
    EXPECT_TRUE(rig.core->idle());
}

TEST(EngineCore, MoreDecodingSequencesThanRowsTakeTurnsByAge) {
    EngineConfig config = small_config();
    config.step_tokens_max = 1;
    Rig rig(config);
    std::vector<EngineRequest> requests;
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (std::uint64_t id = 0; id < 3; ++id) {
        requests.push_back(make_request(id, 10, 20));
        sinks.push_back(rig.add(requests.back()));
    }
    rig.run();
    for (std::size_t i = 0; i < requests.size(); ++i)
        expect_complete(*sinks[i], requests[i]);
}

TEST(EngineCore, ALongPromptDoesNotStopDecoding) {
    EngineConfig config = small_config();
    config.prefill_chunk_max = 8;
    Rig rig(config);
    const auto short_one = rig.add(make_request(1, 4, 30));
    rig.core->step();
    rig.add(make_request(2, 400, 2));
    for (int step = 0; step < 10; ++step) {
        const std::size_t before = short_one->tokens.size();
        ASSERT_TRUE(rig.core->step());
        ASSERT_EQ(short_one->tokens.size(), before + 1);
    }
    rig.run();
}

TEST(EngineCore, AShortPromptThatExceedsItsShareDoesNotWaitForALongOne) {
    EngineConfig config = small_config();
    config.step_tokens_max = 512;
    config.prefill_chunk_max = 256;
    config.step_budget_us = 100'000;
    config.cost.k_us[static_cast<std::size_t>(CostFeature::rows)] = 1000;
    Rig rig(config);
    const auto long_one = rig.add(make_request(1, 600, 1));
    rig.core->step();
    // 100 rows take the whole budget, of which the oldest keeps a part; less than a block is left.
    const auto short_one = rig.add(make_request(2, 100, 1));
    for (int step = 0; step < 2; ++step)
        ASSERT_TRUE(rig.core->step());
    EXPECT_EQ(short_one->finish, FinishReason::length);
    EXPECT_TRUE(long_one->tokens.empty());
    rig.run();
}

TEST(EngineCore, ShortPromptsWithoutEndDelayALongOneButDoNotStopIt) {
    EngineConfig config = small_config();
    config.step_tokens_max = 512;
    config.prefill_chunk_max = 256;
    config.step_budget_us = 40'000;
    config.cost.k_us[static_cast<std::size_t>(CostFeature::rows)] = 1000;
    Rig rig(config);
    const auto long_one = rig.add(make_request(1, 600, 1));
    // A step has time for 40 rows. A short prompt needs 32 of them; a quarter of the time is the
    // long one's, which it saves until it has 32 rows too: every fourth step.
    std::uint64_t next = 2;
    int steps = 0, extended = 0;
    while (long_one->finish == FinishReason::none) {
        const auto short_one = rig.add(make_request(next++, 32, 1));
        const std::int64_t before = rig.core->stats().prompt_tokens;
        ASSERT_TRUE(rig.core->step());
        if (long_one->finish == FinishReason::none) {  // its last rows are few and go first
            EXPECT_EQ(short_one->finish, FinishReason::length) << "after one step";
        }
        if (rig.core->stats().prompt_tokens - before > 32) ++extended;
        ASSERT_LT(++steps, 100);
    }
    EXPECT_GE(steps, 3 * extended);
}

TEST(EngineCore, AChunkEndsWhereTheCallerSaysSo) {
    Rig rig;
    EngineRequest request = make_request(1, 150, 3);
    request.chunk_ends = {1, 30, 70, 128, 150};
    const auto sink = rig.add(request);
    std::vector<std::int64_t> ends;
    while (rig.core->step())
        ends.push_back(rig.model->ends.at(0));
    EXPECT_EQ(ends, (std::vector<std::int64_t>{1, 30, 70, 118, 128, 150, 151, 152}));
    expect_complete(*sink, request);
}

TEST(EngineCore, PlansTheNextStepWhileOneIsInFlight) {
    Rig rig;
    const EngineRequest first = make_request(1, 10, 5), second = make_request(2, 20, 5);
    const auto one = rig.add(first);
    ASSERT_TRUE(rig.core->launch());
    rig.core->plan_ahead();
    const auto two = rig.add(second);  // makes the plan untrue
    rig.core->plan_ahead();
    rig.core->compute();
    EXPECT_EQ(one->events, 0);
    rig.core->retire();
    ASSERT_TRUE(rig.core->launch());
    rig.core->deliver();
    EXPECT_EQ(one->tokens.size(), 1u);
    rig.core->compute();
    EXPECT_EQ(rig.model->ends, (std::vector<std::int64_t>{11, 20}));
    rig.core->retire();
    rig.run();
    expect_complete(*one, first);
    expect_complete(*two, second);
}

TEST(EngineCore, WhatIsCancelledInFlightEndsWithTheStepWithoutItsToken) {
    Rig rig;
    const auto gone = rig.add(make_request(1, 10, 5));
    const EngineRequest request = make_request(2, 10, 5);
    const auto stays = rig.add(request);
    ASSERT_TRUE(rig.core->launch());
    rig.core->plan_ahead();
    rig.core->cancel(1);
    rig.core->deliver();
    EXPECT_EQ(gone->events, 0);
    rig.core->compute();
    rig.core->retire();
    rig.core->deliver();
    EXPECT_EQ(gone->finish, FinishReason::cancelled);
    EXPECT_TRUE(gone->tokens.empty());
    rig.run();
    expect_complete(*stays, request);
}

TEST(EngineCore, MeasuresStepsAndTheGapsBetweenThem) {
    MetricsRegistry metrics;
    Rig rig(small_config(), &metrics);
    rig.model->before_forward = [&] { rig.clock.advance_us(1000); };
    for (const std::uint64_t id : {1u, 2u}) {
        rig.add(make_request(id, 10, 4));
        while (rig.core->step())
            rig.clock.advance_us(7);
        rig.clock.advance_us(1'000'000);  // idle time is no gap
    }
    EXPECT_EQ(rig.core->stats().step_us, 2u * 4 * 1000);
    EXPECT_EQ(rig.core->stats().step_gap_us, 2u * 3 * 7);
    EXPECT_THAT(metrics.expose(), HasSubstr("fathom_step_gap_seconds_count 6"));
    EXPECT_THAT(metrics.expose(), HasSubstr("fathom_step_seconds_count 8"));
}

TEST(EngineCore, StopTokenIsReportedAndEndsTheRequest) {
    Rig rig;
    EngineRequest request = make_request(3, 20, 40);
    const std::vector<TokenId> free_run = expected_tokens(request);
    request.stop_tokens = {free_run[10]};
    const auto first = std::find(free_run.begin(), free_run.end(), free_run[10]);
    const auto sink = rig.add(request);
    rig.run();
    EXPECT_EQ(sink->tokens, std::vector<TokenId>(free_run.begin(), first + 1));
    EXPECT_EQ(sink->finish, FinishReason::stop_token);
}

TEST(EngineCore, TheContextEndsARequest) {
    Rig rig;
    const EngineRequest request = make_request(3, testing::kMarkerPositions - 5, 1 << 30);
    const auto sink = rig.add(request);
    rig.run();
    expect_complete(*sink, request);
    EXPECT_EQ(sink->tokens.size(), 5u);
}

TEST(EngineCore, CommittedTokensAreFedInChunksAndNotReportedAgain) {
    EngineRequest request = make_request(5, 50, 60);
    const std::vector<TokenId> all = expected_tokens(request);
    for (const std::size_t committed : {1u, 30u, 59u}) {
        Rig rig;
        request.committed.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(committed));
        const auto sink = rig.add(request);
        rig.run();
        EXPECT_EQ(
            sink->tokens,
            std::vector<TokenId>(all.begin() + static_cast<std::ptrdiff_t>(committed), all.end()));
        EXPECT_EQ(sink->violation, "");
        // 50 + committed rows in chunks of 48, then a step for each further token.
        EXPECT_EQ(rig.model->steps,
                  static_cast<std::int64_t>((49 + committed) / 48 + 60 - committed));
    }
}

TEST(EngineCore, CommittedTokensThatEndTheRequestRunNothing) {
    EngineRequest request = make_request(5, 50, 8);
    request.committed = expected_tokens(request);
    Rig rig;
    const auto length = rig.add(request);
    request.id = 6;
    request.max_tokens = 20;
    request.stop_tokens = {request.committed.back()};
    const auto stopped = rig.add(request);
    EXPECT_FALSE(rig.core->step());
    EXPECT_EQ(length->finish, FinishReason::length);
    EXPECT_EQ(stopped->finish, FinishReason::stop_token);
    EXPECT_EQ(stopped->last.first_index, 8);
    EXPECT_EQ(rig.model->steps, 0);
    EXPECT_TRUE(rig.core->idle());
}

TEST(EngineCore, ObservedLogitsComeOnceAPositionAlsoForCommittedTokens) {
    EngineRequest request = make_request(5, 40, 20);
    request.committed = expected_tokens(request);
    request.logits_begin = 10;
    request.override_prefill = true;
    request.prefill = PrefillMode::exact;
    Rig rig;
    const auto sink = rig.add(request);
    rig.run();
    EXPECT_EQ(sink->finish, FinishReason::length);
    EXPECT_TRUE(sink->tokens.empty());
    ASSERT_EQ(sink->logits.size(), 50u);  // positions 10 to 59
    std::vector<TokenId> ids = request.prompt;
    ids.insert(ids.end(), request.committed.begin(), request.committed.end());
    const auto markers = testing::markers_of(ids);
    for (const auto& [position, row] : sink->logits)
        EXPECT_EQ(row, testing::marker_logits(markers[static_cast<std::size_t>(position)]));
    EXPECT_EQ(sink->violation, "");
}

TEST(EngineCore, PreemptedSequencesGiveTheSameTokens) {
    EngineConfig config = small_config();
    config.pages = 6;
    Rig rig(config);
    std::vector<EngineRequest> requests;
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (std::uint64_t id = 0; id < 4; ++id) {
        requests.push_back(make_request(id, 100, 250));
        requests.back().logits_begin = 100;
        sinks.push_back(rig.add(requests.back()));
    }
    rig.run();
    EXPECT_GT(rig.core->stats().preemptions, 0u);
    for (std::size_t i = 0; i < requests.size(); ++i) {
        expect_complete(*sinks[i], requests[i]);
        EXPECT_EQ(sinks[i]->logits.size(), 249u);
    }
    EXPECT_EQ(rig.pages_used(), 0);
    EXPECT_EQ(rig.core->stats().prompt_tokens, 400u);  // recomputed rows count once
    EXPECT_EQ(rig.core->stats().output_tokens, 1000u);
}

TEST(EngineCore, TheYoungestIsPreemptedAndTheOldestNever) {
    EngineConfig config = small_config();
    config.pages = 4;
    config.sequences_max = 3;
    Rig rig(config);
    const auto oldest = rig.add(make_request(1, 100, 300));
    const auto middle = rig.add(make_request(2, 100, 60));
    const auto youngest = rig.add(make_request(3, 100, 60));
    int steps = 0;
    while (oldest->finish == FinishReason::none) {
        const std::size_t before = oldest->tokens.size();
        ASSERT_TRUE(rig.core->step());
        if (++steps > 5) {
            ASSERT_EQ(oldest->tokens.size(), before + 1);
        }
    }
    EXPECT_EQ(middle->finish, FinishReason::length);
    rig.run();
    EXPECT_EQ(youngest->finish, FinishReason::length);
    EXPECT_EQ(middle->violation + youngest->violation, "");
}

TEST(EngineCore, PromptsThatFillTheArenaTogetherStillFinish) {
    EngineConfig config = small_config();
    config.pages = 5;
    config.step_tokens_max = 300;
    config.prefill_chunk_max = 100;
    Rig rig(config);
    std::vector<EngineRequest> requests;
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (std::uint64_t id = 0; id < 3; ++id) {
        requests.push_back(make_request(id, 600, 10));
        sinks.push_back(rig.add(requests.back()));
    }
    rig.run();
    for (std::size_t i = 0; i < requests.size(); ++i)
        expect_complete(*sinks[i], requests[i]);
}

TEST(EngineCore, ARequestThatCannotRunIsPassedButNotForEver) {
    EngineConfig config = small_config();
    config.pages = 5;
    Rig rig(config);
    // Holds three pages for long; the second needs five to return once it was preempted.
    const auto holder = rig.add(make_request(1, 300, 84));
    while (holder->tokens.empty())
        rig.core->step();
    const auto large = rig.add(make_request(2, 500, 100));
    std::uint64_t id = 10;
    std::vector<std::shared_ptr<Recorder>> small;
    int steps = 0;
    while (large->finish == FinishReason::none) {
        if (rig.core->stats().waiting < 3) small.push_back(rig.add(make_request(id++, 20, 3)));
        ASSERT_TRUE(rig.core->step());
        ASSERT_LT(++steps, 2000);
    }
    EXPECT_EQ(large->tokens.size(), 100u);
    EXPECT_GT(small.size(), 5u);
    EXPECT_EQ(small.front()->finish, FinishReason::length);
    rig.run();
}

TEST(EngineCore, CancelWorksInEveryState) {
    EngineConfig config = small_config();
    config.sequences_max = 2;
    Rig rig(config);
    const auto decoding = rig.add(make_request(1, 5, 300));
    rig.core->step();
    const auto prefilling = rig.add(make_request(2, 400, 10));
    rig.core->step();
    const auto waiting = rig.add(make_request(3, 50, 10));
    rig.core->step();
    EXPECT_EQ(rig.core->stats().waiting, 1);
    rig.core->cancel(77);  // unknown: nothing happens
    for (const std::uint64_t id : {3u, 2u, 1u, 1u})
        rig.core->cancel(id);
    rig.core->deliver();
    for (const auto& sink : {decoding, prefilling, waiting}) {
        EXPECT_EQ(sink->finish, FinishReason::cancelled);
        EXPECT_EQ(sink->violation, "");
    }
    EXPECT_TRUE(rig.core->idle());
    EXPECT_EQ(rig.pages_used(), 0);
    const EngineRequest again = make_request(1, 5, 10);  // the id is free again
    const auto sink = rig.add(again);
    rig.run();
    expect_complete(*sink, again);
}

TEST(EngineCore, APreemptedRequestCanBeCancelled) {
    EngineConfig config = small_config();
    config.pages = 4;
    Rig rig(config);
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (std::uint64_t id = 0; id < 3; ++id)
        sinks.push_back(rig.add(make_request(id, 120, 200)));
    while (rig.core->stats().preemptions == 0)
        ASSERT_TRUE(rig.core->step());
    rig.core->cancel(2);
    rig.core->deliver();
    EXPECT_EQ(sinks[2]->finish, FinishReason::cancelled);
    rig.run();
    EXPECT_EQ(sinks[0]->finish, FinishReason::length);
    EXPECT_EQ(rig.pages_used(), 0);
}

// A sink that acts on the core from inside.
class ActingSink final : public EventSink {
  public:
    explicit ActingSink(std::function<void(const EngineEvent&)> act) : act_(std::move(act)) {}
    void on_event(EngineEvent event) override { act_(event); }

  private:
    std::function<void(const EngineEvent&)> act_;
};

TEST(EngineCore, ASinkMayCancelAndAdd) {
    Rig rig;
    const auto other = rig.add(make_request(2, 10, 200));
    const auto added = std::make_shared<Recorder>();
    FinishReason finish = FinishReason::none;
    int tokens = 0;
    const auto acting = std::make_shared<ActingSink>([&](const EngineEvent& event) {
        finish = event.finish;
        if (event.finish != FinishReason::none || ++tokens != 3) return;
        rig.core->cancel(1);
        rig.core->cancel(2);
        EXPECT_TRUE(rig.core->add(make_request(3, 10, 4), added).ok());
    });
    ASSERT_TRUE(rig.core->add(make_request(1, 10, 200), acting).ok());
    rig.run();
    EXPECT_EQ(tokens, 3);
    EXPECT_EQ(finish, FinishReason::cancelled);
    EXPECT_EQ(other->finish, FinishReason::cancelled);
    expect_complete(*added, make_request(3, 10, 4));
}

TEST(EngineCore, DeadlinesEndRequestsRunningOrWaiting) {
    EngineConfig config = small_config();
    config.sequences_max = 1;
    Rig rig(config);
    EngineRequest request = make_request(1, 10, 500);
    request.deadline_us = 1000;
    const auto running = rig.add(request);
    request = make_request(2, 10, 5);
    request.deadline_us = 1000;
    const auto waiting = rig.add(request);
    const auto unlimited = rig.add(make_request(3, 10, 5));
    rig.core->step();
    rig.clock.advance_us(999);
    rig.core->step();
    EXPECT_EQ(running->finish, FinishReason::none);
    rig.clock.advance_us(1);
    rig.core->step();
    EXPECT_EQ(running->finish, FinishReason::deadline);
    EXPECT_EQ(running->tokens.size(), 2u);
    EXPECT_EQ(waiting->finish, FinishReason::deadline);
    rig.run();
    EXPECT_EQ(unlimited->finish, FinishReason::length);
}

TEST(EngineCore, AFullQueueRefusesAndRecovers) {
    EngineConfig config = small_config();
    config.waiting_max = 2;
    Rig rig(config);
    rig.add(make_request(1, 10, 5));
    rig.add(make_request(2, 10, 5));
    const Status status = rig.core->add(make_request(3, 10, 5), std::make_shared<Recorder>());
    EXPECT_EQ(status.code(), StatusCode::resource_exhausted);
    EXPECT_EQ(status.message(),
              "2 requests are waiting and 1 more came; the limit is 2; try again later");
    rig.core->step();
    rig.add(make_request(3, 10, 5));
    rig.run();
}

TEST(EngineCore, MetricsFollowTheRequests) {
    MetricsRegistry metrics;
    Rig rig(small_config(), &metrics);
    rig.add(make_request(1, 130, 5));
    EXPECT_EQ(metrics.gauge("vllm:num_requests_waiting", "x").value(), 1);
    while (rig.core->stats().output_tokens == 0)
        rig.core->step();
    EXPECT_EQ(metrics.gauge("vllm:num_requests_running", "x").value(), 1);
    EXPECT_EQ(metrics.gauge("vllm:kv_cache_usage_perc", "x").value(), 2.0 / 16);
    rig.run();
    EXPECT_EQ(metrics.gauge("vllm:num_requests_running", "x").value(), 0);
    EXPECT_EQ(metrics.gauge("vllm:kv_cache_usage_perc", "x").value(), 0);
    EXPECT_EQ(metrics.counter("vllm:prompt_tokens_total", "x").value(), 130u);
    EXPECT_EQ(metrics.counter("vllm:generation_tokens_total", "x").value(), 5u);
}

TEST(EngineCore, RefusesWhatCanNeverRunAndSaysWhy) {
    EngineConfig config = small_config();
    config.pages = 4;
    Rig rig(config);
    const float embedding[8] = {};
    struct Case {
        std::function<void(EngineRequest&)> change;
        const char* message;
    };
    const std::vector<Case> cases = {
        {[](auto& r) { r.prompt.clear(); }, "prompt is empty; it must hold at least one token"},
        {[](auto& r) { r.prompt.assign(640, 1); },
         "prompt has 640 tokens; it must have fewer than the model's 640 positions"},
        {[](auto& r) { r.prompt[3] = 48; }, "prompt[3] is token 48; ids of this model are 0 to 47"},
        {[](auto& r) { r.prompt[0] = -1; }, "prompt[0] is token -1"},
        {[](auto& r) {
             r.committed = {1, 99};
         },
         "committed[1] is token 99"},
        {[](auto& r) { r.committed.assign(11, 1); },
         "committed has 11 tokens; at most 10 outputs are allowed"},
        {[](auto& r) { r.stop_tokens = {-5}; }, "stop_tokens[0] is token -5"},
        {[](auto& r) { r.max_tokens = 0; }, "max_tokens is 0; it must be at least 1"},
        {[](auto& r) { r.max_tokens = 494; },
         "prompt of 20 tokens and 494 outputs need 5 KV pages; the engine has 4"},
        {[](auto& r) { r.sampling.temperature = 3; }, "temperature is 3"},
        {[](auto& r) { r.sampling.top_p = 0; }, "top_p is 0"},
        {[](auto& r) { r.sampling.min_p = 2; }, "min_p is 2"},
        {[](auto& r) { r.sampling.top_k = -2; }, "top_k is -2"},
        {[](auto& r) { r.override_prefill = true; },
         "tail_tokens is 0; prefill mode tail needs at least 1"},
        {[](auto& r) { r.logits_begin = -2; }, "logits_begin is -2"},
        {[](auto& r) {
             r.in_image = {1, 0};
         },
         "in_image has 2 entries; it must be empty or match the prompt's 20"},
        {[](auto& r) { r.embeddings = {{.start = 18, .count = 3, .rows = nullptr}}; },
         "embeddings[0] covers 3 rows from position 18"},
        {[](auto& r) { r.embeddings = {{.start = 1, .count = 3, .rows = nullptr}}; },
         "embeddings[0] has no rows"},
        {[&](auto& r) {
             r.embeddings = {{.start = 1, .count = 3, .rows = embedding},
                             {.start = 3, .count = 3, .rows = embedding}};
         },
         "embeddings[1] covers 3 rows from position 3"},
        {[](auto& r) {
             r.chunk_ends = {5, 5};
         },
         "chunk_ends[1] is 5; positions must ascend from 1 and lie within the prompt's 20 tokens"},
        {[](auto& r) { r.chunk_ends = {21}; }, "chunk_ends[0] is 21"},
        {[](auto& r) { r.id = 1; }, "id 1 belongs to a request that is still live"},
    };
    const auto live = rig.add(make_request(1, 5, 5));
    for (const Case& c : cases) {
        EngineRequest request = make_request(2, 20, 10);
        c.change(request);
        const auto sink = std::make_shared<Recorder>();
        const Status status = rig.core->add(request, sink);
        EXPECT_EQ(status.code(), StatusCode::invalid_argument) << c.message;
        EXPECT_THAT(status.message(), HasSubstr(c.message));
        EXPECT_EQ(sink->events, 0);
    }
    rig.run();
    EXPECT_EQ(live->finish, FinishReason::length);
}

TEST(EngineCore, RefusesAConfigurationThatTheModelCannotServe) {
    struct Case {
        std::function<void(EngineConfig&)> change;
        const char* message;
    };
    const std::vector<Case> cases = {
        {[](auto& c) { c.tail_tokens = 21; },
         "tail_tokens is 21; it must be at least 22 (window 16 + 5 + 1)"},
        {[](auto& c) { c.step_tokens_max = 513; },
         "step_tokens_max is 513; the model was loaded for 512 rows a step"},
        {[](auto& c) { c.pages = 3; }, "pages is 3; sequences_max 4 needs at least one page each"},
        {[](auto& c) { c.sequences_max = 0; }, "sequences_max is 0; it must be at least 1"},
        {[](auto& c) { c.prefill_chunk_max = 0; }, "prefill_chunk_max is 0"},
        {[](auto& c) { c.waiting_max = -1; }, "waiting_max is -1"},
    };
    const ManualClock clock;
    for (const Case& c : cases) {
        EngineConfig config = small_config();
        c.change(config);
        const auto core =
            EngineCore::create(std::make_unique<MarkerModel>(), config, clock, nullptr);
        ASSERT_FALSE(core.ok()) << c.message;
        EXPECT_THAT(core.status().message(), HasSubstr(c.message));
    }
}

TEST(EngineCore, LogitsThatAreNoNumbersEndTheRequestAndNoOther) {
    Rig rig;
    rig.model->damaged_position = 6;
    EngineRequest request;
    request.id = 1;
    request.prompt = {1, 2, 3, 4, 5};
    request.sampling.temperature = 0;
    request.max_tokens = 10;
    const auto damaged = rig.add(request);
    request.id = 2;
    request.prompt.resize(3);
    request.max_tokens = 2;
    const auto sound = rig.add(request);
    rig.run();
    EXPECT_EQ(damaged->tokens.size(), 2u);
    EXPECT_EQ(damaged->finish, FinishReason::error);
    EXPECT_EQ(damaged->last.status.code(), StatusCode::data_loss);
    EXPECT_THAT(damaged->last.status.message(),
                HasSubstr("position 6: the logits are not numbers"));
    EXPECT_EQ(sound->finish, FinishReason::length);
    EXPECT_EQ(rig.pages_used(), 0);
}

TEST(EngineCore, NamesOfModesAndReasonsRoundTrip) {
    for (const PrefillMode mode :
         {PrefillMode::exact, PrefillMode::tail, PrefillMode::masked, PrefillMode::halo})
        EXPECT_EQ(*parse_prefill_mode(prefill_mode_name(mode)), mode);
    EXPECT_EQ(parse_prefill_mode("Tail").status().message(),
              "prefill mode \"Tail\" is unknown; it must be exact, tail, masked or halo");
    EXPECT_STREQ(finish_reason_name(FinishReason::stop_token), "stop_token");
}

}  // namespace
}  // namespace fathom
