// Selection against a sort, on scores full of ties, zeros of both signs, infinities and NaN.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/ops.h"

namespace fathom {
namespace {

Backend& backend() {
    static const std::unique_ptr<Backend> b =
        std::move(*make_reference_backend(std::make_shared<ComputePool>(1)));
    return *b;
}

// Few distinct values, so that ties are the rule.
rc::Gen<std::vector<float>> scores() {
    return rc::gen::container<std::vector<float>>(rc::gen::weightedOneOf<float>(
        {{8, rc::gen::map(rc::gen::inRange(-4, 5),
                          [](int i) { return 0.5f * static_cast<float>(i); })},
         {2, rc::gen::element(0.0f, -0.0f, std::numeric_limits<float>::denorm_min(), -1e-41f)},
         {1, rc::gen::element(std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN(), 3e38f, -3e38f)}}));
}

// Higher first, ties to the lower index, NaN last.
std::vector<std::int32_t> best_by_sort(const std::vector<float>& s, std::int64_t k) {
    std::vector<std::int32_t> order(s.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        if (std::isnan(s[a]) || std::isnan(s[b])) return !std::isnan(s[a]) && std::isnan(s[b]);
        return s[a] > s[b];
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
    std::sort(order.begin(), order.end());
    return order;
}

std::vector<std::int32_t> top(const std::vector<float>& s, std::int64_t k) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(k));
    out.resize(static_cast<std::size_t>(backend().select_top(s, k, out)));
    return out;
}

RC_GTEST_PROP(Selection, TopEqualsASort, ()) {
    const auto s = *scores();
    const auto k = *rc::gen::inRange<std::int64_t>(0, 12);
    RC_ASSERT(top(s, k) == best_by_sort(s, k));
}

RC_GTEST_PROP(Selection, FlushingDenormalsDoesNotMatter, ()) {
    const auto s = *scores();
    const auto plain = top(s, 5);
    const FlushDenormals flush;
    RC_ASSERT(top(s, 5) == plain);
}

RC_GTEST_PROP(Selection, BlocksAreRankedByTheirBestWithTheLastForcedIn, ()) {
    const auto s = *rc::gen::nonEmpty(scores());
    const auto size = *rc::gen::inRange<std::int64_t>(1, 6);
    const auto k = *rc::gen::inRange<std::int64_t>(1, 6);
    std::vector<float> best;
    for (std::size_t i = 0; i < s.size(); ++i) {
        if (i % static_cast<std::size_t>(size) == 0) {
            best.push_back(std::numeric_limits<float>::quiet_NaN());
        }
        if (!(best.back() >= s[i]) && !std::isnan(s[i])) best.back() = s[i];
    }
    // The last block is chosen whatever its score; the others compete for the remaining places.
    const auto last = static_cast<std::int32_t>(best.size() - 1);
    auto want = best_by_sort({best.begin(), best.end() - 1}, k - 1);
    want.push_back(last);

    std::vector<std::int32_t> got(static_cast<std::size_t>(k));
    got.resize(static_cast<std::size_t>(backend().select_blocks(s, size, k, got)));
    RC_ASSERT(got == want);
}

TEST(Selection, NothingToChooseFrom) {
    EXPECT_TRUE(top({}, 4).empty());
    EXPECT_TRUE(top({1, 2, 3}, 0).empty());
    std::vector<std::int32_t> out(2);
    EXPECT_EQ(backend().select_blocks({}, 8, 2, out), 0);
}

}  // namespace
}  // namespace fathom
