#include "pool/pool_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "pool/testing/store_calls.h"

namespace fathom {
namespace {

using namespace fathom::testing;

// Answers lookups as told, at once; nothing else is asked of it.
class ToldStore final : public BlockStore {
  public:
    std::int64_t payload_bytes() const override { return 10'000; }
    StoreOpPtr longest_prefix(std::vector<BlockKey>, Deadline, PrefixDone done) override {
        done(blocks, status);
        return nullptr;
    }
    StoreOpPtr exists(std::vector<BlockKey>, Deadline, ExistsDone) override { return nullptr; }
    StoreOpPtr get(std::vector<GetRequest>, Deadline, GetCalls) override { return nullptr; }
    StoreOpPtr put(std::vector<PutRequest>, const PutOptions&, Deadline, PutCalls) override {
        return nullptr;
    }
    StoreOpPtr drop_namespace(const NamespaceId&, Deadline,
                              std::function<void(Status status)>) override {
        return nullptr;
    }
    StoreHealth health() const override { return {}; }
    void close(Deadline) override {}

    std::size_t blocks = 0;
    Status status;
};

class PoolTierLookups : public ::testing::Test {
  protected:
    TierFound find(std::size_t blocks, Status status) {
        store_.blocks = blocks;
        store_.status = std::move(status);
        TierFound answer;
        tier_.find(std::vector<BlockKey>(3), 0, [&](TierFound found) { answer = found; });
        return answer;
    }
    std::uint64_t count(const char* result) {
        return metrics_.counter("kvpool_lookup_total", "x", {{"result", result}}).value();
    }
    // Lines that were logged meanwhile.
    template <typename Do>
    static std::vector<std::string> logged(const Do& run) {
        ::testing::internal::CaptureStderr();
        run();
        const std::string text = ::testing::internal::GetCapturedStderr();
        std::vector<std::string> lines;
        for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos;
             at = end + 1)
            lines.push_back(text.substr(at, end - at));
        return lines;
    }

    ToldStore store_;
    ManualClock clock_;
    MetricsRegistry metrics_;
    PoolTier tier_{store_, {.staging_bytes = 1}, clock_, metrics_};
};

TEST_F(PoolTierLookups, AreToldApartByHowTheyEnded) {
    const struct {
        std::size_t blocks;
        Status status;
        TierLoss loss;
        const char* result;
    } cases[] = {
        {3, {}, TierLoss::absent, "hit"},
        {2, {}, TierLoss::absent, "partial"},
        {0, {}, TierLoss::absent, "miss"},
        {0, {StatusCode::deadline_exceeded, "late"}, TierLoss::timeout, "timeout"},
        {2, {StatusCode::deadline_exceeded, "late"}, TierLoss::timeout, "timeout"},
        {0, {StatusCode::data_loss, "broken"}, TierLoss::io_error, "io_error"},
        {0, {StatusCode::unavailable, "not asked"}, TierLoss::breaker, "breaker"},
    };
    std::map<std::string, std::uint64_t> expected;
    for (const auto& each : cases) {
        SCOPED_TRACE(each.result);
        const TierFound found = find(each.blocks, each.status);
        EXPECT_EQ(found.blocks, each.blocks);
        EXPECT_EQ(found.loss, each.loss);
        EXPECT_EQ(count(each.result), ++expected[each.result]);
    }
}

TEST_F(PoolTierLookups, ThatFailAreSaidOnceAMinuteWithTheirReason) {
    EXPECT_TRUE(logged([&] { find(1, {}); }).empty());
    const auto first = logged([&] {
        for (int i = 0; i < 5; ++i)
            find(0, {StatusCode::deadline_exceeded, "the disk sleeps"});
    });
    ASSERT_EQ(first.size(), 1u);
    EXPECT_NE(first[0].find("the disk sleeps (1 since the last line)"), std::string::npos)
        << first[0];
    clock_.advance_us(60'000'000);
    const auto later = logged([&] { find(0, {StatusCode::unavailable, "not asked"}); });
    ASSERT_EQ(later.size(), 1u);
    EXPECT_NE(later[0].find("not asked (5 since the last line)"), std::string::npos) << later[0];
}

}  // namespace
}  // namespace fathom
