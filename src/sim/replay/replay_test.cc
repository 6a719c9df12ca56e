// Models of a cache on traces made by hand, whose figures can be counted, and what must hold of any
// trace.
#include "sim/replay/replay.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace fathom {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000;

TraceReader::NextLine lines_of(std::vector<std::string> lines) {
    return [lines = std::move(lines), at = std::size_t{0}](std::string& line) mutable {
        if (at == lines.size()) return Result<bool>(false);
        line = lines[at++];
        return Result<bool>(true);
    };
}

ReplayResult replay_lines(const std::vector<std::string>& lines,
                          const std::vector<CachePolicy>& policies,
                          const ReplayOptions& options = {}) {
    auto reader = TraceReader::from_lines("made", lines_of(lines), options.trace);
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    auto result = replay_trace(**reader, policies, options);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return *result;
}

std::string mooncake(std::int64_t second, std::int64_t input, const std::string& ids) {
    return fmt::format(
        R"({{"timestamp": {}, "input_length": {}, "output_length": 1, "hash_ids": [{}]}})",
        second * 1000, input, ids);
}

CachePolicy expiring(Expiry expiry, std::int64_t ttl_s) {
    CachePolicy policy;
    policy.expiry = expiry;
    policy.ttl_us = ttl_s * kSecondUs;
    return policy;
}

TEST(Replay, CountsHitsAndEachCauseOfAMiss) {
    const auto result = replay_lines(
        {mooncake(0, 1100, "1, 2, 3"), mooncake(10, 1100, "1, 2, 4"), mooncake(200, 1024, "1, 2")},
        {{}, expiring(Expiry::fixed, 100)});
    const CacheCounts& all = result.rows[0].counts;
    EXPECT_EQ(all.requests, 3);
    EXPECT_EQ(all.input_tokens, 3224);
    EXPECT_EQ(all.hit_tokens, 1024 + 1024);
    EXPECT_EQ(all.absent_tokens, 1100 + 76);  // a partial block has the tokens that are in it
    EXPECT_EQ(all.written_pages, 4);
    EXPECT_EQ(all.read_pages, 4);
    EXPECT_EQ(all.live_pages_peak, 4);
    const CacheCounts& fixed = result.rows[1].counts;
    EXPECT_EQ(fixed.hit_tokens, 1024);
    EXPECT_EQ(fixed.expired_tokens, 1024);
    EXPECT_EQ(fixed.written_pages, 6);
}

TEST(Replay, WithoutTheTailOnlyWholePagesAreKept) {
    ReplayOptions options;
    options.keep_tail = false;
    CachePolicy small;
    small.page_tokens = 128;
    const auto result =
        replay_lines({mooncake(0, 700, "1, 2"), mooncake(1, 700, "1, 2")}, {{}, small}, options);
    EXPECT_EQ(result.rows[0].counts.hit_tokens, 512);
    EXPECT_EQ(result.rows[0].counts.tail_tokens, 2 * 188);
    EXPECT_EQ(result.rows[1].counts.hit_tokens, 640);
    EXPECT_EQ(result.rows[1].counts.tail_tokens, 2 * 60);
}

TEST(Replay, ExpiryIsExclusiveAndRefreshMovesIt) {
    const std::vector<std::string> lines = {mooncake(0, 512, "1"), mooncake(100, 512, "1"),
                                            mooncake(200, 512, "1"), mooncake(301, 512, "1")};
    CachePolicy never = expiring(Expiry::fixed, 100);
    never.rewrite = Rewrite::never;
    const auto result =
        replay_lines(lines, {expiring(Expiry::refresh, 100), expiring(Expiry::fixed, 100), never});
    EXPECT_EQ(result.rows[0].counts.read_pages, 2);  // at 100 and 200; at 301 it is a second late
    EXPECT_EQ(result.rows[1].counts.read_pages, 1);  // written at 0, 200, 301
    EXPECT_EQ(result.rows[1].counts.written_pages, 3);
    EXPECT_EQ(result.rows[2].counts.read_pages, 1);
    EXPECT_EQ(result.rows[2].counts.written_pages, 1);
}

TEST(Replay, RenewalWritesWhatIsNearItsEnd) {
    const auto result = replay_lines({mooncake(0, 512, "1"), mooncake(70, 512, "1"),
                                      mooncake(80, 512, "1"), mooncake(170, 512, "1")},
                                     {expiring(Expiry::renew, 100)});
    // At 70, 30 of 100 s are left; at 80, 20: written anew, until 180.
    EXPECT_EQ(result.rows[0].counts.read_pages, 3);
    EXPECT_EQ(result.rows[0].counts.renewed_pages, 2);
    EXPECT_EQ(result.rows[0].counts.written_pages, 1);
    EXPECT_EQ(result.rows[0].counts.live_pages_peak, 1);
}

TEST(Replay, BucketsEndTogether) {
    CachePolicy policy = expiring(Expiry::fixed, 100);
    policy.bucket_us = 60 * kSecondUs;
    const auto result = replay_lines(
        {mooncake(1, 512, "1"), mooncake(160, 512, "1"), mooncake(161, 512, "1")}, {policy});
    EXPECT_EQ(result.rows[0].counts.read_pages, 1 + 0);
    EXPECT_EQ(result.rows[0].counts.expired_tokens, 512);
}

TEST(Replay, ALeastRecentlyUsedBlockGoes) {
    CachePolicy lru;
    lru.eviction = Eviction::lru;
    lru.capacity_bytes = 2 * 512 * 890;
    const auto result =
        replay_lines({mooncake(0, 512, "1"), mooncake(1, 512, "2"), mooncake(2, 512, "1"),
                      mooncake(3, 512, "3"), mooncake(4, 512, "1"), mooncake(5, 512, "2")},
                     {lru});
    EXPECT_EQ(result.rows[0].counts.read_pages, 2);
    EXPECT_EQ(result.rows[0].counts.evicted_tokens, 512);
    EXPECT_EQ(result.rows[0].counts.live_pages_peak, 2);
}

TEST(Replay, S3FifoKeepsWhatIsUsedThroughAScan) {
    std::vector<std::string> lines = {mooncake(0, 512, "1"), mooncake(1, 512, "1"),
                                      mooncake(2, 512, "1")};
    for (int i = 0; i < 40; ++i)
        lines.push_back(mooncake(3 + i, 512, std::to_string(100 + i)));
    lines.push_back(mooncake(50, 512, "1"));
    CachePolicy lru, s3;
    lru.eviction = Eviction::lru;
    s3.eviction = Eviction::s3_fifo;
    lru.capacity_bytes = s3.capacity_bytes = 10 * 512 * 890;
    const auto result = replay_lines(lines, {lru, s3});
    EXPECT_EQ(result.rows[0].counts.read_pages, 2);
    EXPECT_EQ(result.rows[1].counts.read_pages, 3);
}

TEST(Replay, WholeSegmentsGoEarliestFirst) {
    CachePolicy policy;
    policy.eviction = Eviction::earliest;
    policy.token_bytes = (64 << 20) / 512 / 2;  // two pages a segment
    policy.capacity_bytes = std::int64_t{4} * (64 << 20);
    // Five segments after page 8: two go, so that at most 85 % of four are left.
    std::vector<std::string> lines;
    for (int page = 0; page < 9; ++page)
        lines.push_back(mooncake(page, 512, std::to_string(page)));
    for (int page = 8; page >= 0; --page)
        lines.push_back(mooncake(20, 512, std::to_string(page)));
    const auto result = replay_lines(lines, {policy});
    // Four segments are above 90 % of four as well: after page 6 one goes, after page 8 another.
    EXPECT_EQ(result.rows[0].counts.read_pages, 5);
    EXPECT_EQ(result.rows[0].counts.space_bytes_peak, std::int64_t{3} * (64 << 20));
}

constexpr const char* kConversation =
    R"({"id": "c", "block": 64, "reqs": [)"
    R"({"a": "main", "t": 0, "in": 130, "out": 70, "p": 0, "n": [[1, 2]]},)"
    R"({"a": "sub", "t": 1.5, "in": 64, "out": 1, "p": 0, "n": [[1, 1]]},)"
    R"({"a": "main", "t": 9, "in": 330, "out": 1, "p": 2, "n": [[3, 3]]}]})";

TEST(Replay, ConversationsHaveTheirOwnIdsAndAgents) {
    CachePolicy plain, output, large;
    output.persist_output = true;
    large.page_tokens = 128;
    const auto result = replay_lines({kConversation, kConversation}, {plain, output, large});
    EXPECT_EQ(result.block_tokens, 64);
    EXPECT_EQ(result.rows[0].counts.requests, 6);
    EXPECT_EQ(result.rows[0].counts.hit_tokens, 2 * (64 + 128));
    // 130 + 70 tokens are three blocks: the third is the output's.
    EXPECT_EQ(result.rows[1].counts.hit_tokens, 2 * (64 + 192));
    EXPECT_EQ(result.rows[2].counts.hit_tokens, 2 * 128);
}

TEST(Replay, SpreadConversationsShareOneSpace) {
    ReplayOptions options;
    options.trace.spread_us = 100 * kSecondUs;
    const auto result = replay_lines({kConversation, kConversation}, {{}}, options);
    EXPECT_EQ(result.rows[0].counts.hit_tokens, 2 * (64 + 128));
    EXPECT_EQ(result.rows[0].counts.live_pages_peak, 10);
}

TEST(Replay, AnUnknownOutputCannotBePersisted) {
    CachePolicy policy;
    policy.persist_output = true;
    auto reader = TraceReader::from_lines("made", lines_of({mooncake(0, 512, "1")}), {});
    ASSERT_TRUE(reader.ok());
    const auto result = replay_trace(**reader, std::vector{policy}, {});
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.status().message().find("cannot be studied"), std::string::npos);
}

TEST(Replay, WindowsAreOnTheNodeThatMadeThem) {
    CachePolicy one, many;
    one.window.nodes = 1;
    many.window.nodes = 16;
    std::vector<std::string> lines;
    for (int i = 0; i < 400; ++i)
        lines.push_back(mooncake(i, 512, "1"));
    lines.push_back(mooncake(1000, 512, "1"));
    const auto result = replay_lines(lines, {one, many});
    const WindowCounts& alone = result.rows[0].counts.windows;
    EXPECT_EQ(alone.wanted, 400);
    EXPECT_EQ(alone.hits_random, 399);  // the last came too late
    EXPECT_EQ(alone.hits_affinity, 399);
    const WindowCounts& apart = result.rows[1].counts.windows;
    EXPECT_EQ(apart.hits_affinity, 399);
    EXPECT_LT(apart.hits_random, 399);  // every node has to see the block first
}

// Random requests over a tree of prefixes.
std::vector<std::string> any_trace() {
    const auto count = *rc::gen::inRange(1, 120);
    std::vector<std::string> lines;
    std::int64_t second = 0;
    for (int i = 0; i < count; ++i) {
        second += *rc::gen::inRange(0, 40);
        const auto root = *rc::gen::inRange(0, 4);
        const auto blocks = *rc::gen::inRange(1, 8);
        std::string ids;
        for (int block = 0; block < blocks; ++block)
            ids += fmt::format("{}{}", block == 0 ? "" : ", ", root * 100 + block);
        lines.push_back(mooncake(second, blocks * 512 - *rc::gen::inRange(0, 511), ids));
    }
    return lines;
}

RC_GTEST_PROP(Replay, NothingBeatsUnlimitedAndSumsAddUp, ()) {
    const auto lines = any_trace();
    std::vector<CachePolicy> policies = {{}};
    for (const Expiry expiry : {Expiry::refresh, Expiry::fixed, Expiry::renew})
        for (const Eviction eviction :
             {Eviction::none, Eviction::lru, Eviction::s3_fifo, Eviction::earliest}) {
            CachePolicy policy = expiring(expiry, *rc::gen::inRange(1, 300));
            policy.eviction = eviction;
            policy.capacity_bytes = *rc::gen::inRange(1, 30) * std::int64_t{512} * 890;
            // Segments have an expiry fixed at write.
            if (expiry != Expiry::refresh || eviction != Eviction::earliest)
                policies.push_back(policy);
        }
    const ReplayResult result = replay_lines(lines, policies);
    const CacheCounts& best = result.rows[0].counts;
    for (const ReplayRow& row : result.rows) {
        const CacheCounts& counts = row.counts;
        RC_ASSERT(counts.hit_tokens <= best.hit_tokens);
        RC_ASSERT(counts.input_tokens == counts.hit_tokens + counts.absent_tokens +
                                             counts.expired_tokens + counts.evicted_tokens +
                                             counts.tail_tokens);
        RC_ASSERT(counts.written_pages >= counts.live_pages_peak);
    }
}

RC_GTEST_PROP(Replay, RefreshAndRenewalNeverHitLessThanFixed, ()) {
    const auto lines = any_trace();
    const auto ttl_s = *rc::gen::inRange(1, 300);
    CachePolicy never = expiring(Expiry::fixed, ttl_s);
    never.rewrite = Rewrite::never;
    CachePolicy always = expiring(Expiry::renew, ttl_s);
    always.renew_share = 1;
    const ReplayResult result = replay_lines(
        lines, {expiring(Expiry::refresh, ttl_s), always, expiring(Expiry::fixed, ttl_s), never});
    const auto hits = [&](std::size_t row) { return result.rows[row].counts.hit_tokens; };
    RC_ASSERT(hits(0) == hits(1));  // renewing at once is refreshing, at the price of writes
    RC_ASSERT(hits(0) >= hits(2));
    RC_ASSERT(hits(2) >= hits(3));
}

RC_GTEST_PROP(Replay, MoreSpaceUnderLruNeverHitsLess, ()) {
    const auto lines = any_trace();
    std::vector<CachePolicy> policies;
    for (std::int64_t pages = 1; pages < 32; ++pages) {
        CachePolicy policy;
        policy.eviction = Eviction::lru;
        policy.capacity_bytes = pages * 512 * 890;
        policies.push_back(policy);
    }
    const ReplayResult result = replay_lines(lines, policies);
    for (std::size_t i = 1; i < result.rows.size(); ++i)
        RC_ASSERT(result.rows[i].counts.hit_tokens >= result.rows[i - 1].counts.hit_tokens);
}

TEST(GapSurvival, CountsWhatTheEndHidesAsUnknown) {
    GapSurvival gaps;
    TraceRequest request;
    request.blocks = {0, 1};
    request.new_scope = true;
    gaps.add(request);
    request.new_scope = false;
    request.time_us = 4 * kSecondUs;
    request.blocks = {0};
    gaps.add(request);
    request.time_us = 104 * kSecondUs;
    request.blocks = {2};
    gaps.add(request);
    gaps.end();
    // Four gaps: one of 4 s; hidden behind 104, 100 and 0 s. The last is not at risk at 4 s.
    EXPECT_EQ(gaps.gaps(), 1);
    EXPECT_EQ(gaps.longest_s(), 4);
    EXPECT_DOUBLE_EQ(gaps.survival(1), 1);
    EXPECT_DOUBLE_EQ(gaps.survival(10), 1 - 1.0 / 3);
    EXPECT_DOUBLE_EQ(gaps.survival(1e9), 1 - 1.0 / 3);
    EXPECT_GT(gaps.exponent(1, 10), 0);
}

}  // namespace
}  // namespace fathom
