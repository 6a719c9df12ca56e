// Pages that outlive an engine: what a request finds in a tier, what it leaves there, and that
// late, partial, cancelled and failed loads cost time and nothing else. The marker model verifies
// every page.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "engine/block_key.h"
#include "engine/core.h"
#include "engine/marker_model.h"

namespace fathom {
namespace {

using testing::expected_tokens;
using testing::make_request;
using testing::MarkerModel;
using testing::Recorder;

// Answers at once, or when told.
class MapTier final : public BlockTier {
  public:
    void find(std::vector<BlockKey> chain, std::int64_t,
              std::function<void(TierFound)> done) override {
        ++finds;
        std::size_t blocks = 0;
        while (blocks < chain.size() && store.count(chain[blocks].bytes) > 0)
            ++blocks;
        if (loss != TierLoss::absent) blocks = std::min<std::size_t>(blocks, 1);
        later([done, blocks, why = loss] { done({.blocks = blocks, .loss = why}); });
    }
    std::function<void()> load(std::vector<BlockName> names, std::vector<std::uint8_t*> pages,
                               std::int64_t deadline_us, LoadCalls calls) override {
        ++loads;
        load_deadline_us = deadline_us;
        TierLoaded loaded;
        for (std::size_t i = 0; i < names.size(); ++i) {
            const auto found = store.find(names[i].key.bytes);
            if (found == store.end() || static_cast<std::int64_t>(i) == hole) break;
            EXPECT_EQ(found->second.name.parent, names[i].parent);
            EXPECT_EQ(found->second.name.ns, names[i].ns);
            EXPECT_EQ(found->second.name.token_mac, names[i].token_mac);
            EXPECT_EQ(found->second.name.ordinal, names[i].ordinal);
            ++loaded.leading;
            loaded.due_unix_ms.push_back(due_ms);
        }
        // Pages are written until the last moment, and in no good order.
        later([this, names, pages, calls, loaded] {
            for (std::size_t i = pages.size(); i-- > 0;) {
                std::fill_n(pages[i], page_bytes, std::uint8_t{0xee});
                if (i < loaded.leading)
                    std::copy_n(store.at(names[i].key.bytes).page.begin(), page_bytes, pages[i]);
            }
            calls.done(loaded);
            later([this, pages, calls, loaded] {
                for (std::size_t i = loaded.leading; i < pages.size(); ++i)
                    std::fill_n(pages[i], page_bytes, std::uint8_t{0xdd});
                calls.released();
            });
        });
        return [this] { ++cancels; };
    }
    std::int64_t persist(const BlockName& name, const std::uint8_t* page,
                         TrafficClass traffic_class) override {
        ++persists;
        if (full) return 0;
        classes.push_back(traffic_class);
        store[name.key.bytes] = {name, {page, page + page_bytes}};
        return due_ms;
    }

    std::optional<BlockKey> next_refused() override {
        if (refused.empty()) return std::nullopt;
        const BlockKey key = refused.front();
        refused.pop_front();
        return key;
    }

    void run_some(std::size_t count = ~std::size_t{0}) {
        for (; count > 0 && !queue.empty(); --count) {
            const auto call = std::move(queue.front());
            queue.pop_front();
            call();
        }
    }

    struct Stored {
        BlockName name;
        std::vector<std::uint8_t> page;
    };
    std::map<Sha256Digest, Stored> store;
    std::vector<TrafficClass> classes;
    std::deque<std::function<void()>> queue;
    std::deque<BlockKey> refused;
    std::int64_t page_bytes = 0, hole = -1, due_ms = 1'000'000'000'000;
    std::int64_t load_deadline_us = 0;
    TierLoss loss = TierLoss::absent;  // else lookups break off behind their first block
    int finds = 0, loads = 0, persists = 0, cancels = 0;
    bool full = false, waits = false;

  private:
    void later(std::function<void()> call) {
        if (waits)
            queue.push_back(std::move(call));
        else
            call();
    }
};

// Windows that outlive an engine.
class MapWindows final : public WindowTier {
  public:
    void keep(const BlockKey& block, std::span<const std::uint8_t> rows) override {
        kept.emplace(block.bytes, std::vector<std::uint8_t>(rows.begin(), rows.end()));
    }
    bool recall(const BlockKey& block, std::vector<std::uint8_t>& rows) override {
        ++recalls;
        const auto found = kept.find(block.bytes);
        if (found == kept.end()) return false;
        rows = found->second;
        return true;
    }
    void expire() override {}

    std::map<Sha256Digest, std::vector<std::uint8_t>> kept;
    int recalls = 0;
};

EngineConfig small_config(MapTier& tier, std::int64_t pages = 24) {
    EngineConfig config;
    config.pages = pages;
    config.sequences_max = 4;
    config.step_tokens_max = 64;
    config.prefill_chunk_max = 50;
    config.tail_tokens = 22;
    config.tier = &tier;
    return config;
}

struct Rig {
    explicit Rig(MapTier& with, std::int64_t pages = 24) : Rig(with, small_config(with, pages)) {}
    Rig(MapTier& with, const EngineConfig& config) : tier(with) {
        auto owned = std::make_unique<MarkerModel>(config.step_tokens_max);
        model = owned.get();
        tier.page_bytes = model->kv_layout().page_bytes;
        core = std::move(*EngineCore::create(std::move(owned), config, clock, &metrics));
    }
    ~Rig() { EXPECT_EQ(model->violation, ""); }

    std::shared_ptr<Recorder> add(const EngineRequest& request) {
        auto sink = std::make_shared<Recorder>(static_cast<std::int64_t>(request.committed.size()));
        const Status status = core->add(request, sink);
        EXPECT_TRUE(status.ok()) << status.to_string();
        return sink;
    }
    // Runs until all have ended; what the tier holds back comes a call at a time.
    void run() {
        for (int steps = 0; !core->idle(); ++steps) {
            ASSERT_LT(steps, 100000);
            if (!core->launch()) {
                tier.run_some(1);
            } else {
                core->compute();
                core->retire();
            }
            core->deliver();
        }
        tier.run_some();
        EXPECT_FALSE(core->launch());  // takes in what came last
        EXPECT_EQ(core->stats().pages_used, 0);
    }
    EngineEvent answer(const EngineRequest& request) {
        const auto sink = add(request);
        run();
        EXPECT_EQ(sink->tokens, expected_tokens(request));
        EXPECT_EQ(sink->violation, "");
        return sink->last;
    }

    MapTier& tier;
    std::uint64_t misses(const char* cause) {
        return metrics.counter("kvpool_miss_tokens_total", "x", {{"cause", cause}}).value();
    }
    std::uint64_t loads(const char* outcome) {
        return metrics.counter("kvpool_loads_total", "x", {{"outcome", outcome}}).value();
    }

    ManualClock clock;
    MetricsRegistry metrics;
    MarkerModel* model = nullptr;
    std::unique_ptr<EngineCore> core;
};

// What follows an answer in the same conversation.
EngineRequest next_turn(const EngineRequest& request, std::int64_t tokens) {
    EngineRequest next = request;
    const std::vector<TokenId> output = expected_tokens(request);
    next.prompt.insert(next.prompt.end(), output.begin(), output.end());
    for (std::int64_t i = 0; i < tokens; ++i)
        next.prompt.push_back(static_cast<TokenId>((7 * i + 3) % testing::kMarkerVocab));
    return next;
}

TEST(BlockTier, AnEngineFindsWhatAnEarlierOneLeft) {
    MapTier tier;
    const EngineRequest request = make_request(1, 300, 90);
    EngineEvent cold;
    {
        Rig rig(tier);
        cold = rig.answer(request);
        EXPECT_EQ(cold.cached_tokens, 0);
    }
    EXPECT_EQ(tier.store.size(), 3u);  // 389 rows: prompt and answer
    Rig rig(tier);
    const EngineEvent warm = rig.answer(request);
    EXPECT_EQ(warm.anchors.hit_tokens, 256);
    EXPECT_EQ(rig.loads("whole"), 1u);
    EXPECT_EQ(warm.cached_tokens, 256 - testing::kMarkerWindow);
    EXPECT_STREQ(warm.anchors.window_source, "replay");
    EXPECT_EQ(warm.anchors.replays, std::vector<std::int64_t>{256});
    // The run with a replay has left its own third block.
    EXPECT_EQ(tier.store.size(), 4u);
}

TEST(BlockTier, ALoadThatTakesLongerThanComputingIsNotWaitedFor) {
    MapTier tier;
    EngineConfig config = small_config(tier);
    const EngineRequest request = make_request(1, 300, 90);
    Rig(tier, config).answer(request);
    const auto budget_us = [&](double us_a_row) {
        config.cost.k_us[static_cast<std::size_t>(CostFeature::rows)] = us_a_row;
        Rig rig(tier, config);
        const std::int64_t begin_us = rig.clock.now_us();
        rig.answer(request);
        return tier.load_deadline_us - begin_us;
    };
    const std::int64_t configured_us = budget_us(0);
    EXPECT_EQ(configured_us, config.tier_budget.load_us + config.tier_budget.load_us_per_1k_tokens);
    EXPECT_EQ(budget_us(1e6), configured_us);
    const std::int64_t short_us = budget_us(10), shorter_us = budget_us(5);
    EXPECT_LT(short_us, configured_us);
    EXPECT_GT(shorter_us, 0);
    EXPECT_NEAR(static_cast<double>(short_us) / static_cast<double>(shorter_us), 2, 0.01);
}

TEST(BlockTier, WithWindowsALaterEngineContinuesExactly) {
    MapTier tier;
    MapWindows windows;
    EngineConfig config = small_config(tier);
    config.windows = &windows;
    const EngineRequest request = make_request(1, 300, 90);
    Rig(tier, config).answer(request);
    EXPECT_FALSE(windows.kept.empty());
    Rig rig(tier, config);
    const EngineEvent warm = rig.answer(request);
    EXPECT_EQ(warm.anchors.hit_tokens, 256);
    EXPECT_EQ(warm.cached_tokens, 256);
    EXPECT_STREQ(warm.anchors.window_source, "snapshot");
    EXPECT_TRUE(warm.anchors.replays.empty());
    EXPECT_EQ(tier.store.size(), 3u);  // the run's blocks are the cold one's
    // A turn later as well, and a run that names its replays.
    EngineRequest again = next_turn(request, 60);
    const EngineEvent turn = Rig(tier, config).answer(again);
    EXPECT_STREQ(turn.anchors.window_source, "snapshot");
    EXPECT_EQ(turn.anchors.hit_tokens, 384);
    again.replays.emplace();
    EXPECT_TRUE(Rig(tier, config).answer(again).anchors.replays.empty());
}

TEST(BlockTier, WindowsAreLookedForNearTheEndAlone) {
    MapTier tier;
    MapWindows windows;
    EngineConfig config = small_config(tier, 60);
    config.windows = &windows;
    config.snapshot_bytes_max = 1;  // none is kept
    const EngineRequest request = make_request(1, 620, 10);
    Rig(tier, config).answer(request);
    Rig rig(tier, config);
    windows.recalls = 0;
    EXPECT_STREQ(rig.answer(request).anchors.window_source, "replay");
    EXPECT_GT(windows.recalls, 0);
    EXPECT_LE(windows.recalls, 8);
}

TEST(BlockTier, EveryTurnOfAConversationFindsTheOneBefore) {
    MapTier tier;
    EngineRequest request = make_request(1, 150, 20);
    std::vector<std::int64_t> hits;
    std::size_t replays = 0;
    for (int turn = 0; turn < 4; ++turn) {
        Rig rig(tier);
        const EngineEvent event = rig.answer(request);
        hits.push_back(event.anchors.hit_tokens);
        replays = event.anchors.replays.size();
        request = next_turn(request, 120);
    }
    EXPECT_EQ(hits, (std::vector<std::int64_t>{0, 0, 256, 384}));
    EXPECT_EQ(replays, 2u);
}

TEST(BlockTier, ARunThatNamesItsReplaysIsRepeatedElsewhere) {
    MapTier tier;
    const EngineRequest request = make_request(1, 300, 30);
    Rig(tier).answer(request);
    EngineRequest again = request;
    again.replays = Rig(tier).answer(request).anchors.replays;
    ASSERT_EQ(again.replays->size(), 1u);
    Rig rig(tier);
    const EngineEvent event = rig.answer(again);
    EXPECT_EQ(event.anchors.replays, *again.replays);
    EXPECT_EQ(event.cached_tokens, 256 - testing::kMarkerWindow);
}

TEST(BlockTier, ExactRunsAndRunsWithoutCacheDoNotAsk) {
    MapTier tier;
    EngineRequest request = make_request(1, 300, 30);
    Rig(tier).answer(request);
    const int finds = tier.finds;
    request.replays.emplace();
    Rig(tier).answer(request);
    request.replays.reset();
    request.use_cache = false;
    const int persists = tier.persists;
    Rig(tier).answer(request);
    EXPECT_EQ(tier.finds, finds);
    EXPECT_EQ(tier.persists, persists);
}

TEST(BlockTier, WhatDoesNotComeIsComputed) {
    const EngineRequest request = make_request(1, 560, 30);
    for (const std::int64_t hole : {0, 1, 2, 3}) {
        MapTier tier;
        Rig(tier).answer(request);
        tier.hole = hole;
        Rig rig(tier);
        const EngineEvent event = rig.answer(request);
        EXPECT_EQ(event.anchors.hit_tokens, hole < 2 ? 0 : 128 * hole);
        EXPECT_EQ(rig.loads(hole == 0 ? "failed" : "partial"), 1u);
        EXPECT_EQ(rig.metrics.counter("kvpool_load_pages_returned_total", "x").value(),
                  static_cast<std::uint64_t>(4 - hole));
    }
}

TEST(BlockTier, TokensOfALookupThatFailedHaveTheCauseOfTheFailure) {
    const EngineRequest request = make_request(1, 560, 30);
    const std::array<const char*, kTierLosses> causes = {"absent", "timeout", "io_error",
                                                         "breaker"};
    for (std::size_t i = 0; i < causes.size(); ++i) {
        SCOPED_TRACE(causes[i]);
        MapTier tier;
        Rig(tier).answer(request);
        tier.loss = static_cast<TierLoss>(i);
        Rig rig(tier);
        rig.answer(request);
        for (const char* cause : causes) {
            // One block of four came with the answer that failed; all four without failure.
            const bool here = i > 0 && cause == causes[i];
            EXPECT_EQ(rig.misses(cause), here ? 3U * 128 : 0U) << cause;
        }
    }
    MapTier nothing;
    Rig rig(nothing);
    rig.answer(request);
    EXPECT_EQ(rig.misses("absent"), 4U * 128);
}

TEST(BlockTier, OtherRequestsRunWhileOneWaits) {
    MapTier tier;
    const EngineRequest request = make_request(1, 300, 30);
    Rig(tier).answer(request);
    tier.waits = true;
    Rig rig(tier);
    const auto waiting = rig.add(request);
    const EngineRequest other = make_request(2, 40, 10);
    const auto sink = rig.add(other);
    while (sink->last.finish == FinishReason::none)
        ASSERT_TRUE(rig.core->step());
    EXPECT_EQ(sink->tokens, expected_tokens(other));
    EXPECT_TRUE(waiting->tokens.empty());
    rig.run();
    EXPECT_EQ(waiting->tokens, expected_tokens(request));
    EXPECT_EQ(waiting->last.anchors.hit_tokens, 256);
}

TEST(BlockTier, ACancelledLoadKeepsItsPagesUntilTheyAreReleased) {
    MapTier tier;
    const EngineRequest request = make_request(1, 300, 30);
    Rig(tier).answer(request);
    tier.waits = true;
    for (const int calls : {0, 1, 2}) {  // before the answer, while loading, before the release
        SCOPED_TRACE(calls);
        Rig rig(tier);
        const auto sink = rig.add(request);
        for (int i = 0; i < calls; ++i) {
            tier.run_some(1);
            rig.core->plan_ahead();
        }
        rig.core->cancel(1);
        rig.core->deliver();
        EXPECT_EQ(sink->last.finish, FinishReason::cancelled);
        rig.run();
        EXPECT_EQ(rig.answer(make_request(2, 300, 30)).finish, FinishReason::length);
    }
    EXPECT_GE(tier.cancels, 1);
}

TEST(BlockTier, TheEngineEndsOnlyWhenTheTierHasLetGo) {
    MapTier tier;
    const EngineRequest request = make_request(1, 300, 30);
    Rig(tier).answer(request);
    tier.waits = true;
    auto rig = std::make_unique<Rig>(tier);
    rig->add(request);
    tier.run_some(1);
    rig->core->plan_ahead();
    ASSERT_EQ(tier.loads, 1);
    std::thread other([&] { tier.run_some(); });
    rig.reset();
    other.join();
    EXPECT_TRUE(tier.queue.empty());
}

TEST(BlockTier, APromptThatFillsTheArenaIsLoadedWhole) {
    MapTier tier;
    const EngineRequest request = make_request(1, 620, 10);
    Rig(tier, 5).answer(request);
    Rig rig(tier, 5);
    const EngineEvent warm = rig.answer(request);
    EXPECT_EQ(warm.anchors.hit_tokens, 512);
}

TEST(BlockTier, WaitingForPagesNeverStopsTheOldest) {
    MapTier tier;
    std::vector<EngineRequest> requests;
    for (std::uint64_t id = 1; id <= 6; ++id)
        requests.push_back(make_request(id, 300, 60));
    for (const EngineRequest& request : requests)
        Rig(tier).answer(request);
    for (const bool waits : {false, true}) {
        tier.waits = waits;
        Rig rig(tier, 5);  // one of them needs three
        std::vector<std::shared_ptr<Recorder>> sinks;
        for (const EngineRequest& request : requests)
            sinks.push_back(rig.add(request));
        rig.run();
        for (std::size_t i = 0; i < sinks.size(); ++i)
            EXPECT_EQ(sinks[i]->tokens, expected_tokens(requests[i]));
    }
}

TEST(BlockTier, BlocksThatWereDroppedAreGivenAgainWithTheNextUse) {
    MapTier tier;
    tier.full = true;
    Rig rig(tier);
    const EngineRequest request = make_request(1, 300, 30);
    rig.answer(request);
    EXPECT_TRUE(tier.store.empty());
    tier.full = false;
    rig.answer(request);
    EXPECT_EQ(tier.store.size(), 2u);
    const int persists = tier.persists;
    rig.answer(request);
    EXPECT_EQ(tier.persists, persists);  // they are there
}

TEST(BlockTier, BlocksThatTheTierRefusedLaterAreGivenAgainWithTheNextUse) {
    MapTier tier;
    Rig rig(tier);
    const EngineRequest request = make_request(1, 300, 10);
    rig.answer(request);
    ASSERT_EQ(tier.persists, 2);
    rig.answer(request);
    EXPECT_EQ(tier.persists, 2);
    for (const auto& [key, stored] : tier.store)
        tier.refused.push_back({key});
    tier.refused.push_back({Sha256Digest{}});  // of nobody here
    tier.store.clear();
    rig.answer(request);
    EXPECT_EQ(tier.persists, 4);
    EXPECT_EQ(tier.store.size(), 2u);
    EXPECT_TRUE(tier.refused.empty());
}

TEST(BlockTier, BlocksNearTheirEndAreStoredAgain) {
    MapTier tier;
    tier.due_ms = 1'000;
    const EngineRequest request = make_request(1, 300, 30);
    Rig(tier).answer(request);
    EXPECT_EQ(tier.persists, 2);
    Rig rig(tier);
    rig.clock.advance_us(2'000'000);
    rig.answer(request);
    EXPECT_EQ(tier.persists, 4);
}

TEST(BlockTier, TenantsSaltsAndModelsFindNothingOfEachOther) {
    MapTier tier;
    const EngineRequest request = make_request(1, 300, 30);
    Rig(tier).answer(request);
    std::vector<EngineRequest> others(4, request);
    others[0].cache_salt = "x";
    others[1].share_group = "x";
    others[2].share_secret = "x";
    others[3].share_group = "y";
    for (const EngineRequest& other : others)
        EXPECT_EQ(Rig(tier).answer(other).cached_tokens, 0);
    EngineConfig config = small_config(tier);
    config.kv_identity = {{NamespaceTag::one_request, "other weights"}};
    EXPECT_EQ(Rig(tier, config).answer(request).cached_tokens, 0);
    // Within one engine as well, where the prefix cache is between.
    Rig rig(tier);
    EXPECT_GT(rig.answer(others[1]).cached_tokens, 0);
    EXPECT_GT(rig.answer(others[3]).cached_tokens, 0);
    EngineRequest fresh = request;
    fresh.share_group = "z";
    EXPECT_EQ(rig.answer(fresh).cached_tokens, 0);
}

TEST(BlockTier, WhatMayBeStoredIsTheRequestsChoice) {
    MapTier tier;
    EngineRequest request = make_request(1, 300, 120);
    request.traffic_class = TrafficClass::chatbot;
    request.persist_output = false;
    Rig(tier).answer(request);
    EXPECT_EQ(tier.store.size(), 2u);
    EXPECT_EQ(tier.classes, std::vector<TrafficClass>(2, TrafficClass::chatbot));
    request.prompt[0] ^= 1;
    request.persist = false;
    Rig(tier).answer(request);
    EXPECT_EQ(tier.store.size(), 2u);
}

TEST(BlockTier, RandomConversationsOverManyEnginesStayRight) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE(seed);
        MapTier tier;
        tier.waits = seed % 2 == 0;
        MapWindows windows;
        auto draw = [&, at = std::uint64_t{0}](std::uint64_t below) mutable {
            return testing::mix(seed, ++at) % below;
        };
        std::vector<EngineRequest> turns;
        for (std::uint64_t id = 1; id <= 4; ++id)
            turns.push_back(make_request(id, static_cast<std::int64_t>(1 + draw(300)), 30));
        for (int round = 0; round < 4; ++round) {
            EngineConfig config = small_config(tier, static_cast<std::int64_t>(6 + draw(12)));
            config.windows = seed % 3 == 0 ? &windows : nullptr;
            Rig rig(tier, config);
            tier.hole = draw(3) == 0 ? static_cast<std::int64_t>(draw(4)) : -1;
            std::vector<std::shared_ptr<Recorder>> sinks;
            for (const EngineRequest& turn : turns)
                sinks.push_back(rig.add(turn));
            const std::size_t gone = draw(8);
            if (gone < turns.size()) {
                for (std::uint64_t i = draw(4); i > 0; --i) {
                    rig.core->plan_ahead();
                    tier.run_some(1);
                }
                rig.core->cancel(turns[gone].id);
            }
            rig.run();
            for (std::size_t i = 0; i < turns.size(); ++i) {
                if (i != gone) {
                    EXPECT_EQ(sinks[i]->tokens, expected_tokens(turns[i]));
                }
                if (turns[i].prompt.size() < 450)
                    turns[i] = next_turn(turns[i], static_cast<std::int64_t>(draw(60)));
            }
        }
    }
}

}  // namespace
}  // namespace fathom
