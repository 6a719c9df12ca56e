#include "policy/decode_balancer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>

#include "base/random.h"

namespace fathom {
namespace {

DecodeRankReport report_of(std::int64_t sequences, std::int64_t kv_tokens) {
    DecodeRankReport report;
    report.sequences = sequences;
    report.kv_tokens = kv_tokens;
    report.total_blocks = 1 << 20;
    report.free_blocks = (1 << 20) - kv_tokens / 128;
    report.sequences_max = 256;
    return report;
}

DecodeRequest request_of(std::uint64_t id, std::int64_t context, std::int64_t output = 0) {
    return {.id = id,
            .context_tokens = context,
            .output_tokens = output,
            .output_p90_tokens = 2 * output};
}

DecodeBalancer balancer_of(DecodeRule rule, const std::vector<DecodeRankReport>& ranks) {
    DecodeSettings settings;
    settings.rule = rule;
    DecodeBalancer balancer(settings);
    balancer.add_group(0, ranks.size());
    for (std::size_t r = 0; r < ranks.size(); ++r)
        balancer.report(0, r, ranks[r], 0);
    return balancer;
}

DecodePlacement place(DecodeBalancer& balancer, const DecodeRequest& request) {
    std::vector<DecodePlacement> placements;
    balancer.place({&request, 1}, 0, &placements);
    return placements.at(0);
}

constexpr std::array kRules = {DecodeRule::joint, DecodeRule::marginal, DecodeRule::split};

TEST(DecodeStep, IsTheSlowestRankAndAllVerifiedTokens) {
    const DecodeCost cost{.c0_us = 1,
                          .a0_us = 10,
                          .a1_us = 2,
                          .a2_us = 0.5,
                          .verify_us = 3,
                          .moe_us = 4,
                          .moe_balance = 1.5};
    const std::vector<DecodeLoad> ranks = {{2, 10, 5}, {1, 20, 3}};
    EXPECT_DOUBLE_EQ(decode_step_us(cost, ranks), 1 + (10 + 2 + 10) + 3 * 5 + 4 * 8 * 1.5);
    EXPECT_DOUBLE_EQ(decode_step_us(cost, {}), 1);
}

TEST(DecodeBinding, WaitsForTheLastSlice) {
    EXPECT_FALSE(should_bind(false, 1000, 40));
    EXPECT_TRUE(should_bind(false, 79, 40));
    EXPECT_TRUE(should_bind(true, 1000, 40));
}

TEST(DecodePlacement, TheDeployedRuleSendsShortOnesToFewAndLongOnesToLittleKv) {
    // Mean length 10,000. Rank 0: few, long; rank 1: many, short; rank 2: few, short.
    const std::vector<DecodeRankReport> ranks = {report_of(10, 300'000), report_of(40, 100'000),
                                                 report_of(10, 200'000)};
    DecodeBalancer balancer = balancer_of(DecodeRule::split, ranks);
    EXPECT_EQ(place(balancer, request_of(1, 1000)).rank, 0);
    EXPECT_EQ(place(balancer, request_of(2, 50'000)).rank, 1);
    DecodeBalancer marginal = balancer_of(DecodeRule::marginal, ranks);
    EXPECT_NE(place(marginal, request_of(1, 10)).rank, 1);
    EXPECT_EQ(place(marginal, request_of(2, 1'000'000)).rank, 1);
}

TEST(DecodePlacement, EqualsTheBestOfAllRanks) {
    EXPECT_TRUE(rc::check([] {
        std::vector<DecodeRankReport> ranks(*rc::gen::inRange<std::size_t>(1, 9));
        double n_mean = 0, kv_mean = 0;
        for (DecodeRankReport& rank : ranks) {
            rank = report_of(*rc::gen::inRange<std::int64_t>(0, 100),
                             *rc::gen::inRange<std::int64_t>(0, 5'000'000));
            n_mean += static_cast<double>(rank.sequences) / static_cast<double>(ranks.size());
            kv_mean += static_cast<double>(rank.kv_tokens) / static_cast<double>(ranks.size());
        }
        n_mean = std::max(n_mean, 1.0);
        kv_mean = std::max(kv_mean, 4096.0);
        const auto context = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
        const auto score = [&](const DecodeRankReport& rank) {
            return std::pow((static_cast<double>(rank.sequences) + 1) / n_mean, 8) +
                   std::pow(static_cast<double>(rank.kv_tokens + context) / kv_mean, 8);
        };
        DecodeBalancer balancer = balancer_of(DecodeRule::joint, ranks);
        const DecodePlacement placement = place(balancer, request_of(1, context));
        for (const DecodeRankReport& rank : ranks)
            RC_ASSERT(score(ranks[static_cast<std::size_t>(placement.rank)]) <=
                      score(rank) * (1 + 1e-9));
    }));
}

TEST(DecodePlacement, RoundRobinGivesEveryRankWithRoomATurn) {
    DecodeSettings settings;
    settings.rule = DecodeRule::round_robin;
    DecodeBalancer balancer(settings);
    for (std::size_t group = 0; group < 2; ++group) {
        balancer.add_group(group, 4);
        for (std::size_t r = 0; r < 4; ++r)
            balancer.report(group, r, report_of(r == 2 ? 256 : 0, 0), 0);
    }
    std::map<std::pair<std::int64_t, std::int64_t>, int> turns;
    for (std::uint64_t id = 0; id < 24; ++id) {
        const DecodePlacement placement =
            place(balancer, request_of(id, static_cast<std::int64_t>(1'000 * (id % 5))));
        ++turns[{placement.group, placement.rank}];
    }
    EXPECT_EQ(turns.size(), 6u);
    for (const auto& [seat, count] : turns)
        EXPECT_EQ(count, 4) << "group " << seat.first << " rank " << seat.second;
}

TEST(DecodePlacement, PlacesLongOnesFirst) {
    DecodeBalancer balancer = balancer_of(DecodeRule::joint, {report_of(0, 0), report_of(0, 0)});
    const std::vector<DecodeRequest> batch = {request_of(1, 10), request_of(2, 1000),
                                              request_of(3, 100)};
    std::vector<DecodePlacement> placements;
    balancer.place(batch, 0, &placements);
    EXPECT_EQ(placements[0].id, 2U);
    EXPECT_EQ(placements[1].id, 3U);
    EXPECT_EQ(placements[2].id, 1U);
}

TEST(DecodeLedger, ABurstSpreadsOverRanksWhoseReportsAreOld) {
    for (const DecodeRule rule : kRules) {
        DecodeBalancer balancer =
            balancer_of(rule, std::vector<DecodeRankReport>(8, report_of(50, 3'000'000)));
        std::array<int, 8> placed{};
        for (std::uint64_t i = 0; i < 80; ++i)
            ++placed[static_cast<std::size_t>(place(balancer, request_of(i, 60'000)).rank)];
        for (const int n : placed)
            EXPECT_EQ(n, 10);
    }
}

TEST(DecodeLedger, CountsAPlacementOnceWhateverReportsSay) {
    DecodeBalancer balancer = balancer_of(DecodeRule::joint, {report_of(5, 1000)});
    for (std::uint64_t i = 0; i < 3; ++i)
        EXPECT_EQ(place(balancer, request_of(i, 100)).number, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(balancer.view(0, 0).sequences, 8);
    DecodeRankReport report = report_of(7, 1200);  // has included the first two
    report.acked = 2;
    report.step = 5;
    balancer.report(0, 0, report, 0);
    EXPECT_EQ(balancer.view(0, 0).sequences, 8);
    EXPECT_EQ(balancer.view(0, 0).kv_tokens, 1300);
    report.step = 4;  // an older one that came late
    report.acked = 0;
    balancer.report(0, 0, report, 0);
    EXPECT_EQ(balancer.view(0, 0).sequences, 8);
    EXPECT_TRUE(balancer.withdraw(0, 0, 3, 0));
    EXPECT_FALSE(balancer.withdraw(0, 0, 3, 0));
    EXPECT_EQ(balancer.view(0, 0).sequences, 7);
    EXPECT_EQ(balancer.group_load(0).kv_tokens, 1200);
}

TEST(DecodeLimits, ASequenceWithoutRoomToGrowStaysQueued) {
    DecodeRankReport tight = report_of(10, 0);
    tight.total_blocks = 1000;
    tight.free_blocks = 100;
    tight.growth_tokens = 50 * 128 * 2;  // half of it must be free: 50 blocks
    DecodeBalancer balancer = balancer_of(DecodeRule::joint, {tight});
    EXPECT_EQ(place(balancer, request_of(1, 51 * 128)).reason, DecodeReason::no_blocks);
    EXPECT_EQ(place(balancer, request_of(2, 49 * 128)).rank, 0);
    EXPECT_EQ(place(balancer, request_of(3, 128)).reason, DecodeReason::no_blocks);
    tight.free_blocks = 49;  // below its reserve
    tight.growth_tokens = 0;
    tight.acked = 1;
    balancer.report(0, 0, tight, 0);
    EXPECT_EQ(place(balancer, request_of(4, 1)).reason, DecodeReason::no_blocks);
    DecodeRankReport full = report_of(256, 0);
    DecodeBalancer slots = balancer_of(DecodeRule::joint, {full});
    EXPECT_EQ(place(slots, request_of(1, 1)).reason, DecodeReason::no_slot);
    DecodeBalancer none = balancer_of(DecodeRule::joint, {});
    EXPECT_EQ(place(none, request_of(1, 1)).reason, DecodeReason::no_live_rank);
}

// A group that is kept full of sequences whose outputs are 400 tokens, and on rank 0 fifty times
// what is expected of them.
class GroupThatFillsUp {
  public:
    static constexpr std::size_t kRanks = 8;

    GroupThatFillsUp() { balancer_.add_group(0, kRanks); }

    // Sizes of ranks after a step, before what ends in it.
    std::vector<DecodeLoad> step(std::int64_t number) {
        for (std::size_t r = 0; r < kRanks; ++r)
            report(r, number);
        while (queued_.size() < 16)
            queued_.push_back(next_++);
        place(number);
        std::vector<DecodeLoad> loads;
        for (std::vector<Running>& rank : ranks_) {
            DecodeLoad load{.sequences = static_cast<std::int64_t>(rank.size())};
            for (Running& s : rank) {
                load.kv_tokens += s.tokens;
                s.tokens += 3;
                s.left -= 3;
            }
            ended += std::erase_if(rank, [](const Running& s) { return s.left <= 0; });
            loads.push_back(load);
        }
        return loads;
    }
    std::int64_t free_blocks(std::size_t r) const {
        std::int64_t free = kBlocks;
        for (const Running& s : ranks_[r])
            free -= s.tokens / 128 + 1;
        return free;
    }

    std::uint64_t dropped = 0, ended = 0;

  private:
    static constexpr std::int64_t kBlocks = 2000;
    struct Running {
        std::uint64_t id = 0;
        std::int64_t tokens = 0, left = 0;
    };

    void report(std::size_t r, std::int64_t step) {
        DecodeRankReport report = report_of(static_cast<std::int64_t>(ranks_[r].size()), 0);
        for (const Running& s : ranks_[r])
            report.kv_tokens += s.tokens;
        report.total_blocks = kBlocks;
        report.free_blocks = free_blocks(r);
        report.growth_tokens = 1000 * report.sequences;
        report.acked = number_[r];
        report.step = step;
        report.newest_id = ranks_[r].empty() ? 0 : ranks_[r].back().id;
        const auto drop = balancer_.report(0, r, report, step);
        if (!drop) return;
        ASSERT_EQ(*drop, ranks_[r].back().id);
        queued_.push_back(*drop);
        ranks_[r].pop_back();
        ++dropped;
    }

    void place(std::int64_t step) {
        std::vector<DecodeRequest> batch;
        for (const std::uint64_t id : queued_)
            batch.push_back({.id = id,
                             .context_tokens = 4000,
                             .output_tokens = 400,
                             .output_p90_tokens = 1000});
        queued_.clear();
        std::vector<DecodePlacement> placements;
        balancer_.place(batch, step, &placements);
        for (const DecodePlacement& p : placements) {
            if (p.rank < 0) {
                queued_.push_back(p.id);
                continue;
            }
            const auto r = static_cast<std::size_t>(p.rank);
            ranks_[r].push_back({p.id, 4000, r == 0 ? 20'000 : 400});
            number_[r] = p.number;
        }
    }

    DecodeBalancer balancer_{DecodeSettings{}};
    std::array<std::vector<Running>, kRanks> ranks_;
    std::array<std::int64_t, kRanks> number_{};
    std::vector<std::uint64_t> queued_;
    std::uint64_t next_ = 0;
};

// serving.md t.A1
TEST(DecodeLimits, AGroupIsNeverHeldUpByARankThatFillsUp) {
    GroupThatFillsUp group;
    const DecodeCost cost{.a0_us = 5000, .a1_us = 50, .a2_us = 0.02};
    std::vector<double> steps_us;
    for (std::int64_t step = 1; step < 3000; ++step) {
        const std::vector<DecodeLoad> loads = group.step(step);
        for (std::size_t r = 0; r < loads.size(); ++r)
            ASSERT_GE(group.free_blocks(r), 0) << "rank " << r << " at step " << step;
        if (step > 200) steps_us.push_back(decode_step_us(cost, loads));
    }
    EXPECT_GT(group.dropped, 0U);  // the pressure that this is about was there
    EXPECT_GT(group.ended, 1000U);
    std::sort(steps_us.begin(), steps_us.end());
    EXPECT_LE(steps_us.back(), 2 * steps_us[steps_us.size() / 2]);
}

// serving.md t.D1: 512 clients that ask again as soon as they are answered, 8 ranks, reports some
// steps old.
TEST(DecodeLedger, SteadyClientsAreSpreadEvenly) {
    constexpr std::size_t kRanks = 8, kClients = 512;
    for (const DecodeRule rule : kRules) {
        DecodeSettings settings;
        settings.rule = rule;
        DecodeBalancer balancer(settings);
        balancer.add_group(0, kRanks);
        RandomStream random(5);
        struct Report {
            std::array<std::int64_t, kRanks> sequences{}, kv{}, number{};
        };
        std::deque<Report> reports(6);
        Report now;
        std::map<std::int64_t, std::vector<std::pair<std::size_t, std::int64_t>>> ends;
        std::size_t running = 0;
        std::uint64_t id = 0;
        double most = 0, mean = 0;
        for (std::int64_t step = 1; step <= 1500; ++step) {
            for (std::size_t r = 0; r < kRanks; ++r) {
                const Report& old = reports.front();
                DecodeRankReport report = report_of(old.sequences[r], old.kv[r]);
                report.acked = old.number[r];
                report.step = step;
                balancer.report(0, r, report, step);
            }
            std::vector<DecodeRequest> batch;
            for (; running < std::min(kClients, static_cast<std::size_t>(step) * 8); ++running)
                batch.push_back(
                    request_of(id++, 200 + static_cast<std::int64_t>(random.next_below(2000))));
            std::vector<DecodePlacement> placements;
            balancer.place(batch, step, &placements);
            for (const DecodePlacement& p : placements) {
                const auto r = static_cast<std::size_t>(p.rank);
                const std::int64_t kv = batch[p.id - batch.front().id].context_tokens;
                ++now.sequences[r];
                now.kv[r] += kv;
                now.number[r] = p.number;
                const auto life = 1 + static_cast<std::int64_t>(random.next_below(200));
                ends[step + life].emplace_back(r, kv);
            }
            if (step > 300) {
                most += static_cast<double>(
                    *std::max_element(now.sequences.begin(), now.sequences.end()));
                mean += static_cast<double>(kClients) / kRanks;
            }
            for (const auto& [r, kv] : ends[step + 1]) {
                --now.sequences[r];
                now.kv[r] -= kv;
                --running;
            }
            reports.push_back(now);
            reports.pop_front();
        }
        EXPECT_LE(most / mean, 1.2) << static_cast<int>(rule);
    }
}

TEST(DecodeLimits, NoRankIsPromisedMoreThanItHas) {
    EXPECT_TRUE(rc::check([] {
        std::vector<DecodeRankReport> ranks(*rc::gen::inRange<std::size_t>(1, 5));
        for (DecodeRankReport& rank : ranks) {
            rank = report_of(*rc::gen::inRange<std::int64_t>(0, 20), 0);
            rank.total_blocks = 4000;
            rank.free_blocks = *rc::gen::inRange<std::int64_t>(0, 4000);
            rank.sequences_max = *rc::gen::inRange<std::int64_t>(0, 40);
        }
        DecodeBalancer balancer = balancer_of(*rc::gen::elementOf(kRules), ranks);
        std::vector<DecodeRequest> batch(*rc::gen::inRange<std::size_t>(0, 100));
        for (std::size_t i = 0; i < batch.size(); ++i)
            batch[i] = request_of(i, *rc::gen::inRange<std::int64_t>(0, 100'000), 500);
        std::vector<DecodePlacement> placements;
        balancer.place(batch, 0, &placements);
        RC_ASSERT(placements.size() == batch.size());
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            RC_ASSERT(balancer.free_blocks(0, r) >= 0);
            RC_ASSERT(balancer.view(0, r).sequences <=
                      std::max(ranks[r].sequences, ranks[r].sequences_max));
        }
    }));
}

// Ranks as a balancer must see them, each looked at for every request.
class ScannedRanks {
  public:
    struct Pending {
        std::int64_t number = 0, blocks = 0, growth_tokens = 0;
    };
    struct Rank {
        DecodeRankReport report;
        std::vector<Pending> pending;
    };

    ScannedRanks(std::size_t groups, std::size_t ranks)
        : groups_(groups, std::vector<Rank>(ranks)), draining_(groups) {
        for (std::size_t g = 0; g < groups; ++g) {
            balancer_.add_group(g, ranks);
            for (Rank& rank : groups_[g])
                rank.report.is_live = false;
        }
    }

    void report(std::size_t g, std::size_t r) {
        Rank& rank = groups_[g][r];
        DecodeRankReport& report = rank.report;
        report.is_live = *rc::gen::inRange(0, 4) > 0;
        report.sequences = *rc::gen::inRange<std::int64_t>(0, 6);
        report.kv_tokens = *rc::gen::inRange<std::int64_t>(0, 50'000);
        report.sequences_max = *rc::gen::inRange<std::int64_t>(0, 8);
        report.total_blocks = 400;
        report.free_blocks = *rc::gen::inRange<std::int64_t>(0, 400);
        report.growth_tokens = *rc::gen::inRange<std::int64_t>(0, 30'000);
        if (*rc::gen::arbitrary<bool>() && !rank.pending.empty())
            report.acked = rank.pending.front().number;
        ++report.step;
        balancer_.report(g, r, report, 0);
        std::erase_if(rank.pending, [&](const Pending& p) {
            return !report.is_live || p.number <= report.acked;
        });
    }
    void place(const DecodeRequest& request) {
        const std::int64_t blocks = (request.context_tokens + 1 + 127) / 128;
        const DecodeReason expected = scan(blocks);
        std::vector<DecodePlacement> placements;
        balancer_.place({&request, 1}, 0, &placements);
        const DecodePlacement& placed = placements.at(0);
        RC_ASSERT(placed.reason == expected);
        if (placed.rank < 0) return;
        Rank& rank =
            groups_[static_cast<std::size_t>(placed.group)][static_cast<std::size_t>(placed.rank)];
        RC_ASSERT(has_room(rank, blocks));
        rank.pending.push_back({placed.number, blocks, request.output_p90_tokens});
    }
    void withdraw(std::size_t g, std::size_t r) {
        std::vector<Pending>& pending = groups_[g][r].pending;
        if (pending.empty()) return;
        const std::size_t which = *rc::gen::inRange<std::size_t>(0, pending.size());
        RC_ASSERT(balancer_.withdraw(g, r, pending[which].number, 0));
        pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(which));
    }
    void drain(std::size_t g, bool is_draining) {
        draining_[g] = is_draining;
        balancer_.set_draining(g, is_draining);
    }
    void save_and_load() { RC_ASSERT(balancer_.load(balancer_.save()).ok()); }
    void expect_full_only_without_room() const {
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            for (const std::int64_t blocks : {0, 1, 10, 100, 200, 399}) {
                if (!balancer_.is_full(g, blocks)) continue;
                for (const Rank& rank : groups_[g])
                    RC_ASSERT(!has_room(rank, blocks));
            }
        }
    }

  private:
    static bool has_slot(const Rank& rank) {
        const auto pending = static_cast<std::int64_t>(rank.pending.size());
        return rank.report.is_live && rank.report.sequences + pending < rank.report.sequences_max;
    }
    static bool has_room(const Rank& rank, std::int64_t blocks) {
        const DecodeSettings settings;
        std::int64_t free = rank.report.free_blocks, growth = rank.report.growth_tokens;
        for (const Pending& pending : rank.pending) {
            free -= pending.blocks;
            growth += pending.growth_tokens;
        }
        const double growth_blocks = settings.growth_share * static_cast<double>(growth) / 128;
        const double reserve =
            settings.reserve_share * static_cast<double>(rank.report.total_blocks);
        return has_slot(rank) && static_cast<double>(free) >= reserve &&
               static_cast<double>(blocks) + growth_blocks <= static_cast<double>(free);
    }
    DecodeReason scan(std::int64_t blocks) const {
        DecodeReason reason = DecodeReason::no_live_rank;
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            for (const Rank& rank : groups_[g]) {
                if (draining_[g] || !rank.report.is_live) continue;
                if (has_room(rank, blocks)) return DecodeReason::placed;
                if (has_slot(rank)) reason = DecodeReason::no_blocks;
                if (reason == DecodeReason::no_live_rank) reason = DecodeReason::no_slot;
            }
        }
        return reason;
    }

    DecodeBalancer balancer_{DecodeSettings{}};
    std::vector<std::vector<Rank>> groups_;
    std::vector<bool> draining_;
};

TEST(DecodeLimits, AGroupIsCalledFullOnlyWhenAScanFindsNoRoom) {
    EXPECT_TRUE(rc::check([] {
        const auto groups = *rc::gen::inRange<std::size_t>(1, 4);
        const auto ranks = *rc::gen::inRange<std::size_t>(1, 4);
        ScannedRanks scanned(groups, ranks);
        for (int i = *rc::gen::inRange(0, 120); i > 0; --i) {
            const auto g = *rc::gen::inRange<std::size_t>(0, groups);
            const auto r = *rc::gen::inRange<std::size_t>(0, ranks);
            const int what = *rc::gen::inRange(0, 10);
            if (what < 3) scanned.report(g, r);
            if (what >= 3 && what < 7) {
                DecodeRequest request = request_of(static_cast<std::uint64_t>(i),
                                                   *rc::gen::inRange<std::int64_t>(0, 40'000));
                request.output_p90_tokens = *rc::gen::inRange<std::int64_t>(0, 4000);
                scanned.place(request);
            }
            if (what == 7) scanned.withdraw(g, r);
            if (what == 8) scanned.drain(g, *rc::gen::arbitrary<bool>());
            if (what == 9) scanned.save_and_load();
            scanned.expect_full_only_without_room();
        }
    }));
}

TEST(DecodeLimits, EmptyGroupsAndMillionTokensAreOrdinary) {
    for (const DecodeRule rule : kRules) {
        DecodeBalancer balancer = balancer_of(rule, {report_of(0, 0)});
        EXPECT_EQ(place(balancer, request_of(1, 1'000'000, 1'000'000)).rank, 0);
        EXPECT_EQ(place(balancer, request_of(2, 0)).rank, 0);
        EXPECT_EQ(place(balancer, request_of(3, -5, -5)).rank, 0);
    }
}

TEST(DecodePressure, DropsTheNewestSequenceOfARankThatRunsOut) {
    DecodeBalancer balancer = balancer_of(DecodeRule::joint, {report_of(10, 0)});
    DecodeRankReport report = report_of(10, 0);
    report.total_blocks = 1000;
    report.free_blocks = 20;
    report.newest_id = 77;
    EXPECT_EQ(balancer.report(0, 0, report, 0), std::nullopt);
    report.free_blocks = 19;
    EXPECT_EQ(balancer.report(0, 0, report, 0), 77U);
    report.sequences = 0;
    EXPECT_EQ(balancer.report(0, 0, report, 0), std::nullopt);
}

TEST(DecodeGroups, TheEmptierGroupThatDoesNotDrainIsChosen) {
    DecodeBalancer balancer{DecodeSettings{}};
    for (std::size_t g = 0; g < 3; ++g) {
        balancer.add_group(g, 2);
        for (std::size_t r = 0; r < 2; ++r)
            balancer.report(g, r, report_of(30 - 10 * static_cast<std::int64_t>(g), 100'000), 0);
    }
    EXPECT_EQ(place(balancer, request_of(1, 100)).group, 2);
    balancer.set_draining(2, true);
    EXPECT_EQ(place(balancer, request_of(2, 100)).group, 1);
    DecodeRankReport dead;
    dead.is_live = false;
    balancer.report(1, 0, dead, 0);
    balancer.report(1, 1, dead, 0);
    EXPECT_EQ(place(balancer, request_of(3, 100)).group, 0);
    balancer.set_draining(0, true);
    EXPECT_EQ(place(balancer, request_of(4, 100)).reason, DecodeReason::no_live_rank);
}

TEST(DecodeGroups, AGroupWithoutRoomLeavesItToTheNext) {
    DecodeBalancer balancer{DecodeSettings{}};
    balancer.add_group(0, 1);
    balancer.add_group(1, 1);
    DecodeRankReport full = report_of(1, 100);
    full.sequences_max = 1;
    balancer.report(0, 0, full, 0);
    balancer.report(1, 0, report_of(50, 1'000'000), 0);
    EXPECT_EQ(place(balancer, request_of(1, 100)).group, 1);
}

TEST(DecodeRebalance, MovesHalfTheExcessFromARankThatStaysSlow) {
    DecodeSettings settings;
    settings.is_rebalancing = true;
    settings.cost = {.a0_us = 10, .a1_us = 1, .a2_us = 0.001};
    DecodeBalancer balancer(settings);
    balancer.add_group(0, 3);
    const std::vector<DecodeSequence> sequences = {{1, 10'000}, {2, 60'000}, {3, 500'000}};
    const auto report_all = [&](std::int64_t step) {
        for (std::size_t r = 0; r < 3; ++r) {
            DecodeRankReport report = report_of(10, r == 0 ? 250'000 : 100'000);
            report.step = step;
            balancer.report(0, r, report, 0);
        }
    };
    for (std::int64_t step = 0; step < 50; ++step)
        report_all(step);
    EXPECT_FALSE(balancer.rebalance(0, 0, sequences, 2'000'000));
    report_all(60);
    EXPECT_FALSE(balancer.rebalance(0, 1, sequences, 2'000'000));
    const auto move = balancer.rebalance(0, 0, sequences, 2'000'000);
    ASSERT_TRUE(move);
    EXPECT_EQ(move->id, 2U);
    EXPECT_NE(move->to, 0);
    EXPECT_EQ(balancer.view(0, static_cast<std::size_t>(move->to)).kv_tokens, 160'000);
    report_all(200);
    EXPECT_FALSE(balancer.rebalance(0, 0, sequences, 2'500'000));  // one a second
}

void relive(DecodeBalancer& balancer) {
    for (std::size_t g = 0; g < 2; ++g)
        balancer.add_group(g, 3);
    for (std::int64_t i = 0; i < 300; ++i) {
        const std::int64_t mix = i * 7919 % 4001;
        DecodeRankReport report = report_of(mix % 50, mix * 1000);
        report.step = i;
        report.acked = i / 12;
        if (mix % 40 == 0) report.free_blocks = 10;
        report.newest_id = static_cast<std::uint64_t>(i);
        balancer.report(static_cast<std::size_t>(mix % 2), static_cast<std::size_t>(mix % 3),
                        report, i);
        const DecodePlacement p = place(balancer, request_of(static_cast<std::uint64_t>(i), mix));
        if (p.rank >= 0 && mix % 9 == 0)
            balancer.withdraw(static_cast<std::size_t>(p.group), static_cast<std::size_t>(p.rank),
                              p.number, i);
        balancer.set_draining(1, mix % 3 == 0);
    }
}

TEST(DecodeState, ARecordedLogIsReplayedToTheSameHash) {
    std::vector<DecisionRecord> recorded;
    DecodeBalancer live{DecodeSettings{}};
    live.log().set_visitor([&](const DecisionRecord& r) { recorded.push_back(r); });
    relive(live);
    ASSERT_GT(recorded.size(), 300U);
    DecodeBalancer again{DecodeSettings{}};
    ReplayCheck check(recorded);
    again.log().set_visitor([&](const DecisionRecord& r) { check.observe(r); });
    relive(again);
    EXPECT_TRUE(check.finish().ok());
    EXPECT_EQ(again.log().hash(), live.log().hash());

    DecodeSettings other;
    other.rule = DecodeRule::split;
    DecodeBalancer differs(other);
    ReplayCheck found(recorded);
    differs.log().set_visitor([&](const DecisionRecord& r) { found.observe(r); });
    relive(differs);
    EXPECT_FALSE(found.finish().ok());
    EXPECT_NE(differs.log().hash(), live.log().hash());
}

TEST(DecodeState, AStandbyDecidesAsTheOriginalWouldHave) {
    EXPECT_TRUE(rc::check([] {
        DecodeSettings settings;
        settings.rule = *rc::gen::elementOf(kRules);
        DecodeBalancer original(settings), standby(settings);
        for (std::size_t g = 0; g < 2; ++g)
            original.add_group(g, 3);
        std::uint64_t id = 0;
        const auto step = [&](DecodeBalancer& balancer, std::int64_t choice) {
            DecodeRankReport report = report_of(choice % 50, choice * 1000);
            report.step = static_cast<std::int64_t>(id);
            report.acked = choice % 7;
            balancer.report(static_cast<std::size_t>(choice % 2),
                            static_cast<std::size_t>(choice % 3), report, 0);
            place(balancer, request_of(id, choice * 100));
        };
        for (int i = *rc::gen::inRange(0, 40); i > 0; --i, ++id)
            step(original, *rc::gen::inRange<std::int64_t>(0, 1000));
        const std::vector<std::uint8_t> bytes = original.save();
        RC_ASSERT(standby.load(bytes).ok());
        RC_ASSERT(standby.save() == bytes);
        for (int i = 0; i < 20; ++i, ++id) {
            const auto choice = *rc::gen::inRange<std::int64_t>(0, 1000);
            step(original, choice);
            step(standby, choice);
        }
        RC_ASSERT(original.log().hash() == standby.log().hash());
        RC_ASSERT(!standby.load(std::span(bytes).first(bytes.size() - 1)).ok());
        RC_ASSERT(original.save() == standby.save());
    }));
}

}  // namespace
}  // namespace fathom
