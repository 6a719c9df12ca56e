#include "policy/work_counts.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "policy/test_shapes.h"

namespace fathom {
namespace {

using testing::released_shape;

TEST(WorkCounts, PairFormulasEqualTheirSums) {
    EXPECT_TRUE(rc::check([] {
        const auto n = *rc::gen::inRange<std::int64_t>(0, 3000);
        const auto ratio = *rc::gen::inRange<std::int64_t>(1, 20);
        const auto cap = *rc::gen::inRange<std::int64_t>(1, 600);
        std::int64_t uncapped = 0, capped = 0;
        for (std::int64_t i = 1; i <= n; ++i) {
            uncapped += i / ratio;
            capped += std::min(i / ratio, cap);
        }
        RC_ASSERT(pairs_uncapped(n, ratio) == uncapped);
        RC_ASSERT(pairs_capped(n, ratio, cap) == capped);
    }));
}

// Row by row, from the description of the architecture.
struct Brute {
    const ModelShape& shape;
    WorkCounts counts;

    void layer(const LayerKind& kind, std::int64_t p, std::int64_t floor) {
        const std::int64_t window =
            std::min(std::max<std::int64_t>(p + 1 - floor, 0), shape.window);
        const std::int64_t visible = kind.ratio > 0 ? (p + 1) / kind.ratio : 0;
        counts.attention_pairs += kind.layers * (window + std::min(visible, shape.index_topk));
        if (!kind.runs_indexer || visible <= shape.index_topk) return;
        const std::int64_t block = shape.candidate_block_size;
        const std::int64_t blocks = (visible + block - 1) / block;
        counts.index_pairs +=
            kind.layers *
            (kind.uses_candidates ? std::min(blocks, shape.candidate_blocks) * block : visible);
    }
    void row(std::int64_t p, const Slice& slice, bool decoder) {
        ++counts.rows;
        for (const LayerKind& kind : shape.encoder)
            layer(kind, p, slice.encoder_floor);
        if (!decoder) return;
        ++counts.decoder_rows;
        layer(shape.boundary, p, slice.decoder_floor);
        for (const LayerKind& kind : shape.decoder)
            layer(kind, p, slice.decoder_floor);
    }
};

TEST(WorkCounts, ASliceCountsWhatItsRowsCount) {
    const ModelShape shape = released_shape();
    EXPECT_TRUE(rc::check([&] {
        Slice slice;
        slice.context = *rc::gen::inRange<std::int64_t>(0, 40000);
        slice.rows = *rc::gen::inRange<std::int64_t>(1, 500);
        slice.decoder_rows = *rc::gen::inRange<std::int64_t>(0, slice.rows + 1);
        slice.encoder_floor = *rc::gen::inRange<std::int64_t>(0, slice.context + 1);
        slice.decoder_floor = *rc::gen::inRange<std::int64_t>(0, slice.context + 1);
        Brute brute{shape, {}};
        for (std::int64_t i = 0; i < slice.rows; ++i)
            brute.row(slice.context + i, slice, i >= slice.rows - slice.decoder_rows);
        const WorkCounts counts = count_work(shape, slice);
        RC_ASSERT(counts.rows == brute.counts.rows);
        RC_ASSERT(counts.decoder_rows == brute.counts.decoder_rows);
        RC_ASSERT(counts.attention_pairs == brute.counts.attention_pairs);
        RC_ASSERT(counts.index_pairs == brute.counts.index_pairs);
    }));
}

TEST(WorkCounts, AnyCutOfASliceCountsTheSame) {
    const ModelShape shape = released_shape();
    EXPECT_TRUE(rc::check([&] {
        const auto context = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
        const auto rows = *rc::gen::inRange<std::int64_t>(2, 32'768);
        const auto first = *rc::gen::inRange<std::int64_t>(1, rows);
        const auto exact = [](std::int64_t begin, std::int64_t count) {
            return Slice{.context = begin, .rows = count, .decoder_rows = count};
        };
        const double whole = useful_flops(shape, exact(context, rows));
        const double parts = useful_flops(shape, exact(context, first)) +
                             useful_flops(shape, exact(context + first, rows - first));
        RC_ASSERT(std::abs(whole - parts) <= 1e-9 * whole);
    }));
}

// model.md 1.4: the released model runs some 16.06 GFLOP of FP8-equivalent work an encoder row; the
// same table in plain floating-point operations.
TEST(WorkCounts, ARowOfTheReleasedModel) {
    const ModelShape shape = released_shape();
    const double row = useful_flops(shape, {.context = 0, .rows = 1});
    const double moe = 2.0 * 3 * 5120 * 2048 * (shape.experts_per_token + 1);
    EXPECT_GT(row, 20 * moe);
    EXPECT_LT(row, 20 * moe * 1.9);
}

}  // namespace
}  // namespace fathom
