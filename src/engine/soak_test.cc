// Random mixes of everything: whatever the arena, the limits, the company, cancellations, deadlines
// and found pages are, every answer equals the same request alone, and all pages come back.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <memory>
#include <vector>

#include "base/random.h"
#include "engine/core.h"
#include "engine/marker_model.h"

namespace fathom {
namespace {

using testing::choice_alone;
using testing::ChoiceRecorder;
using testing::expected_tokens;
using testing::MarkerModel;
using testing::Recorder;

struct Planned {
    EngineRequest request;
    int arrival = 0;
    int cancel_after = -1;  // steps after arrival; −1: never
    std::uint64_t cancel_id = 0;
    std::shared_ptr<ChoiceRecorder> sink;
};

// Few families of prompts, so that pages of one request fit others.
EngineRequest random_request(std::uint64_t id, std::int64_t pages) {
    EngineRequest request;
    request.id = id;
    const std::int64_t rows_max = std::min(pages * kPageTokens, testing::kMarkerPositions - 1);
    const auto prompt = *rc::gen::inRange<std::int64_t>(1, std::min<std::int64_t>(rows_max, 400));
    request.prompt = testing::make_ids(prompt, *rc::gen::inRange<std::uint64_t>(0, 3));
    request.max_tokens =
        *rc::gen::inRange<std::int64_t>(1, std::min<std::int64_t>(rows_max - prompt, 150) + 1);
    request.sampling.temperature = *rc::gen::element(0.0, 0.7, 1.0);
    request.sampling.seed = *rc::gen::inRange<std::uint64_t>(0, 1000);
    if (*rc::gen::inRange(0, 4) == 0) request.stop_tokens = {*rc::gen::inRange<TokenId>(0, 48)};
    if (*rc::gen::inRange(0, 4) == 0) {
        request.committed = expected_tokens(request);
        request.committed.resize(*rc::gen::inRange<std::size_t>(0, request.committed.size() + 1));
    }
    if (request.committed.empty() && *rc::gen::inRange(0, 3) == 0) {
        for (int i = *rc::gen::inRange(1, 4); i > 0; --i)
            request.branches.push_back({.id = id + 1000 * static_cast<std::uint64_t>(i),
                                        .seed = choice_seed(request.sampling.seed, i)});
    }
    if (*rc::gen::inRange(0, 4) == 0) {
        request.sampling.frequency_penalty = *rc::gen::element(0.0, 0.5);
        request.sampling.repetition_penalty = *rc::gen::element(1.0, 1.4);
        request.sampling.min_tokens = *rc::gen::inRange(0, 20);
        request.sampling.logit_bias = {{*rc::gen::inRange<TokenId>(0, 48), 3.0f}};
    }
    request.override_prefill = true;
    request.prefill = *rc::gen::element(PrefillMode::tail, PrefillMode::masked, PrefillMode::halo);
    request.tail_tokens = *rc::gen::inRange<std::int64_t>(16, 60);
    if (*rc::gen::inRange(0, 8) == 0) request.deadline_us = *rc::gen::inRange(1, 300);
    request.use_cache = *rc::gen::inRange(0, 6) != 0;
    if (*rc::gen::inRange(0, 6) == 0) request.cache_salt = "salt";
    if (request.prefill != PrefillMode::halo && *rc::gen::inRange(0, 4) == 0) {
        request.replays.emplace();
        for (std::int64_t at = 2 * kPageTokens; at <= prompt; at += kPageTokens)
            if (*rc::gen::arbitrary<bool>()) request.replays->push_back(at);
    }
    if (*rc::gen::inRange(0, 4) == 0) request.chunk_ends = {(prompt + 1) / 2, prompt};
    if (prompt == 1) request.chunk_ends.clear();
    return request;
}

void check_choice(const Recorder& choice, const EngineRequest& alone) {
    RC_ASSERT(choice.violation == "");
    const std::vector<TokenId> expected = expected_tokens(alone);
    if (choice.finish == FinishReason::length || choice.finish == FinishReason::stop_token) {
        RC_ASSERT(choice.tokens == expected);
        return;
    }
    RC_ASSERT(choice.finish != FinishReason::none);
    RC_ASSERT(choice.tokens.size() <= expected.size());
    RC_ASSERT(std::equal(choice.tokens.begin(), choice.tokens.end(), expected.begin()));
}

void check_answer(const Planned& planned) {
    for (const auto& [id, choice] : planned.sink->choices)
        check_choice(choice, choice_alone(planned.request, id));
}

// Runs steps either whole or as Engine does: what happens between two calls of next() happens while
// a step is in flight, and the next one is mostly planned by then.
class Stepper {
  public:
    Stepper(EngineCore& core, bool in_parts, std::uint64_t seed)
        : core_(core), in_parts_(in_parts), random_(seed) {}
    bool next() {
        if (!in_parts_) return core_.step();
        if (in_flight_) {
            core_.deliver();
            if (random_.next_below(4) != 0) core_.plan_ahead();
            core_.compute();
            if (random_.next_below(4) != 0) core_.plan_ahead();
            core_.retire();
        }
        in_flight_ = core_.launch();
        if (!in_flight_) core_.deliver();
        return in_flight_;
    }

  private:
    EngineCore& core_;
    const bool in_parts_;
    RandomStream random_;
    bool in_flight_ = false;
};

void soak() {
    EngineConfig config;
    config.pages = *rc::gen::inRange<std::int64_t>(3, 12);
    config.sequences_max =
        *rc::gen::inRange<std::int64_t>(1, std::min<std::int64_t>(config.pages, 6) + 1);
    config.step_tokens_max = *rc::gen::inRange<std::int64_t>(1, 200);
    config.prefill_chunk_max = *rc::gen::element<std::int64_t>(1, 7, 64, 128, 129);
    config.tail_tokens = 22;
    config.prefix_cache = *rc::gen::inRange(0, 4) != 0;
    config.snapshot_bytes_max = *rc::gen::element<std::int64_t>(0, 10'000, 1 << 20);
    config.snapshot_life_us = *rc::gen::element<std::int64_t>(20, 1'000'000);
    auto owned = std::make_unique<MarkerModel>(config.step_tokens_max);
    MarkerModel* model = owned.get();
    ManualClock clock;
    auto core = std::move(*EngineCore::create(std::move(owned), config, clock, nullptr));

    std::vector<Planned> all;
    const int count = *rc::gen::inRange(1, 14);
    for (int i = 0; i < count; ++i) {
        Planned planned;
        planned.request = random_request(static_cast<std::uint64_t>(i), config.pages);
        planned.cancel_id = planned.request.id;
        if (!planned.request.branches.empty() && *rc::gen::arbitrary<bool>())
            planned.cancel_id = planned.request.branches.back().id;
        planned.arrival = *rc::gen::inRange(0, 120);
        if (*rc::gen::inRange(0, 4) == 0) planned.cancel_after = *rc::gen::inRange(0, 80);
        all.push_back(std::move(planned));
    }
    Stepper stepper(*core, *rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<std::uint64_t>());
    for (int step = 0;; ++step) {
        RC_ASSERT(step < 60000);
        bool arrivals_left = false;
        for (Planned& planned : all) {
            if (planned.arrival == step) {
                planned.sink = std::make_shared<ChoiceRecorder>(planned.request);
                RC_ASSERT(core->add(planned.request, planned.sink).ok());
            }
            if (planned.cancel_after >= 0 && step == planned.arrival + planned.cancel_after)
                core->cancel(planned.cancel_id);
            arrivals_left |= planned.arrival >= step;
        }
        clock.advance_us(1);
        const bool ran = stepper.next();
        if (!arrivals_left && !ran && core->idle()) break;
    }
    for (const Planned& planned : all)
        check_answer(planned);
    RC_ASSERT(model->violation == "");
    RC_ASSERT(core->stats().pages_used == 0);
    RC_ASSERT(core->stats().pages_cached <= config.pages);
    RC_ASSERT(core->stats().running == 0);
    RC_ASSERT(core->stats().waiting == 0);
}

TEST(EngineSoak, EveryAnswerEqualsTheSameRequestAloneAndNoPageLeaks) {
    EXPECT_TRUE(rc::check(soak));
}

}  // namespace
}  // namespace fathom
