#include "policy/expert_switch.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "base/random.h"

namespace fathom {
namespace {

constexpr ExpertShape kShape{.experts = 10, .ranks = 4, .slots = 3, .ranks_per_node = 2};
constexpr std::int64_t kLayers = 6;

std::uint64_t weights_of(std::int64_t layer, std::int32_t expert) {
    return Digest().add(layer).add(expert).value();
}

LayerPlacement random_map(RandomStream& random, std::span<const std::uint8_t> alive = {}) {
    for (;;) {  // shuffled slots until no rank has an expert twice
        LayerPlacement map(12, -1);
        for (std::int32_t e = 0; e < 12; ++e)
            map[static_cast<std::size_t>(e)] =
                e < 10 ? e : static_cast<std::int32_t>(random.next_below(10));
        for (std::size_t i = map.size(); i > 1; --i)
            std::swap(map[i - 1], map[random.next_below(i)]);
        for (std::size_t s = 0; s < map.size() && !alive.empty(); ++s)
            if (alive[s / 3] == 0) map[s] = -1;
        if (check_placement(kShape, map).ok()) return map;
    }
}

LayerChange change_of(std::int64_t layer, LayerPlacement next) {
    LayerChange change{.layer = layer, .next = std::move(next), .weights = {}};
    for (std::int32_t e = 0; e < kShape.experts; ++e)
        change.weights.push_back(weights_of(layer, e));
    return change;
}

// A group in lock step whose messages and fetches take random times. What lies in each slot is
// really moved, so a wrong flip shows as a wrong expert.
struct Group {
    RandomStream random;
    SwitchRules rules;
    SwitchLeader leader;
    std::vector<SwitchRank> ranks;
    std::vector<std::uint8_t> gone;                 // died
    std::vector<std::vector<std::uint64_t>> slots;  // of each layer: weights that lie there
    std::int64_t now_us = 0, step = 0;
    std::int64_t delay_max = 3, loss = 0;  // turns; of 100 messages
    struct Due {
        std::int64_t turn = 0;
        std::size_t rank = 0;
        std::optional<SwitchOrder> order;
        std::optional<SwitchReply> reply;
        std::optional<SwitchFetch> fetch;
    };
    std::deque<Due> due;
    std::vector<std::int64_t> order_at, reply_at;  // messages between two stay in order
    std::int64_t turn = 0;
    bool corrupt = false;

    Group(std::uint64_t seed, SwitchRules r)
        : random(seed),
          rules(r),
          leader(kShape, r, std::vector<LayerPlacement>(kLayers, initial_placement(kShape)), 64),
          gone(4),
          slots(kLayers),
          order_at(4),
          reply_at(4) {
        const LayerPlacement first = initial_placement(kShape);
        for (std::int64_t rank = 0; rank < 4; ++rank)
            ranks.emplace_back(kShape, r, rank, std::vector<LayerPlacement>(kLayers, first));
        for (std::int64_t l = 0; l < kLayers; ++l)
            for (const std::int32_t e : first)
                slots[static_cast<std::size_t>(l)].push_back(e < 0 ? 0 : weights_of(l, e));
    }

    bool serves(std::size_t rank) const { return gone[rank] == 0 && !ranks[rank].fenced(); }
    std::int64_t delay() {
        return turn + 1 +
               static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(delay_max)));
    }
    bool lost() { return static_cast<std::int64_t>(random.next_below(100)) < loss; }

    void deliver(Due& item) {
        if (item.order && gone[item.rank] == 0) ranks[item.rank].receive(now_us, *item.order);
        if (item.reply) leader.receive(now_us, step, *item.reply);
        if (!item.fetch || gone[item.rank] != 0) return;
        std::uint64_t arrived = weights_of(item.fetch->layer, item.fetch->expert);
        const bool from_live =
            item.fetch->from_slot < 0 ||
            gone[static_cast<std::size_t>(item.fetch->from_slot / kShape.slots)] == 0;
        if (item.fetch->from_slot >= 0)
            arrived = slots[static_cast<std::size_t>(item.fetch->layer)]
                           [static_cast<std::size_t>(item.fetch->from_slot)];
        if (corrupt) arrived ^= 1;
        ranks[item.rank].fetched(*item.fetch, from_live, arrived);
    }

    void send() {
        for (const SwitchOrder& order : leader.take_orders())
            for (std::size_t r = 0; r < 4; ++r) {
                if ((order.rank >= 0 && order.rank != static_cast<std::int64_t>(r)) || lost())
                    continue;
                order_at[r] = std::max(order_at[r], delay());
                due.push_back({order_at[r], r, order, {}, {}});
            }
        for (std::size_t r = 0; r < 4; ++r) {
            for (const SwitchReply& reply : ranks[r].take_replies()) {
                if (lost() || gone[r] != 0) continue;
                reply_at[r] = std::max(reply_at[r], delay());
                due.push_back({reply_at[r], r, {}, reply, {}});
            }
            if (gone[r] != 0) continue;
            while (const std::optional<SwitchFetch> fetch = ranks[r].next_fetch(now_us))
                due.push_back({delay(), r, {}, {}, *fetch});
        }
    }

    // The rank begins a step: what it flips lies where its map says afterwards.
    void flip(std::size_t r) {
        for (const SwitchFetch& fetch : ranks[r].begin_step(step))
            slots[static_cast<std::size_t>(fetch.layer)][static_cast<std::size_t>(fetch.slot)] =
                fetch.digest;
    }

    void run_turn() {
        ++turn;
        now_us += 1000;
        for (std::size_t i = 0; i < due.size();) {
            if (due[i].turn > turn) {
                ++i;
                continue;
            }
            Due item = due[i];
            due.erase(due.begin() + static_cast<std::ptrdiff_t>(i));
            deliver(item);
        }
        ++step;
        for (std::size_t r = 0; r < 4; ++r)
            if (gone[r] == 0) flip(r);
        leader.tick(now_us, step);
        send();
    }

    void die(std::size_t rank) {
        gone[rank] = 1;
        leader.lose(now_us, static_cast<std::int64_t>(rank));
        for (SwitchRank& other : ranks)
            other.set_alive(static_cast<std::int64_t>(rank), false);
    }

    // Every dispatch is right: ranks of one epoch have equal maps, and what each map says lies
    // there. Whoever has another epoch than most is refused, so only equal epochs meet.
    void check() const {
        for (std::size_t r = 0; r < 4; ++r) {
            if (!serves(r)) continue;
            for (std::int64_t l = 0; l < kLayers; ++l) {
                const LayerPlacement& map = ranks[r].map(l);
                RC_ASSERT(check_placement(kShape, map).ok());
                for (std::size_t s = 3 * r; s < 3 * r + 3; ++s)
                    if (map[s] >= 0)
                        RC_ASSERT(slots[static_cast<std::size_t>(l)][s] == weights_of(l, map[s]));
                for (std::size_t o = 0; o < 4; ++o)
                    if (serves(o) && ranks[o].epoch() == ranks[r].epoch())
                        RC_ASSERT(ranks[o].map(l) == map);
            }
        }
    }

    std::vector<LayerChange> plan() {
        std::vector<LayerChange> changes;
        for (std::int64_t l = 0; l < kLayers; ++l)
            changes.push_back(change_of(l, random_map(random)));
        return changes;
    }
};

SwitchRules quick_rules() {
    SwitchRules rules;
    rules.layers_per_chunk = 4;
    rules.fetch_bytes = 1000;
    rules.transfer_deadline_us = 60'000;
    rules.lead_steps = 5;
    return rules;
}

TEST(ExpertSwitch, AppliesAPlanChunkByChunkOnOneStepEach) {
    Group group(1, quick_rules());
    const std::vector<LayerChange> plan = group.plan();
    ASSERT_TRUE(group.leader.begin(0, plan).ok());
    EXPECT_EQ(group.leader.begin(0, plan).code(), StatusCode::unavailable);
    for (int i = 0; i < 200 && group.leader.busy(); ++i) {
        group.run_turn();
        group.check();
        for (const SwitchRank& rank : group.ranks)
            EXPECT_EQ(rank.epoch(), group.ranks[0].epoch());
    }
    EXPECT_EQ(group.leader.epoch(), 2);
    for (const LayerChange& change : plan) {
        EXPECT_EQ(group.leader.map(change.layer), change.next);
        EXPECT_EQ(group.ranks[3].map(change.layer), change.next);
    }
}

// Many plans, with messages that are late or lost and a rank that dies: whatever is served is
// served by the right weights, the group is never stuck, and live ranks end with the leader's maps.
RC_GTEST_PROP(ExpertSwitch, NeverServesTheWrongWeights, (std::uint64_t seed)) {
    Group group(seed, quick_rules());
    group.delay_max = 1 + static_cast<std::int64_t>(group.random.next_below(4));
    group.loss = group.random.next_below(2) == 0 ? 0 : 2;
    const auto dies = group.random.next_below(6) == 0 ? group.random.next_below(400) : 1000;
    for (std::uint64_t i = 0; i < 400; ++i) {
        if (!group.leader.busy() && group.leader.alive()[0] != 0 &&
            std::count(group.leader.alive().begin(), group.leader.alive().end(), 1) == 4)
            (void)group.leader.begin(group.now_us, group.plan());
        if (i == dies) group.die(group.random.next_below(4));
        if (group.random.next_below(100) == 0) (void)group.leader.reload(group.now_us);
        group.run_turn();
        group.check();
    }
    group.loss = 0;
    for (int i = 0; i < 200 && group.leader.busy(); ++i)
        group.run_turn();
    for (int i = 0; i < 10; ++i)
        group.run_turn();
    group.check();
    RC_ASSERT(!group.leader.busy() ||
              std::count(group.leader.alive().begin(), group.leader.alive().end(), 1) == 4);
    for (std::size_t r = 0; r < 4; ++r)
        if (group.leader.alive()[r] != 0 && group.serves(r)) {
            RC_ASSERT(group.ranks[r].epoch() == group.leader.epoch());
        }
}

TEST(ExpertSwitch, AWrongChecksumKeepsTheOldMap) {
    Group group(3, quick_rules());
    group.corrupt = true;
    ASSERT_TRUE(group.leader.begin(0, group.plan()).ok());
    for (int i = 0; i < 100; ++i)
        group.run_turn();
    EXPECT_FALSE(group.leader.busy());
    EXPECT_EQ(group.leader.epoch(), 0);
    EXPECT_EQ(group.ranks[2].map(0), initial_placement(kShape));
    EXPECT_EQ(group.leader.log().newest().back().reason,
              static_cast<std::uint16_t>(SwitchReason::checksum));
    // Numbers of aborted epochs are not used again.
    group.corrupt = false;
    ASSERT_TRUE(group.leader.begin(group.now_us, group.plan()).ok());
    for (int i = 0; i < 200; ++i)
        group.run_turn();
    EXPECT_EQ(group.leader.epoch(), 3);
    group.check();
}

TEST(ExpertSwitch, ADeadlineAbortsAndAReloadComesFirst) {
    Group group(4, quick_rules());
    ASSERT_TRUE(group.leader.begin(0, group.plan()).ok());
    (void)group.leader.take_orders();  // nobody hears of it
    group.leader.tick(59'999, 1);
    EXPECT_TRUE(group.leader.busy());
    group.leader.tick(60'000, 1);
    EXPECT_FALSE(group.leader.busy());
    ASSERT_TRUE(group.leader.begin(60'000, group.plan()).ok());
    EXPECT_TRUE(group.leader.reload(60'001));
    EXPECT_EQ(group.leader.log().newest().back().reason,
              static_cast<std::uint16_t>(SwitchReason::reload));
}

TEST(ExpertSwitch, ARankThatMissesTheCommitIsFenced) {
    SwitchRules rules = quick_rules();
    rules.lead_steps = 2;
    rules.layers_per_chunk = kLayers;
    Group group(5, rules);
    group.delay_max = 1;
    ASSERT_TRUE(group.leader.begin(0, group.plan()).ok());
    std::optional<SwitchOrder> commit;
    for (int i = 0; i < 100 && group.leader.busy(); ++i) {
        group.run_turn();
        std::erase_if(group.due, [](const Group::Due& item) {
            return item.rank == 2 && item.order && item.order->kind == SwitchOrder::Kind::commit;
        });
    }
    EXPECT_EQ(group.leader.alive()[2], 0);
    for (int i = 0; i < 5; ++i)
        group.run_turn();
    EXPECT_TRUE(group.ranks[2].fenced());
    EXPECT_EQ(group.ranks[1].epoch(), 1);
    EXPECT_EQ(group.ranks[2].epoch(), 0);  // so a dispatch of its is refused before the fence too
    group.check();
}

TEST(ExpertSwitch, FetchesArePacedFewAndNearest) {
    SwitchRules rules = quick_rules();
    rules.in_flight_max = 2;
    rules.fetch_bytes = 20'000;  // 10 µs at a tenth of 20,000 B/µs
    const std::vector<LayerPlacement> maps(1, initial_placement(kShape));
    SwitchRank rank(kShape, rules, 1, maps);
    LayerPlacement next = maps[0];
    // Rank 0 and 1 are one node; expert 0 lies on rank 0, expert 9 on rank 3.
    next = {3, 4, 5, 0, 9, 1, 6, 7, 8, 2, -1, -1};
    const SwitchOrder prepare{.epoch = 1, .changes = {change_of(0, next)}};
    rank.receive(0, prepare);
    const auto first = rank.next_fetch(0);
    ASSERT_TRUE(first);
    EXPECT_EQ(first->expert, 0);
    EXPECT_EQ(first->from_slot, 0);
    EXPECT_FALSE(rank.next_fetch(9));
    const auto second = rank.next_fetch(10);
    ASSERT_TRUE(second);
    EXPECT_FALSE(rank.next_fetch(100));  // two are under way
    // An abort: what is under way may still write, so the next chunk waits for it.
    rank.receive(100, {.kind = SwitchOrder::Kind::abort, .epoch = 1, .changes = {}});
    rank.receive(100, {.epoch = 2, .changes = {change_of(0, next)}});
    EXPECT_FALSE(rank.next_fetch(200));
    rank.fetched(*first, true, 0);
    EXPECT_FALSE(rank.next_fetch(200));
    rank.fetched(*second, true, 0);
    EXPECT_TRUE(rank.next_fetch(200));
}

TEST(ExpertSwitch, GoesOnFromItsBytes) {
    Group group(6, quick_rules());
    ASSERT_TRUE(group.leader.begin(0, group.plan()).ok());
    bool committing = false;
    for (int i = 0; i < 300 && (group.leader.busy() || i == 0); ++i) {
        group.run_turn();
        // A standby takes over before every turn; its bytes are the same.
        const std::vector<std::uint8_t> bytes = group.leader.save();
        SwitchLeader standby(kShape, group.rules,
                             std::vector<LayerPlacement>(kLayers, initial_placement(kShape)));
        ASSERT_TRUE(standby.load(bytes).ok()) << standby.load(bytes).message();
        EXPECT_EQ(standby.save(), bytes);
        if (i % 5 == 0) {
            ASSERT_TRUE(group.leader.load(bytes).ok());
        }
        committing = committing || group.leader.epoch() > 0;
    }
    EXPECT_TRUE(committing);
    EXPECT_EQ(group.leader.epoch(), 2);
    const std::vector<std::uint8_t> bytes = group.leader.save();
    for (std::size_t size = 0; size < bytes.size(); size += 13)
        EXPECT_FALSE(group.leader.load(std::span(bytes).first(size)).ok());
    SwitchRank other(kShape, group.rules, 1,
                     std::vector<LayerPlacement>(kLayers, initial_placement(kShape)));
    ASSERT_TRUE(other.load(group.ranks[1].save()).ok());
    EXPECT_EQ(other.epoch(), 2);
    EXPECT_EQ(other.map(3), group.ranks[1].map(3));
}

TEST(ExpertSwitch, RefusesPlansThatAreNone) {
    SwitchLeader leader(kShape, {}, std::vector<LayerPlacement>(2, initial_placement(kShape)));
    EXPECT_EQ(leader.begin(0, {change_of(2, initial_placement(kShape))}).message(),
              "layer: 2, expected 0 to 1");
    EXPECT_FALSE(leader.begin(0, {change_of(0, LayerPlacement(12, 3))}).ok());
    leader.lose(0, 1);
    EXPECT_FALSE(leader.begin(0, {change_of(0, initial_placement(kShape))}).ok());
    EXPECT_EQ(SwitchRules{.lead_steps = 1}.check().message(), "lead_steps: 1, expected 2 or more");
}

}  // namespace
}  // namespace fathom
