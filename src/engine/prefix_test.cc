// Prefix reuse through the engine: what is found, how a run begins there, what is left behind, and
// what happens when pages run out. The marker model verifies every page and window.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/core.h"
#include "engine/marker_model.h"

namespace fathom {
namespace {

using testing::expected_tokens;
using ::testing::HasSubstr;
using testing::make_request;
using testing::MarkerModel;
using testing::Recorder;

constexpr std::int64_t kTail = 22;
using Replays = std::vector<std::int64_t>;

EngineConfig small_config(std::int64_t pages = 24) {
    EngineConfig config;
    config.pages = pages;
    config.sequences_max = 4;
    config.step_tokens_max = 64;
    config.prefill_chunk_max = 50;
    config.tail_tokens = kTail;
    return config;
}

struct Rig {
    explicit Rig(const EngineConfig& config = small_config()) {
        auto owned = std::make_unique<MarkerModel>(config.step_tokens_max);
        model = owned.get();
        core = std::move(*EngineCore::create(std::move(owned), config, clock, &metrics));
    }
    ~Rig() { EXPECT_EQ(model->violation, ""); }

    std::shared_ptr<Recorder> add(const EngineRequest& request) {
        auto sink = std::make_shared<Recorder>(static_cast<std::int64_t>(request.committed.size()));
        const Status status = core->add(request, sink);
        EXPECT_TRUE(status.ok()) << status.to_string();
        return sink;
    }
    void run() {
        for (int steps = 0; core->step(); ++steps)
            ASSERT_LT(steps, 100000);
        EXPECT_TRUE(core->idle());
        EXPECT_EQ(core->stats().pages_used, 0);
    }
    // The last event of the request, after checking its tokens.
    EngineEvent answer(const EngineRequest& request) {
        const auto sink = add(request);
        run();
        EXPECT_EQ(sink->tokens, expected_tokens(request));
        EXPECT_EQ(sink->violation, "");
        return sink->last;
    }
    std::uint64_t count(const char* name) { return metrics.counter(name, "x").value(); }

    ManualClock clock;
    MetricsRegistry metrics;
    MarkerModel* model = nullptr;
    std::unique_ptr<EngineCore> core;
};

EngineConfig without_snapshots(std::int64_t pages = 24) {
    EngineConfig config = small_config(pages);
    config.snapshot_bytes_max = 0;
    return config;
}

TEST(PrefixReuse, ARepeatedPromptContinuesFromASnapshot) {
    Rig rig;
    const EngineRequest request = make_request(1, 300, 40);
    const EngineEvent cold = rig.answer(request);
    EXPECT_EQ(cold.cached_tokens, 0);
    EXPECT_STREQ(cold.anchors.window_source, "none");
    const EngineEvent warm = rig.answer(request);
    EXPECT_EQ(warm.cached_tokens, 256);
    EXPECT_EQ(warm.anchors.hit_tokens, 256);
    EXPECT_STREQ(warm.anchors.window_source, "snapshot");
    EXPECT_EQ(warm.anchors.decoder_floor, cold.anchors.decoder_floor);
    EXPECT_EQ(warm.anchors.replays, cold.anchors.replays);
    EXPECT_EQ(rig.core->stats().prefix_query_tokens, 600u);
    EXPECT_EQ(rig.core->stats().prefix_hit_tokens, 256u);
    EXPECT_EQ(rig.count("fathom_snapshot_hits_total"), 1u);
}

TEST(PrefixReuse, ASnapshotIsUsedOnlyWhereTheTailFollows) {
    for (const std::int64_t prompt : {384, 385, 405, 406, 407}) {
        Rig rig;
        const EngineRequest request = make_request(1, prompt, 5);
        rig.answer(request);
        const EngineEvent warm = rig.answer(request);
        EXPECT_EQ(warm.anchors.hit_tokens, 384);
        EXPECT_STREQ(warm.anchors.window_source, prompt < 384 + kTail ? "replay" : "snapshot");
    }
}

TEST(PrefixReuse, WithoutASnapshotOneWindowIsReplayed) {
    Rig rig(without_snapshots());
    const EngineRequest request = make_request(1, 300, 40);
    rig.answer(request);
    const EngineEvent warm = rig.answer(request);
    EXPECT_EQ(warm.cached_tokens, 240);
    EXPECT_EQ(warm.anchors.hit_tokens, 256);
    EXPECT_EQ(warm.anchors.encoder_floor, 240);
    EXPECT_EQ(warm.anchors.decoder_floor, 278);
    EXPECT_EQ(warm.anchors.replays, Replays{256});
    EXPECT_STREQ(warm.anchors.window_source, "replay");
    EXPECT_EQ(rig.count("fathom_window_replays_total"), 1u);
}

TEST(PrefixReuse, AHitOfTheWholePromptStillRunsItsTail) {
    Rig rig(without_snapshots());
    const EngineRequest request = make_request(1, 384, 10);
    rig.answer(request);
    const EngineEvent warm = rig.answer(request);
    EXPECT_EQ(warm.anchors.hit_tokens, 384);
    EXPECT_EQ(warm.anchors.decoder_floor, 368);
}

TEST(PrefixReuse, HitsOfOneBlockAreLeft) {
    Rig rig;
    const EngineRequest request = make_request(1, 250, 5);
    rig.answer(request);
    EXPECT_EQ(rig.answer(request).anchors.hit_tokens, 0);
}

TEST(PrefixReuse, SnapshotsEndWithTheirLife) {
    EngineConfig config = small_config();
    config.snapshot_life_us = 1000;
    Rig rig(config);
    const EngineRequest request = make_request(1, 300, 5);
    rig.answer(request);
    rig.clock.advance_us(999);
    EXPECT_STREQ(rig.answer(request).anchors.window_source, "snapshot");  // a use is a new life
    rig.clock.advance_us(999);
    EXPECT_STREQ(rig.answer(request).anchors.window_source, "snapshot");
    rig.clock.advance_us(1000);
    EXPECT_STREQ(rig.answer(request).anchors.window_source, "replay");
}

TEST(PrefixReuse, AConversationFindsItsPromptAndItsAnswer) {
    Rig rig;
    EngineRequest request = make_request(1, 140, 100);
    for (int turn = 0; turn < 3; ++turn) {
        const auto sink = rig.add(request);
        rig.run();
        EXPECT_EQ(sink->tokens, expected_tokens(request));
        const std::int64_t said =
            static_cast<std::int64_t>(request.prompt.size() + sink->tokens.size()) - 1;
        request.prompt.insert(request.prompt.end(), sink->tokens.begin(), sink->tokens.end());
        for (TokenId id = 0; id < 30; ++id)
            request.prompt.push_back(id);
        ++request.id;
        EngineRequest next = request;
        next.max_tokens = 1;
        const EngineEvent event = rig.answer(next);
        const std::int64_t full = said / kPageTokens * kPageTokens;
        EXPECT_EQ(event.anchors.hit_tokens, full > 128 ? full : 0);
        EXPECT_EQ(event.anchors.replays, Replays());
    }
}

// A run that replayed leaves its pages under its own history, never under that of a cold run.
TEST(PrefixReuse, PagesComputedAfterAReplayKeepTheirHistory) {
    Rig rig(without_snapshots());
    EngineRequest shorter = make_request(1, 300, 1);
    EngineRequest longer = make_request(2, 300, 1);
    const std::vector<TokenId> more = testing::make_ids(300, 77);
    longer.prompt = shorter.prompt;
    longer.prompt.insert(longer.prompt.end(), more.begin(), more.end());
    rig.answer(shorter);
    EXPECT_EQ(rig.answer(longer).anchors.replays, Replays{256});  // leaves [256, 512) behind
    EXPECT_EQ(rig.answer(longer).anchors.replays, (Replays{256, 512}));

    EngineRequest exact = longer;
    exact.replays = Replays();
    const EngineEvent cold = rig.answer(exact);  // leaves [256, 512) of a cold run
    EXPECT_EQ(cold.cached_tokens, 0);
    EXPECT_EQ(rig.answer(longer).anchors.replays, Replays{512});  // the shorter history
}

TEST(PrefixReuse, AGivenHistoryIsRepeatedWithAndWithoutPages) {
    EngineRequest request = make_request(1, 600, 60);
    request.replays = Replays{256, 512};
    for (const bool fill : {false, true}) {
        Rig rig(without_snapshots());
        if (fill) {
            EngineRequest first = request;
            first.replays.reset();
            first.prompt.resize(300);
            rig.answer(first);
        }
        const EngineEvent event = rig.answer(request);
        EXPECT_EQ(event.anchors.replays, *request.replays);
        EXPECT_EQ(event.anchors.hit_tokens, fill ? 256 : 0);
        EXPECT_EQ(event.anchors.decoder_floor, 578);
        EXPECT_EQ(event.anchors.encoder_floor, 496);
    }
}

TEST(PrefixReuse, ExactFindsNothingButLeavesPagesAndHaloNeverReplays) {
    Rig rig(without_snapshots());
    EngineRequest request = make_request(1, 300, 5);
    request.override_prefill = true;
    request.prefill = PrefillMode::exact;
    rig.answer(request);
    EXPECT_EQ(rig.answer(request).cached_tokens, 0);
    request.prefill = PrefillMode::halo;
    EXPECT_EQ(rig.answer(request).cached_tokens, 0);
    request.prefill = PrefillMode::tail;
    request.tail_tokens = kTail;
    EXPECT_EQ(rig.answer(request).cached_tokens, 240);
}

TEST(PrefixReuse, HaloContinuesFromSnapshots) {
    Rig rig;
    EngineRequest request = make_request(1, 300, 5);
    request.override_prefill = true;
    request.prefill = PrefillMode::halo;  // 16 + 15 rows in the marker model
    rig.answer(request);
    EXPECT_EQ(rig.answer(request).cached_tokens, 256);
}

TEST(PrefixReuse, SaltsAndRefusalsKeepRequestsApart) {
    Rig rig;
    EngineRequest request = make_request(1, 300, 5);
    request.use_cache = false;
    rig.answer(request);
    EXPECT_EQ(rig.core->stats().pages_cached, 0);
    request.use_cache = true;
    request.cache_salt = "a";
    rig.answer(request);
    EXPECT_EQ(rig.answer(request).cached_tokens, 256);
    request.cache_salt = "b";
    EXPECT_EQ(rig.answer(request).cached_tokens, 0);
    request.use_cache = false;
    EXPECT_EQ(rig.answer(request).cached_tokens, 0);

    EngineConfig config = small_config();
    config.prefix_cache = false;
    Rig off(config);
    off.answer(request);
    EXPECT_EQ(off.answer(request).cached_tokens, 0);
    EXPECT_EQ(off.core->stats().pages_cached, 0);
}

TEST(PrefixReuse, ImagesAreToldApartByTheirDigests) {
    Rig rig;
    const std::vector<float> rows(200, 0.0f);
    EngineRequest request = make_request(1, 420, 3);
    request.in_image.assign(420, 0);
    std::fill_n(request.in_image.begin() + 300, 10, std::uint8_t{1});
    request.embeddings = {{.start = 300, .count = 10, .rows = rows.data()}};
    rig.answer(request);
    EXPECT_EQ(rig.core->stats().pages_cached, 2);  // nothing says what the third shows
    request.image_digests = {Sha256Digest{1}};
    rig.answer(request);
    EXPECT_EQ(rig.core->stats().pages_cached, 3);
    EXPECT_EQ(rig.answer(request).anchors.hit_tokens, 384);
    request.image_digests = {Sha256Digest{2}};
    EXPECT_EQ(rig.answer(request).anchors.hit_tokens, 256);
}

TEST(PrefixReuse, RequestsSideBySideShareTheirPages) {
    Rig rig;
    std::vector<EngineRequest> requests;
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (std::uint64_t id = 0; id < 4; ++id) {
        EngineRequest request = make_request(7, 300, 60);
        request.id = id;
        request.sampling.seed = id;
        requests.push_back(request);
        sinks.push_back(rig.add(request));
    }
    while (sinks[3]->events == 0)
        rig.core->step();
    EXPECT_EQ(rig.core->stats().pages_used, 2 + 4);  // the full ones once, and a last one each
    rig.run();
    for (std::size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(sinks[i]->tokens, expected_tokens(requests[i]));
}

TEST(PrefixReuse, CancellingFreesThePagesAndKeepsTheFullOnesForOthers) {
    Rig rig;
    const EngineRequest request = make_request(1, 300, 60);
    const auto sink = rig.add(request);
    while (sink->events == 0)
        rig.core->step();
    rig.core->cancel(1);
    EXPECT_EQ(rig.core->stats().pages_used, 0);
    EXPECT_EQ(rig.core->stats().pages_cached, 2);
    EXPECT_EQ(rig.answer(request).cached_tokens, 256);
}

TEST(PrefixReuse, PagesOfADamagedRunServeNobody) {
    Rig rig;
    const EngineRequest request = make_request(1, 300, 5);
    rig.model->damaged_position = 299;
    const auto sink = rig.add(request);
    rig.run();
    EXPECT_EQ(sink->finish, FinishReason::error);
    rig.model->damaged_position = -1;
    EXPECT_EQ(rig.answer(request).cached_tokens, 0);
    EXPECT_EQ(rig.answer(request).cached_tokens, 256);
}

TEST(PrefixReuse, EvictionUnderPressureTakesOnlyWhatNobodyUses) {
    Rig rig(small_config(8));
    const EngineRequest lasting = make_request(99, 300, 300);
    const auto sink = rig.add(lasting);
    for (std::uint64_t id = 0; id < 12; ++id) {
        rig.add(make_request(id, 260, 5));
        for (int steps = 0; steps < 20; ++steps)
            rig.core->step();
    }
    rig.run();
    EXPECT_EQ(sink->tokens, expected_tokens(lasting));
    EXPECT_GT(rig.count("fathom_prefix_cache_evictions_total"), 10u);
}

TEST(PrefixReuse, APreemptedSequenceComesBackToTheSameTokensAndAnchors) {
    for (const bool snapshots : {false, true}) {
        Rig rig(snapshots ? small_config(7) : without_snapshots(7));
        EngineRequest request = make_request(1, 300, 1);
        rig.answer(request);
        std::vector<EngineRequest> requests;
        std::vector<std::shared_ptr<Recorder>> sinks;
        for (std::uint64_t id = 0; id < 4; ++id) {
            request.id = id;
            request.max_tokens = 250;
            request.sampling.seed = id;
            requests.push_back(request);
            sinks.push_back(rig.add(request));
        }
        rig.run();
        EXPECT_GT(rig.core->stats().preemptions, 0u);
        for (std::size_t i = 0; i < requests.size(); ++i) {
            EXPECT_EQ(sinks[i]->tokens, expected_tokens(requests[i]));
            EXPECT_EQ(sinks[i]->last.anchors.replays, snapshots ? Replays() : Replays{256});
        }
    }
}

TEST(PrefixReuse, AWholeArenaOfIdlePagesServesAnyRequest) {
    Rig rig(small_config(4));
    rig.answer(make_request(1, 500, 5));
    EXPECT_EQ(rig.core->stats().pages_cached, 3);
    rig.answer(make_request(2, 500, 12));
    rig.answer(make_request(2, 500, 12));
}

TEST(PrefixReuse, RefusesImpossibleHistoriesAndSays) {
    Rig rig;
    const auto refusal = [&](auto change) {
        EngineRequest request = make_request(1, 500, 5);
        change(request);
        return rig.core->add(request, std::make_shared<Recorder>()).message();
    };
    const auto replays = [&](const Replays& at) {
        return refusal([&](EngineRequest& r) { r.replays = at; });
    };
    EXPECT_THAT(replays({0}), HasSubstr("replays[0] is 0; it must be a multiple of 128 above "
                                        "127 and within the prompt's 500 tokens"));
    EXPECT_THAT(replays({300}), HasSubstr("replays[0] is 300"));
    EXPECT_THAT(replays({384, 256}), HasSubstr("replays[1] is 256"));
    EXPECT_THAT(replays({384, 384}), HasSubstr("replays[1] is 384"));
    EXPECT_THAT(replays({512}), HasSubstr("replays[0] is 512"));
    EXPECT_THAT(replays({-256}), HasSubstr("replays[0] is -256"));
    EXPECT_THAT(refusal([](EngineRequest& r) {
                    r.replays = Replays{256};
                    r.override_prefill = true;
                    r.prefill = PrefillMode::exact;
                }),
                HasSubstr("replays has 1 entries; prefill mode exact allows none"));
    EXPECT_THAT(refusal([](EngineRequest& r) { r.cache_salt.assign(257, 'x'); }),
                HasSubstr("cache_salt has 257 bytes; at most 256"));
    EXPECT_THAT(refusal([](EngineRequest& r) { r.image_digests.resize(2); }),
                HasSubstr("image_digests has 2 entries"));
}

}  // namespace
}  // namespace fathom
