// Starting from computed pages: hits with replay and with a snapshot, capture, and what happens
// when prefixes and sequences compete for pages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/core.h"
#include "engine/marker_model.h"
#include "engine/page_pool.h"

namespace fathom {
namespace {

using testing::expected_tokens;
using ::testing::HasSubstr;
using testing::make_request;
using testing::MarkerModel;
using testing::Recorder;

struct Rig {
    explicit Rig(std::int64_t pages = 24) {
        config.pages = pages;
        config.sequences_max = 4;
        config.step_tokens_max = 64;
        config.prefill_chunk_max = 50;
        config.tail_tokens = 22;
        auto owned = std::make_unique<MarkerModel>(64);
        model = owned.get();
        core = std::move(*EngineCore::create(std::move(owned), config, clock, nullptr));
    }
    ~Rig() { EXPECT_EQ(model->violation, ""); }

    std::shared_ptr<Recorder> add(const EngineRequest& request) {
        auto sink = std::make_shared<Recorder>();
        const Status status = core->add(request, sink);
        EXPECT_TRUE(status.ok()) << status.to_string();
        return sink;
    }
    void run() {
        for (int steps = 0; core->step(); ++steps)
            ASSERT_LT(steps, 100000);
    }
    std::shared_ptr<const Prefix> capture(EngineRequest request, std::int64_t at) {
        request.capture_prefix_at = at;
        request.max_tokens = 1;
        const auto sink = add(request);
        run();
        EXPECT_NE(sink->prefix, nullptr);
        return sink->prefix;
    }
    std::uint64_t checksum(const Prefix& prefix) const {
        std::uint64_t sum = 0;
        for (const PageId page : prefix.pages()) {
            const std::uint8_t* bytes = prefix.pool().memory(page);
            for (std::int64_t i = 0; i < model->kv_layout().page_bytes; ++i)
                sum = testing::mix(sum, bytes[i]);
        }
        return sum;
    }

    ManualClock clock;
    EngineConfig config;
    MarkerModel* model = nullptr;
    std::unique_ptr<EngineCore> core;
};

TEST(Prefix, CaptureEndsAChunkExactlyThereAndKeepsFullPagesOnly) {
    Rig rig;
    const EngineRequest request = make_request(1, 300, 1);
    const auto prefix = rig.capture(request, 256);
    EXPECT_EQ(prefix->tokens(), 256);
    EXPECT_EQ(prefix->pages().size(), 2u);
    EXPECT_TRUE(std::equal(prefix->ids().begin(), prefix->ids().end(), request.prompt.begin()));
    EXPECT_EQ(prefix->snapshot()->position, 256);
    EXPECT_EQ(rig.core->stats().pages_used, 2);
}

TEST(Prefix, ReplayRunsOneWindowBeforeTheHitAndLeavesSharedPagesUntouched) {
    Rig rig;
    EngineRequest request = make_request(1, 300, 40);
    const auto prefix = rig.capture(request, 256);
    const std::uint64_t before = rig.checksum(*prefix);
    request.prefix = prefix;
    const auto sink = rig.add(request);
    rig.run();
    EXPECT_EQ(sink->tokens, expected_tokens(request));
    EXPECT_EQ(rig.checksum(*prefix), before);
    EXPECT_EQ(sink->last.cached_tokens, 240);
    EXPECT_EQ(sink->last.anchors.hit_tokens, 256);
    EXPECT_EQ(sink->last.anchors.encoder_floor, 240);
    EXPECT_EQ(sink->last.anchors.decoder_floor, 278);
    EXPECT_STREQ(sink->last.anchors.window_source, "replay");
    EXPECT_EQ(rig.core->stats().pages_used, 2);
}

TEST(Prefix, SnapshotContinuesAtTheHit) {
    Rig rig;
    EngineRequest request = make_request(1, 300, 40);
    request.prefix = rig.capture(request, 256);
    request.use_snapshot = true;
    const auto sink = rig.add(request);
    rig.run();
    EXPECT_EQ(sink->tokens, expected_tokens(request));
    EXPECT_EQ(sink->last.cached_tokens, 256);
    EXPECT_EQ(sink->last.anchors.encoder_floor, 0);
    EXPECT_STREQ(sink->last.anchors.window_source, "snapshot");
}

TEST(Prefix, AShortSuffixReplaysInsteadOfUsingTheSnapshot) {
    Rig rig;
    for (const std::int64_t prompt : {256, 257, 271}) {
        EngineRequest request = make_request(1, 300, 40);
        request.prompt.resize(static_cast<std::size_t>(prompt));
        request.prefix = rig.capture(request, 256);
        request.use_snapshot = true;
        const auto sink = rig.add(request);
        rig.run();
        EXPECT_EQ(sink->tokens, expected_tokens(request));
        EXPECT_STREQ(sink->last.anchors.window_source, "replay");
        EXPECT_EQ(sink->last.anchors.decoder_floor, std::max<std::int64_t>(prompt - 22, 240));
    }
}

TEST(Prefix, SeveralRequestsShareItAndMayExtendIt) {
    Rig rig;
    EngineRequest base = make_request(1, 500, 30);
    const auto first = rig.capture(base, 128);
    base.prefix = first;
    const auto second = rig.capture(base, 384);
    EXPECT_EQ(second->pages()[0], first->pages()[0]);
    std::vector<EngineRequest> requests;
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (std::uint64_t id = 0; id < 6; ++id) {
        EngineRequest request = base;
        request.id = id;
        request.prompt.resize(390 + 11 * id);
        request.sampling.seed = id;
        request.prefix = id % 2 == 0 ? first : second;
        request.use_snapshot = id % 3 == 0;
        requests.push_back(request);
        sinks.push_back(rig.add(request));
    }
    rig.run();
    for (std::size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(sinks[i]->tokens, expected_tokens(requests[i]));
    EXPECT_EQ(rig.core->stats().pages_used, 3);
}

TEST(Prefix, PagesReturnWhenTheLastHolderIsGone) {
    Rig rig;
    EngineRequest request = make_request(1, 300, 400);
    auto prefix = rig.capture(request, 256);
    request.max_tokens = 200;
    request.prefix = prefix;
    const auto sink = rig.add(request);
    request.prefix.reset();
    rig.core->step();
    prefix.reset();
    EXPECT_GE(rig.core->stats().pages_used, 2);
    rig.run();
    EXPECT_EQ(sink->finish, FinishReason::length);
    EXPECT_EQ(rig.core->stats().pages_used, 0);
}

TEST(Prefix, OutlivesItsEngine) {
    std::shared_ptr<const Prefix> prefix;
    {
        Rig rig;
        prefix = rig.capture(make_request(1, 200, 1), 128);
    }
    EXPECT_EQ(prefix->pool().used_pages(), 1);
}

TEST(Prefix, APreemptedHitIsRecomputedFromTheSamePrefix) {
    Rig rig(7);
    EngineRequest request = make_request(1, 300, 120);
    const auto prefix = rig.capture(request, 256);
    std::vector<EngineRequest> requests;
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (std::uint64_t id = 0; id < 4; ++id) {
        request.id = id;
        request.max_tokens = 200;
        request.prefix = prefix;
        request.use_snapshot = id % 2 == 0;
        request.sampling.seed = id;
        requests.push_back(request);
        sinks.push_back(rig.add(request));
    }
    rig.run();
    EXPECT_GT(rig.core->stats().preemptions, 0u);
    for (std::size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(sinks[i]->tokens, expected_tokens(requests[i]));
    EXPECT_EQ(rig.core->stats().pages_used, 2);
}

TEST(Prefix, RequestsBlockedByEachOthersPrefixesStillFinish) {
    Rig rig(6);
    std::vector<EngineRequest> requests;
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (std::uint64_t id = 1; id <= 2; ++id) {
        EngineRequest request = make_request(id, 384, 100);
        request.prefix = rig.capture(request, 384);
        request.prompt.resize(400, 7);
        requests.push_back(request);
    }
    for (EngineRequest& request : requests) {
        sinks.push_back(rig.add(request));
        request.prefix.reset();
    }
    EXPECT_EQ(rig.core->stats().pages_used, 6);
    rig.run();
    EXPECT_TRUE(rig.core->idle());
    for (std::size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(sinks[i]->tokens, expected_tokens(requests[i]));
    EXPECT_EQ(sinks[0]->last.anchors.hit_tokens, 384);
    EXPECT_EQ(sinks[1]->last.anchors.hit_tokens, 0);  // its prefix was taken back before it began
    EXPECT_EQ(rig.core->stats().pages_used, 0);
}

TEST(Prefix, AStartedRequestEndsWithAnErrorWhenAnOlderOneNeedsItsPrefix) {
    Rig rig(6);
    EngineRequest hit = make_request(2, 300, 300);
    hit.prefix = rig.capture(hit, 256);
    const EngineRequest older = make_request(1, 300, 300);
    const auto first = rig.add(older);
    const auto second = rig.add(hit);
    hit.prefix.reset();
    rig.run();
    EXPECT_EQ(first->tokens, expected_tokens(older));
    EXPECT_EQ(second->finish, FinishReason::error);
    EXPECT_EQ(second->last.status.message(),
              "the 256 prefix tokens of this request were needed by an older one");
    EXPECT_EQ(second->violation, "");
    EXPECT_EQ(rig.core->stats().pages_used, 0);
}

TEST(Prefix, PagesHeldOutsideBlockUntilTheyAreGivenBack) {
    Rig rig(4);
    auto held = rig.capture(make_request(1, 500, 1), 384);
    EngineRequest request = make_request(2, 200, 10);
    request.deadline_us = 100;
    const auto sink = rig.add(request);
    const EngineRequest patient = make_request(3, 200, 10);
    const auto other = rig.add(patient);
    rig.run();
    EXPECT_FALSE(rig.core->idle());
    rig.clock.advance_us(100);
    EXPECT_FALSE(rig.core->step() && sink->finish == FinishReason::none);
    EXPECT_EQ(sink->finish, FinishReason::deadline);
    rig.run();
    EXPECT_EQ(other->finish, FinishReason::none);
    held.reset();
    rig.run();
    EXPECT_EQ(other->tokens, expected_tokens(patient));
}

TEST(Prefix, IsRefusedWhenItDoesNotFitTheRequest) {
    Rig rig;
    EngineRequest base = make_request(1, 300, 10);
    const auto prefix = rig.capture(base, 256);
    base.prefix = prefix;
    const auto refusal = [&](Rig& there, EngineRequest request) {
        return there.core->add(std::move(request), std::make_shared<Recorder>()).message();
    };
    EngineRequest request = base;
    request.prompt.resize(200);
    EXPECT_EQ(refusal(rig, request), "prefix has 256 tokens; the prompt has only 200");
    request = base;
    request.prompt[100] ^= 1;
    EXPECT_EQ(refusal(rig, request), "prefix differs from the prompt at position 100");
    request = base;
    request.in_image.assign(300, 0);
    request.in_image[17] = 1;
    EXPECT_EQ(refusal(rig, request), "prefix differs from the prompt in its image positions");
    request = base;
    request.override_prefill = true;
    request.prefill = PrefillMode::exact;
    EXPECT_THAT(refusal(rig, request), HasSubstr("prefill mode exact runs every row"));
    request = base;
    request.capture_prefix_at = 256;
    EXPECT_THAT(refusal(rig, request), HasSubstr("capture_prefix_at is 256"));
    Rig other;
    EXPECT_EQ(refusal(other, base), "prefix belongs to another engine's pages");
}

}  // namespace
}  // namespace fathom
